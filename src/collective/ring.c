// SPDX-License-Identifier: Apache-2.0
//
// A frame has a number k, which says its round, its step and its chunk.  In step
// s rank r sends a chunk of part r - 1 - s and receives one of part r - 2 - s,
// modulo n.  Steps 0 to n - 2 scatter: what is received is a sum over the ranks
// from the part's owner on, and goes on with this rank's elements added; the
// part that comes in step n - 2 is this rank's own, and is finished.  Steps n - 1
// to 2 n - 3 gather.  What frame k brings leaves as frame k + window.
//
// That no two ranks ever wait for each other: whatever frame k waits for has a
// lower number, on whichever rank.  A receive needs the slot of the send that is
// `window` before it, so there are twice as many slots.

#include "collective/ring.h"

#include "base/alloc.h"
#include "base/check.h"
#include "kernel/narrow.h"
#include "kernel/reduce.h"
#include <string.h>

enum {
    // Chunks on their way at once: one is received while one is summed, and
    // the others cover for the time that ranks sleep.
    MAX_WINDOW = 4,
    // A few blocks fit into 32 KiB, the smallest innermost cache in use.
    BLOCK_BYTES = 4096,
};

// Elements of one part, and where they begin in the whole vector.
typedef struct span {
    size_t offset;
    size_t count;
} span;

// The place of a frame in the schedule.
typedef struct frame {
    uint64_t round;
    int step;
    size_t chunk; // of the round
} frame;

bool cadre_ring_is_defined(cadre_operation operation)
{
    return operation == CADRE_OP_ALLREDUCE ||
           operation == CADRE_OP_REDUCE_SCATTER ||
           operation == CADRE_OP_ALLGATHER;
}

static bool reduces(const cadre_ring *r)
{
    return r->call->operation != CADRE_OP_ALLGATHER;
}

static size_t element_bytes(const cadre_ring *r)
{
    return cadre_dtype_bytes(r->call->dtype);
}

// In which elements are summed, and travel until they are.
static cadre_dtype accumulator(const cadre_ring *r)
{
    return cadre_accumulator(r->call->dtype);
}

static bool is_widened(const cadre_ring *r)
{
    return accumulator(r) != r->call->dtype;
}

static size_t part_count(const cadre_ring *r, int part)
{
    return r->offsets[part + 1] - r->offsets[part];
}

// --- the schedule ---

static void lay_out_frames(cadre_ring *r)
{
    size_t longest = 0;
    for (int part = 0; part < r->world_size; part++) {
        size_t count = part_count(r, part);
        longest = count > longest ? count : longest;
    }
    r->chunk = r->chunk_bytes / cadre_dtype_bytes(accumulator(r));
    // Without elements there still is a frame in every step, which carries the
    // call all the way round.
    size_t n_chunks = longest == 0 ? 1 : (longest - 1) / r->chunk + 1;
    r->window = n_chunks < MAX_WINDOW ? n_chunks : MAX_WINDOW;
    if (n_chunks == 1) {
        r->chunk = longest;
    }
    size_t n_rounds = (n_chunks - 1) / r->window + 1;

    bool scatters = reduces(r);
    bool gathers = r->call->operation != CADRE_OP_REDUCE_SCATTER;
    r->first_step = scatters ? 0 : r->world_size - 1;
    r->end_step = (gathers ? 2 : 1) * (r->world_size - 1);
    r->n_frames = (uint64_t)n_rounds * (unsigned)(r->end_step - r->first_step) *
                  r->window;
}

static frame frame_of(const cadre_ring *r, uint64_t k)
{
    unsigned n_steps = (unsigned)(r->end_step - r->first_step);
    return (frame){
        .round = k / r->window / n_steps,
        .step = r->first_step + (int)(k / r->window % n_steps),
        .chunk = (size_t)(k % r->window),
    };
}

// The chunk that is in a frame of `rank`'s sends.
static span span_of(const cadre_ring *r, frame f, int rank)
{
    int n = r->world_size;
    int part = (rank - 1 - f.step + 2 * n) % n;
    size_t count = part_count(r, part);
    size_t at = ((size_t)f.round * r->window + f.chunk) * r->chunk;
    at = at < count ? at : count;
    size_t left = count - at;
    return (span){
        .offset = r->offsets[part] + at,
        .count = left < r->chunk ? left : r->chunk,
    };
}

static int rank_before(const cadre_ring *r)
{
    return (r->rank + r->world_size - 1) % r->world_size;
}

static int rank_after(const cadre_ring *r)
{
    return (r->rank + 1) % r->world_size;
}

static bool is_scattering(const cadre_ring *r, frame f)
{
    return f.step < r->world_size - 1;
}

// --- memory ---

static size_t n_slots(const cadre_ring *r)
{
    return 2 * r->window;
}

static size_t rounded_up(size_t nbytes)
{
    return (nbytes + CADRE_CACHE_LINE - 1) / CADRE_CACHE_LINE *
           CADRE_CACHE_LINE;
}

static size_t slot_bytes(const cadre_ring *r)
{
    return rounded_up(r->chunk * cadre_dtype_bytes(accumulator(r)));
}

