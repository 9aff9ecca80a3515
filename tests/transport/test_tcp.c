// SPDX-License-Identifier: Apache-2.0
//
// What goes over a socket: rank 0 is the transport, rank 1 a plain socket that
// this test writes to and reads from.

#include "support/afar.h"
#include "support/check.h"
#include "support/ranks.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/socket.h"
#include "kernel/crc32c.h"
#include "transport/frame.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GENERATION = 99 };

static const cadre_call call = {
    .operation = CADRE_OP_CONTROL,
    .dtype = CADRE_U8,
    .root = -1,
    .sequence = 4,
    .count = 6,
};

typedef struct line {
    cadre_transport *t;
    int socket; // the other end
    int own;    // the transport's
} line;

static line open_line(void)
{
    int sockets[4];
    line l;
    connect_all(LINK_TCP, 2, sockets);
    l.own = sockets[1];
    l.socket = sockets[2];
    assert_int_equal(fcntl(l.socket, F_SETFL, 0), 0); // it may block
    CHECK_OK(cadre_tcp_open(0, 2, GENERATION, sockets, &l.t));
    return l;
}

static void close_line(line *l)
{
    cadre_transport_close(l->t);
    close(l->socket);
}

static void encode(uint64_t generation, int sender, size_t nbytes,
    uint8_t header[CADRE_FRAME_BYTES])
{
    cadre_frame frame = {
        .generation = generation,
        .call = call,
        .nbytes = nbytes,
        .sender = sender,
    };
    cadre_frame_encode(&frame, header);
}

static void put(const line *l, const void *data, size_t nbytes)
{
    assert_int_equal(
        send(l->socket, data, nbytes, MSG_NOSIGNAL), (ssize_t)nbytes);
}

static cadre_status drive(line *l, const cadre_transfer *x)
{
    cadre_deadline deadline = cadre_deadline_in_ms(5000);
    cadre_status status = CADRE_OK;
    while (status == CADRE_OK && !x->done && cadre_now_ns() < deadline) {
        status = cadre_transport_progress(l->t, deadline);
    }
    return status;
}

typedef struct reception {
    char memory[8];
    cadre_run run;
    cadre_transfer transfer;
} reception;

// Waits for the six bytes of the call.
static void receive_six(line *l, reception *r)
{
    strcpy(r->memory, "-------");
    r->run = (cadre_run){r->memory, 6};
    r->transfer = (cadre_transfer){.call = &call, .runs = &r->run, .n_runs = 1};
    CHECK_OK(cadre_transport_receive(l->t, 1, &r->transfer));
}

static void a_frame_may_come_byte_by_byte(void **state)
{
    (void)state;
    line l = open_line();
    reception r;
    uint8_t bytes[CADRE_FRAME_BYTES + 6];
    encode(GENERATION, 1, 6, bytes);
    memcpy(bytes + CADRE_FRAME_BYTES, "abcdef", 6);
    receive_six(&l, &r);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        assert_false(r.transfer.done);
        put(&l, &bytes[i], 1);
        CHECK_OK(cadre_transport_progress(l.t, cadre_deadline_in_ms(5000)));
    }
    assert_true(r.transfer.done);
    assert_string_equal(r.memory, "abcdef-");
    close_line(&l);
}

static void what_is_sent_is_header_and_payload(void **state)
{
    (void)state;
    line l = open_line();
    char first[] = "abc";
    char second[] = "def";
    cadre_run runs[] = {{first, 3}, {second, 3}};
    cadre_transfer x = {.call = &call, .runs = runs, .n_runs = 2};
    CHECK_OK(cadre_transport_send(l.t, 1, &x));
    CHECK_OK(drive(&l, &x));
    uint8_t wanted[CADRE_FRAME_BYTES + 6];
    uint8_t got[CADRE_FRAME_BYTES + 6];
    encode(GENERATION, 0, 6, wanted);
    memcpy(wanted + CADRE_FRAME_BYTES, "abcdef", 6);
    assert_int_equal(
        recv(l.socket, got, sizeof(got), MSG_WAITALL), sizeof(got));
    assert_memory_equal(got, wanted, sizeof(got));
    close_line(&l);
}

