// SPDX-License-Identifier: Apache-2.0
//
// All ranks of a ring, driven by one thread in random order: the bits are those
// of the model whatever the order, and nobody ever waits for what cannot come.
// Chunks are tiny, so that a few elements are many rounds.

#include "collective/ring.h"

#include "base/alloc.h"
#include "base/random.h"
#include "collective/schedule.h"
#include "support/check.h"
#include "support/reference.h"
#include <stdlib.h>

enum { MAX_RANKS = 13, COUNT = 500 };

// One thread drives all ranks, so the thread sanitizer has little to see.
#if defined(__SANITIZE_THREAD__)
static const int rank_counts[] = {2, 3, 5};
#else
static const int rank_counts[] = {2, 3, 4, 5, 6, 7, 8, 13};
#endif
static const size_t chunk_sizes[] = {8, 40, 5000};

enum {
    N_RANK_COUNTS = sizeof(rank_counts) / sizeof(rank_counts[0]),
    N_CHUNK_SIZES = sizeof(chunk_sizes) / sizeof(chunk_sizes[0]),
};

typedef struct circle {
    int n;
    cadre_call call;
    size_t offsets[MAX_RANKS + 1];
    bool in_place;
    size_t chunk_bytes;
    char *inputs[MAX_RANKS];
    char *sends[MAX_RANKS];
    char *results[MAX_RANKS];
    void *memory[MAX_RANKS];
    cadre_ring rings[MAX_RANKS];
    cadre_transport *transports[MAX_RANKS];
} circle;

static size_t bytes_of(const circle *c)
{
    return cadre_dtype_bytes(c->call.dtype);
}

static void set_up_buffers(circle *c, int r)
{
    size_t nbytes = COUNT * bytes_of(c);
    c->inputs[r] = cadre_alloc(nbytes);
    c->results[r] = cadre_alloc(nbytes);
    assert_non_null(c->inputs[r]);
    assert_non_null(c->results[r]);
    reference_fill(c->call.dtype, (uint32_t)r, c->inputs[r], COUNT);
    bool gathers = c->call.operation == CADRE_OP_ALLGATHER;
    size_t at = gathers ? c->offsets[r] * bytes_of(c) : 0;
    c->sends[r] = c->inputs[r] + at;
    if (c->in_place) {
        memcpy(c->results[r] + at, c->sends[r], nbytes - at);
        c->sends[r] = c->results[r] + at;
    }
}

static void set_up_rank(circle *c, cadre_inproc_world *world, int r)
{
    set_up_buffers(c, r);
    c->rings[r] = (cadre_ring){
        .call = &c->call,
        .rank = r,
        .world_size = c->n,
        .send = c->sends[r],
        .recv = c->results[r],
        .offsets = c->offsets,
        .chunk_bytes = c->chunk_bytes,
    };
    c->memory[r] = cadre_alloc(cadre_ring_memory_bytes(&c->rings[r]));
    assert_non_null(c->memory[r]);
    CHECK_OK(cadre_inproc_open(world, r, &c->transports[r]));
}

// Moves one rank at a time, whose turn it is by chance, now once and now often:
// so that some run ahead of others as far as they can.
static void go_round(circle *c)
{
    bool done[MAX_RANKS] = {false};
    int n_done = 0;
    uint32_t words[4];
    for (uint64_t turn = 0; n_done < c->n; turn++) {
        assert_true(turn < 1000000); // else some wait for each other
        cadre_random_words(7, CADRE_STREAM_INITIAL, 0, turn, words);
        int r = (int)(words[0] % (unsigned)c->n);
        int n_moves = words[1] % 2 == 0 ? 1 : 30;
        for (int i = 0; i < n_moves && !done[r]; i++) {
            CHECK_OK(cadre_transport_progress(c->transports[r], 0));
            CHECK_OK(
                cadre_ring_advance(&c->rings[r], c->transports[r], &done[r]));
            n_done += done[r] ? 1 : 0;
        }
    }
}

static int owner_of(const circle *c, size_t i)
{
    int owner = 0;
    while (i >= c->offsets[owner + 1]) {
        owner++;
    }
    return owner;
}