// Takes the next nbytes of the memory; with NULL only counts them.
static void *take_memory(char *memory, size_t *used, size_t nbytes)
{
    void *taken = memory == NULL ? NULL : memory + *used;
    *used += rounded_up(nbytes);
    return taken;
}

static size_t lay_out_memory(cadre_ring *r, char *memory)
{
    size_t n = n_slots(r);
    size_t used = 0;
    r->receives = take_memory(memory, &used, n * sizeof(r->receives[0]));
    r->sends = take_memory(memory, &used, n * sizeof(r->sends[0]));
    r->receive_runs =
        take_memory(memory, &used, n * sizeof(r->receive_runs[0]));
    r->send_runs = take_memory(memory, &used, n * sizeof(r->send_runs[0]));
    if (reduces(r)) {
        r->slots = take_memory(memory, &used, n * slot_bytes(r));
        r->block = take_memory(memory, &used, BLOCK_BYTES);
    }
    if (is_widened(r)) {
        r->wide = take_memory(memory, &used, BLOCK_BYTES);
    }
    if (r->staged) {
        r->stages = take_memory(memory, &used, n * slot_bytes(r));
    }
    return used;
}

// A result that lands in the front of what was sent would overwrite elements
// that are still on their way.
static bool must_stage(const cadre_ring *r)
{
    bool lands_elsewhere =
        r->call->operation == CADRE_OP_REDUCE_SCATTER && r->recv == r->send;
    return reduces(r) && (is_widened(r) || lands_elsewhere);
}

static void plan(cadre_ring *r)
{
    r->staged = must_stage(r);
    lay_out_frames(r);
}

size_t cadre_ring_memory_bytes(const cadre_ring *ring)
{
    cadre_ring planned = *ring;
    plan(&planned);
    return lay_out_memory(&planned, NULL);
}

// --- elements ---

static const char *own_elements(const cadre_ring *r, size_t offset)
{
    return (const char *)r->send + offset * element_bytes(r);
}

// Where an element of the result lies; a reduce-scatter has this rank's part
// alone.
static char *result_at(const cadre_ring *r, size_t offset)
{
    bool at_front = r->call->operation == CADRE_OP_REDUCE_SCATTER;
    size_t first = at_front ? r->offsets[r->rank] : 0;
    return (char *)r->recv + (offset - first) * element_bytes(r);
}

static size_t block_count(const cadre_ring *r)
{
    return BLOCK_BYTES / cadre_dtype_bytes(accumulator(r));
}

// A block of own elements, aligned and in the type they are summed in.
static const void *own_block(const cadre_ring *r, size_t offset, size_t count)
{
    memcpy(r->block, own_elements(r, offset), count * element_bytes(r));
    if (!is_widened(r)) {
        return r->block;
    }
    cadre_widen(r->call->dtype, (void *)r->wide, (const void *)r->block, count);
    return r->wide;
}

// Makes the result of a sum over all ranks and puts it where it belongs.
static void finish_block(
    const cadre_ring *r, size_t offset, char *sum, size_t count)
{
    const void *result = sum;
    cadre_reduce_finish(
        accumulator(r), r->call->reduce_op, sum, count, r->world_size);
    if (is_widened(r)) {
        cadre_narrow(
            r->call->dtype, (void *)r->block, (const void *)sum, count);
        result = r->block;
    }
    memcpy(result_at(r, offset), result, count * element_bytes(r));
}

// Adds own elements to the sum over the ranks before; own ones come second.
static void add_own(const cadre_ring *r, span s, char *slot, bool is_last)
{
    cadre_dtype dtype = accumulator(r);
    size_t most = block_count(r);
    for (size_t at = 0; at < s.count; at += most) {
        size_t count = s.count - at < most ? s.count - at : most;
        char *sum = slot + at * cadre_dtype_bytes(dtype);
        const void *own = own_block(r, s.offset + at, count);
        cadre_reduce(dtype, r->call->reduce_op, sum, own, count);
        if (is_last) {
            finish_block(r, s.offset + at, sum, count);
        }
    }
}

static void stage_own(const cadre_ring *r, span s, char *stage)
{
    size_t bytes = cadre_dtype_bytes(accumulator(r));
    size_t most = block_count(r);
    for (size_t at = 0; at < s.count; at += most) {
        size_t count = s.count - at < most ? s.count - at : most;
        memcpy(stage + at * bytes, own_block(r, s.offset + at, count),
            count * bytes);
    }
}

// --- frames ---

static char *slot_of(const cadre_ring *r, uint64_t k)
{
    return r->slots + k % n_slots(r) * slot_bytes(r);
}

static cadre_run gathered_run(const cadre_ring *r, span s)
{
    return s.count == 0 ? (cadre_run){0}
                        : (cadre_run){result_at(r, s.offset),
                              s.count * element_bytes(r)};
}

static cadre_run sum_run(const cadre_ring *r, span s, char *sums)
{
    return (cadre_run){sums, s.count * cadre_dtype_bytes(accumulator(r))};
}