enum { CHECKED_BYTES = CADRE_FRAME_BYTES + 6 + CADRE_FRAME_CHECK_BYTES };

// The frame of the six bytes, with its checksum.
static void encode_checked(int sender, uint8_t bytes[CHECKED_BYTES])
{
    cadre_frame frame = {.generation = GENERATION,
        .call = call,
        .nbytes = 6,
        .sender = sender,
        .checked = true};
    cadre_frame_encode(&frame, bytes);
    memcpy(bytes + CADRE_FRAME_BYTES, "abcdef", 6);
    cadre_store_u32(
        bytes + CADRE_FRAME_BYTES + 6, cadre_crc32c_plain(0, "abcdef", 6));
}

static void a_checksum_follows_the_payload(void **state)
{
    (void)state;
    line l = open_line();
    char first[] = "abc";
    char second[] = "def";
    cadre_run runs[] = {{first, 3}, {second, 3}};
    cadre_transfer x = {.call = &call, .runs = runs, .n_runs = 2};
    cadre_transfer empty = {.call = &call};
    uint8_t wanted[CHECKED_BYTES + CADRE_FRAME_BYTES];
    uint8_t got[sizeof(wanted)];
    cadre_tcp_check_all(l.t);
    CHECK_OK(cadre_transport_send(l.t, 1, &x));
    CHECK_OK(cadre_transport_send(l.t, 1, &empty)); // which has none
    CHECK_OK(drive(&l, &empty));
    encode_checked(0, wanted);
    encode(GENERATION, 0, 0, wanted + CHECKED_BYTES);
    assert_int_equal(
        recv(l.socket, got, sizeof(got), MSG_WAITALL), sizeof(got));
    assert_memory_equal(got, wanted, sizeof(got));
    close_line(&l);
}

static void a_checked_frame_may_come_byte_by_byte(void **state)
{
    (void)state;
    line l = open_line(); // the sender decides, not the receiver
    uint8_t bytes[CHECKED_BYTES];
    encode_checked(1, bytes);
    for (int round = 0; round < 2; round++) {
        reception r;
        receive_six(&l, &r);
        for (size_t i = 0; i < sizeof(bytes); i++) {
            assert_false(r.transfer.done);
            put(&l, &bytes[i], 1);
            CHECK_OK(cadre_transport_progress(l.t, cadre_deadline_in_ms(5000)));
        }
        assert_true(r.transfer.done);
        assert_string_equal(r.memory, "abcdef-");
    }
    close_line(&l);
}

static void a_damaged_payload_ends_the_connection(void **state)
{
    (void)state;
    for (size_t bit = 8 * CADRE_FRAME_BYTES; bit < 8 * CHECKED_BYTES; bit++) {
        line l = open_line();
        reception r;
        uint8_t bytes[CHECKED_BYTES];
        encode_checked(1, bytes);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        receive_six(&l, &r);
        put(&l, bytes, sizeof(bytes));
        CHECK_FAILS(drive(&l, &r.transfer), CADRE_ERR_PEER_LOST,
            "the connection to rank 1 is unusable: a payload was damaged on "
            "its way");
        assert_int_equal(l.t->failed_peer, 1);
        assert_false(r.transfer.done);
        close_line(&l);
    }
}