static void check_rank(const circle *c, const char *wanted, int r)
{
    size_t first = 0;
    size_t end = COUNT;
    if (c->call.operation == CADRE_OP_REDUCE_SCATTER) {
        first = c->offsets[r];
        end = c->offsets[r + 1];
    }
    size_t differs = reference_difference(c->call.dtype, c->results[r],
        wanted + first * bytes_of(c), end - first);
    if (differs != end - first) {
        fail_msg("rank %d of %d: element %zu of operation %d, %s", r, c->n,
            first + differs, (int)c->call.operation,
            cadre_dtype_name(c->call.dtype));
    }
}

static char *make_wanted(const circle *c)
{
    char *wanted = cadre_alloc(COUNT * bytes_of(c));
    assert_non_null(wanted);
    const void *runs[MAX_RANKS];
    for (int r = 0; r < c->n; r++) {
        runs[r] = c->inputs[r];
    }
    for (size_t i = 0; i < COUNT; i++) {
        int owner = owner_of(c, i);
        if (c->call.operation == CADRE_OP_ALLGATHER) {
            size_t at = i * bytes_of(c);
            memcpy(wanted + at, c->inputs[owner] + at, bytes_of(c));
        } else {
            reference_reduce_ring(
                c->call.dtype, c->call.reduce_op, runs, c->n, owner, i, wanted);
        }
    }
    return wanted;
}

static void run(circle *c)
{
    cadre_inproc_world *world;
    CHECK_OK(cadre_inproc_world_create(c->n, &world));
    for (int r = 0; r < c->n; r++) {
        set_up_rank(c, world, r);
    }
    char *wanted = make_wanted(c);
    for (int r = 0; r < c->n; r++) {
        CHECK_OK(
            cadre_ring_begin(&c->rings[r], c->transports[r], c->memory[r]));
    }
    go_round(c);
    for (int r = 0; r < c->n; r++) {
        check_rank(c, wanted, r);
    }
    for (int r = 0; r < c->n; r++) {
        cadre_transport_close(c->transports[r]);
        cadre_free(c->memory[r]);
        cadre_free(c->inputs[r]);
        cadre_free(c->results[r]);
    }
    cadre_free(wanted);
    cadre_inproc_world_destroy(world);
}

// Parts of all sizes, empty ones among them.
static void cut_unevenly(circle *c)
{
    for (int r = 0; r < c->n; r++) {
        size_t count = r % 3 == 0 ? 0 : COUNT * (size_t)r / 200 + 3;
        c->offsets[r + 1] = c->offsets[r] + count;
    }
    assert_true(c->offsets[c->n - 1] <= COUNT);
    c->offsets[c->n] = COUNT;
}

static void run_operation(cadre_operation operation, cadre_dtype dtype)
{
    for (int i = 0; i < N_RANK_COUNTS * N_CHUNK_SIZES * 4; i++) {
        circle c = {
            .n = rank_counts[i / 4 % N_RANK_COUNTS],
            .call = {.operation = operation, .dtype = dtype, .root = -1},
            .in_place = i % 2 != 0,
            .chunk_bytes = chunk_sizes[i / 4 / N_RANK_COUNTS],
        };
        if (i % 4 < 2 || operation == CADRE_OP_ALLREDUCE) {
            cadre_split_evenly(COUNT, c.n, c.offsets);
        } else {
            cut_unevenly(&c);
        }
        run(&c);
    }
}

static void an_allreduce_has_the_rings_bits(void **state)
{
    (void)state;
    run_operation(CADRE_OP_ALLREDUCE, CADRE_F32);
    run_operation(CADRE_OP_ALLREDUCE, CADRE_BF16);
    run_operation(CADRE_OP_ALLREDUCE, CADRE_I8);
}

static void a_reduce_scatter_has_the_rings_bits(void **state)
{
    (void)state;
    run_operation(CADRE_OP_REDUCE_SCATTER, CADRE_F32);
    run_operation(CADRE_OP_REDUCE_SCATTER, CADRE_F16);
    run_operation(CADRE_OP_REDUCE_SCATTER, CADRE_F64);
}

static void an_allgather_gives_all_parts_to_all(void **state)
{
    (void)state;
    run_operation(CADRE_OP_ALLGATHER, CADRE_F32);
    run_operation(CADRE_OP_ALLGATHER, CADRE_F16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_allreduce_has_the_rings_bits),
        cmocka_unit_test(a_reduce_scatter_has_the_rings_bits),
        cmocka_unit_test(an_allgather_gives_all_parts_to_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