// The transport only reads the runs of a send, but shares their type with those
// of a receive.
static void *readable(const void *memory)
{
    union {
        const void *in;
        void *out;
    } pointer = {.in = memory};
    return pointer.out;
}

static cadre_run send_run(const cadre_ring *r, uint64_t k)
{
    frame f = frame_of(r, k);
    span s = span_of(r, f, r->rank);
    if (!is_scattering(r, f)) {
        return gathered_run(r, s);
    }
    if (f.step > 0) {
        return sum_run(r, s, slot_of(r, k - r->window));
    }
    if (!r->staged) {
        return s.count == 0
                   ? (cadre_run){0}
                   : sum_run(r, s, readable(own_elements(r, s.offset)));
    }
    char *stage = r->stages + k % n_slots(r) * slot_bytes(r);
    stage_own(r, s, stage);
    return sum_run(r, s, stage);
}

// A frame may leave when the one it rests on has been taken.
static bool may_send(const cadre_ring *r)
{
    uint64_t k = r->n_sent;
    if (k == r->n_frames || k - r->n_delivered == n_slots(r)) {
        return false;
    }
    return frame_of(r, k).step == r->first_step || r->n_taken + r->window > k;
}

static cadre_status send_next(cadre_ring *r, cadre_transport *t)
{
    size_t i = r->n_sent % n_slots(r);
    r->send_runs[i] = send_run(r, r->n_sent);
    r->sends[i] = (cadre_transfer){
        .call = r->call, .runs = &r->send_runs[i], .n_runs = 1};
    r->n_sent++;
    return cadre_transport_send(t, rank_after(r), &r->sends[i]);
}

// A receive may be posted when what its slot held before has left.  Then own
// elements of its round have been sent or staged as well, so that a result may
// land where they were: a scatter in place relies on that.
static bool may_receive(const cadre_ring *r)
{
    uint64_t k = r->n_posted;
    return k < r->n_frames && k - r->n_taken < n_slots(r) &&
           (k < n_slots(r) || r->n_delivered + r->window > k);
}

static cadre_status receive_next(cadre_ring *r, cadre_transport *t)
{
    uint64_t k = r->n_posted;
    size_t i = k % n_slots(r);
    frame f = frame_of(r, k);
    span s = span_of(r, f, rank_before(r));
    r->receive_runs[i] =
        is_scattering(r, f) ? sum_run(r, s, slot_of(r, k)) : gathered_run(r, s);
    r->receives[i] = (cadre_transfer){
        .call = r->call, .runs = &r->receive_runs[i], .n_runs = 1};
    r->n_posted++;
    return cadre_transport_receive(t, rank_before(r), &r->receives[i]);
}

static bool may_take(const cadre_ring *r)
{
    return r->n_taken < r->n_posted &&
           r->receives[r->n_taken % n_slots(r)].done;
}

static void take_next(cadre_ring *r)
{
    frame f = frame_of(r, r->n_taken);
    if (is_scattering(r, f)) {
        bool is_last = f.step == r->world_size - 2;
        add_own(
            r, span_of(r, f, rank_before(r)), slot_of(r, r->n_taken), is_last);
    }
    r->n_taken++;
}

// Does one thing that can be done; false if there is none.
static cadre_status move_on(cadre_ring *r, cadre_transport *t, bool *moved)
{
    *moved = true;
    if (r->n_delivered < r->n_sent &&
        r->sends[r->n_delivered % n_slots(r)].done) {
        r->n_delivered++;
        return CADRE_OK;
    }
    if (may_receive(r)) {
        return receive_next(r, t);
    }
    if (may_send(r)) {
        return send_next(r, t);
    }
    if (may_take(r)) {
        take_next(r);
        return CADRE_OK;
    }
    *moved = false;
    return CADRE_OK;
}

cadre_status cadre_ring_begin(
    cadre_ring *ring, cadre_transport *t, void *memory)
{
    CADRE_ASSERT(ring->world_size > 1);
    plan(ring);
    (void)lay_out_memory(ring, memory);
    ring->n_posted = 0;
    ring->n_taken = 0;
    ring->n_sent = 0;
    ring->n_delivered = 0;
    if (!reduces(ring)) {
        size_t offset = ring->offsets[ring->rank];
        size_t nbytes = part_count(ring, ring->rank) * element_bytes(ring);
        if (nbytes > 0 && result_at(ring, offset) != ring->send) {
            memcpy(result_at(ring, offset), ring->send, nbytes);
        }
    }
    bool done;
    return cadre_ring_advance(ring, t, &done);
}

cadre_status cadre_ring_advance(
    cadre_ring *ring, cadre_transport *t, bool *done)
{
    bool moved;
    do {
        CADRE_TRY(move_on(ring, t, &moved));
    } while (moved);
    *done =
        ring->n_taken == ring->n_frames && ring->n_delivered == ring->n_frames;
    return CADRE_OK;
}

bool cadre_ring_waits_for(const cadre_ring *ring, int peer)
{
    return (peer == rank_before(ring) && ring->n_taken < ring->n_frames) ||
           (peer == rank_after(ring) && ring->n_delivered < ring->n_sent);
}