static void a_peer_on_another_host_gets_checksums(void **state)
{
    (void)state;
    cadre_address address;
    char bound[CADRE_ADDRESS_BYTES];
    int listener;
    if (!find_afar(&address)) {
        print_message("this host has no address but the loopback's\n");
        skip();
    }
    CHECK_OK(cadre_socket_listen(&address, &listener, bound));
    assert_true(cadre_address_parse(bound, &address));
    line l = {.socket = connect_from_afar(&address)};
    struct pollfd p = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 5000), 1);
    int sockets[2] = {-1, cadre_socket_accept(listener)};
    close(listener);
    assert_int_equal(fcntl(l.socket, F_SETFL, 0), 0);
    CHECK_OK(cadre_tcp_open(0, 2, GENERATION, sockets, &l.t));
    char six[] = "abcdef";
    cadre_run run = {six, 6};
    cadre_transfer x = {.call = &call, .runs = &run, .n_runs = 1};
    uint8_t wanted[CHECKED_BYTES];
    uint8_t got[CHECKED_BYTES];
    CHECK_OK(cadre_transport_send(l.t, 1, &x));
    CHECK_OK(drive(&l, &x));
    encode_checked(0, wanted);
    assert_int_equal(
        recv(l.socket, got, sizeof(got), MSG_WAITALL), sizeof(got));
    assert_memory_equal(got, wanted, sizeof(got));
    close_line(&l);
}

// Each of these headers makes the connection unusable.
static void check_bad_header(const uint8_t *header, const char *words)
{
    line l = open_line();
    reception r;
    receive_six(&l, &r);
    put(&l, header, CADRE_FRAME_BYTES);
    put(&l, "abcdef", 6);
    CHECK_FAILS(drive(&l, &r.transfer), CADRE_ERR_PEER_LOST, words);
    assert_int_equal(l.t->failed_peer, 1);
    assert_string_equal(r.memory, "-------");
    close_line(&l);
}

static void what_is_no_frame_ends_the_connection(void **state)
{
    (void)state;
    uint8_t header[CADRE_FRAME_BYTES];
    memset(header, 0, sizeof(header));
    check_bad_header(header, "rank 1 is unusable: what came is no frame");
    encode(GENERATION, 1, 6, header);
    header[4] = 9;
    check_bad_header(header, "version 9");
    encode(GENERATION, 1, 6, header);
    header[63] ^= 1;
    check_bad_header(header, "damaged");
    encode(GENERATION - 1, 1, 6, header);
    check_bad_header(header, "frame of another group");
    encode(GENERATION, 0, 6, header);
    check_bad_header(header, "of another rank");
}

static void a_payload_of_another_size_is_not_taken(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 5, 7, SIZE_MAX};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        line l = open_line();
        reception r;
        uint8_t header[CADRE_FRAME_BYTES];
        encode(GENERATION, 1, sizes[i], header);
        receive_six(&l, &r);
        put(&l, header, sizeof(header));
        put(&l, "abcdef", 6);
        CHECK_FAILS(drive(&l, &r.transfer), CADRE_ERR_DESYNC,
            "in control #4 of 6 u8 rank 1 sends ");
        assert_string_equal(r.memory, "-------");
        close_line(&l);
    }
}

static void a_connection_may_be_cut_anywhere(void **state)
{
    (void)state;
    uint8_t bytes[CADRE_FRAME_BYTES + 6];
    encode(GENERATION, 1, 6, bytes);
    memcpy(bytes + CADRE_FRAME_BYTES, "abcdef", 6);
    for (size_t nbytes = 0; nbytes <= sizeof(bytes); nbytes++) {
        line l = open_line();
        reception r;
        receive_six(&l, &r);
        put(&l, bytes, nbytes);
        close(l.socket);
        if (nbytes < sizeof(bytes)) {
            CHECK_FAILS(drive(&l, &r.transfer), CADRE_ERR_PEER_LOST,
                "rank 1 has closed its connection");
        } else {
            // What came before the end is still delivered.
            CHECK_OK(drive(&l, &r.transfer));
            assert_string_equal(r.memory, "abcdef-");
            CHECK_OK(cadre_transport_progress(l.t, 0));
            receive_six(&l, &r);
            CHECK_FAILS(drive(&l, &r.transfer), CADRE_ERR_PEER_LOST, "rank 1");
        }
        cadre_transport_close(l.t);
    }
}

