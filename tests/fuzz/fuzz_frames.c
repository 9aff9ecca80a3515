// SPDX-License-Identifier: Apache-2.0
//
// A peer that sends anything at all: frame headers, and a whole tcp transport
// that waits for frames.  The input is a series of records: raw bytes, or the
// header that is expected with bytes of it changed and its check put right.

#include "fuzz.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "transport/frame.h"
#include "transport/transport.h"
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { N_RECEIVES = 4, MOST_RUNS = 3, GENERATION = 7, AT_CHECK = 60 };

// What the transport waits for: run sizes of each receive.
static const size_t run_bytes[N_RECEIVES][MOST_RUNS] = {
    {40, 0, 0}, {0, 0, 0}, {1, 16, 7}, {300, 3, 0}};

static const cadre_call calls[N_RECEIVES] = {
    {.operation = CADRE_OP_ALLREDUCE, .root = -1, .sequence = 1, .count = 10},
    {.operation = CADRE_OP_BARRIER,
        .dtype = CADRE_U8,
        .root = -1,
        .sequence = 2},
    {.operation = CADRE_OP_FOLD,
        .root = -1,
        .sequence = 3,
        .detail = 9,
        .ring = true},
    {.operation = CADRE_OP_BROADCAST,
        .dtype = CADRE_BF16,
        .root = 1,
        .sequence = 4,
        .count = 303},
};

typedef struct scene {
    cadre_transport *transport;
    int far_end;
    int n_headers; // that were sent so far
    cadre_run runs[N_RECEIVES][MOST_RUNS];
    cadre_transfer receives[N_RECEIVES];
} scene;

static size_t payload_bytes(int i)
{
    return run_bytes[i][0] + run_bytes[i][1] + run_bytes[i][2];
}

// Each run in memory of its own, so that a byte beyond it is noticed.
static void open_scene(scene *s)
{
    int ends[2];
    *s = (scene){0};
    fuzz_connection(ends);
    int sockets[2] = {-1, ends[0]};
    s->far_end = ends[1];
    FUZZ_CHECK(
        cadre_tcp_open(0, 2, GENERATION, sockets, &s->transport) == CADRE_OK);
    for (int i = 0; i < N_RECEIVES; i++) {
        for (int r = 0; r < MOST_RUNS; r++) {
            size_t nbytes = run_bytes[i][r];
            s->runs[i][r] = (cadre_run){cadre_alloc(nbytes), nbytes};
            FUZZ_CHECK(s->runs[i][r].data != NULL);
        }
        s->receives[i] = (cadre_transfer){
            .call = &calls[i], .runs = s->runs[i], .n_runs = MOST_RUNS};
        FUZZ_CHECK(cadre_transport_receive(s->transport, 1, &s->receives[i]) ==
                   CADRE_OK);
    }
}

static void close_scene(scene *s)
{
    cadre_transport_close(s->transport);
    if (s->far_end >= 0) {
        close(s->far_end);
    }
    for (int i = 0; i < N_RECEIVES; i++) {
        for (int r = 0; r < MOST_RUNS; r++) {
            cadre_free(s->runs[i][r].data);
        }
    }
}

static void say(const scene *s, const uint8_t *bytes, size_t nbytes)
{
    // What a broken connection does not take is lost, as it would be.
    (void)!send(s->far_end, bytes, nbytes, MSG_NOSIGNAL);
}

static void repair_check(uint8_t header[CADRE_FRAME_BYTES])
{
    cadre_store_u32(
        header + AT_CHECK, (uint32_t)cadre_hash(header, AT_CHECK, 0));
}

static void say_header(scene *s, fuzz_input *in)
{
    int i = s->n_headers++ % N_RECEIVES;
    uint8_t header[CADRE_FRAME_BYTES];
    const cadre_frame frame = {
        .generation = GENERATION,
        .call = calls[i],
        .nbytes = payload_bytes(i),
        .sender = 1,
        .checked = fuzz_byte(in) % 2 != 0,
    };
    cadre_frame_encode(&frame, header);
    fuzz_patch(in, header, AT_CHECK);
    repair_check(header);
    say(s, header, sizeof(header));
}

static void say_zeros(const scene *s, fuzz_input *in)
{
    static const uint8_t zeros[512];
    say(s, zeros, (size_t)fuzz_byte(in) * 2);
}

// Moves all there is; a failure must be the same ever after.
static void move(const scene *s)
{
    for (int i = 0; i < N_RECEIVES * 4; i++) {
        cadre_status status = cadre_transport_progress(s->transport, 0);
        if (status != CADRE_OK) {
            FUZZ_CHECK(
                status == CADRE_ERR_PEER_LOST || status == CADRE_ERR_DESYNC);
            FUZZ_CHECK(s->transport->failed_peer == 1);
            FUZZ_CHECK(cadre_transport_progress(s->transport, 0) == status);
        }
    }
    for (int i = 1; i < N_RECEIVES; i++) {
        FUZZ_CHECK(!s->receives[i].done || s->receives[i - 1].done);
    }
}

static void feed_transport(fuzz_input *in)
{
    scene s;
    open_scene(&s);
    while (in->left > 0) {
        size_t nbytes;
        switch (fuzz_byte(in) % 4) {
        case 0:
            say_header(&s, in);
            break;
        case 1:
            say_zeros(&s, in);
            break;
        case 2:
            nbytes = fuzz_byte(in);
            const uint8_t *bytes = fuzz_bytes(in, &nbytes);
            say(&s, bytes, nbytes);
            break;
        default:
            move(&s);
        }
    }
    move(&s);
    close(s.far_end);
    s.far_end = -1;
    move(&s);
    bool all_done = s.receives[N_RECEIVES - 1].done;
    FUZZ_CHECK(all_done || s.transport->failed != CADRE_OK);
    close_scene(&s);
}

// What can be decoded is encoded to the same bytes, and compares with itself.
static void read_header(fuzz_input *in)
{
    uint8_t header[CADRE_FRAME_BYTES] = {0};
    uint8_t again[CADRE_FRAME_BYTES];
    cadre_frame frame;
    bool repaired = fuzz_byte(in) % 2 != 0;
    size_t nbytes = sizeof(header);
    const uint8_t *bytes = fuzz_bytes(in, &nbytes);
    memcpy(header, bytes, nbytes);
    if (repaired) {
        repair_check(header);
    }
    if (cadre_frame_decode(header, &frame) != CADRE_OK) {
        return;
    }
    cadre_frame_encode(&frame, again);
    FUZZ_CHECK(memcmp(header, again, sizeof(header)) == 0);
    FUZZ_CHECK(cadre_frame_compare(
                   &frame, 0, &frame.call, (size_t)frame.nbytes) == CADRE_OK);
    for (int i = 0; i < N_RECEIVES; i++) {
        (void)cadre_frame_compare(&frame, 0, &calls[i], payload_bytes(i));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    fuzz_input in = {data, nbytes};
    if (fuzz_byte(&in) % 4 == 0) {
        read_header(&in);
    } else {
        feed_transport(&in);
    }
    return 0;
}