static void a_reset_is_a_loss_with_its_reason(void **state)
{
    (void)state;
    line l = open_line();
    reception r;
    receive_six(&l, &r);
    struct linger at_once = {.l_onoff = 1};
    assert_int_equal(
        setsockopt(l.socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)),
        0);
    close(l.socket);
    CHECK_FAILS(drive(&l, &r.transfer), CADRE_ERR_PEER_LOST,
        "the connection to rank 1 broke: ");
    cadre_transport_close(l.t);
}

static void a_peer_is_read_only_while_waited_for(void **state)
{
    (void)state;
    line l = open_line();
    uint8_t header[CADRE_FRAME_BYTES];
    encode(GENERATION, 1, 6, header);
    put(&l, header, sizeof(header));
    put(&l, "abcdef", 6);
    CHECK_OK(cadre_transport_progress(l.t, cadre_deadline_in_ms(2)));
    char waiting[100];
    assert_int_equal(
        recv(l.own, waiting, sizeof(waiting), MSG_PEEK), CADRE_FRAME_BYTES + 6);
    reception r;
    receive_six(&l, &r);
    CHECK_OK(drive(&l, &r.transfer));
    assert_string_equal(r.memory, "abcdef-");
    close_line(&l);
}

static void sending_to_nobody_raises_no_signal(void **state)
{
    (void)state;
    assert_true(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    line l = open_line();
    close(l.socket);
    char byte = 0;
    cadre_run run = {&byte, 1};
    cadre_transfer sends[100];
    cadre_status status = CADRE_OK;
    // The first may still go into the void.
    for (int i = 0; i < 100 && status == CADRE_OK; i++) {
        sends[i] = (cadre_transfer){.call = &call, .runs = &run, .n_runs = 1};
        status = cadre_transport_send(l.t, 1, &sends[i]);
        if (status == CADRE_OK) {
            status = cadre_transport_progress(l.t, cadre_deadline_in_ms(1));
        }
    }
    assert_int_equal(status, CADRE_ERR_PEER_LOST);
    cadre_transport_close(l.t);
}

static void sockets_are_taken_and_closed(void **state)
{
    (void)state;
    line l = open_line();
    close_line(&l);
    assert_int_equal(fcntl(l.own, F_GETFD), -1);
    assert_int_equal(errno, EBADF);

    // Also when opening fails.
    for (int n = 0; n < 2; n++) {
        int sockets[4];
        cadre_transport *t = NULL;
        connect_all(LINK_UNIX, 2, sockets);
        cadre_alloc_fail_after(n);
        cadre_status status = cadre_tcp_open(0, 2, 1, sockets, &t);
        cadre_alloc_fail_after(-1);
        assert_int_equal(status, CADRE_ERR_NO_MEMORY);
        assert_int_equal(fcntl(sockets[1], F_GETFD), -1);
        close(sockets[2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_may_come_byte_by_byte),
        cmocka_unit_test(what_is_sent_is_header_and_payload),
        cmocka_unit_test(a_checksum_follows_the_payload),
        cmocka_unit_test(a_checked_frame_may_come_byte_by_byte),
        cmocka_unit_test(a_damaged_payload_ends_the_connection),
        cmocka_unit_test(a_peer_on_another_host_gets_checksums),
        cmocka_unit_test(what_is_no_frame_ends_the_connection),
        cmocka_unit_test(a_payload_of_another_size_is_not_taken),
        cmocka_unit_test(a_connection_may_be_cut_anywhere),
        cmocka_unit_test(a_reset_is_a_loss_with_its_reason),
        cmocka_unit_test(a_peer_is_read_only_while_waited_for),
        cmocka_unit_test(sending_to_nobody_raises_no_signal),
        cmocka_unit_test(sockets_are_taken_and_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
