// SPDX-License-Identifier: Apache-2.0
//
// Collectives on memory of every kind, in arenas and not, where ranks share
// memory: the same bits as the reference, at the edges of turns and windows.

#include "support/check.h"
#include "support/ranks.h"
#include "support/reference.h"

#include "base/alloc.h"
#include "collective/turns.h"

enum { MAX_RANKS = 13, GUARD_BYTES = 64, GUARD = 0xa5, SMALL_COUNT = 700 };

// Where a rank has its buffers.
typedef enum memory_kind {
    ALL_IN_ARENAS,
    NONE_IN_ARENAS,
    ODD_RANKS_IN_ARENAS,
    SENDS_IN_ARENAS,
    RECEIVES_IN_ARENAS,
    ODD_ADDRESSES_IN_ARENAS,
    ODD_ADDRESSES,
    N_KINDS,
} memory_kind;

static bool is_in_arena(memory_kind kind, int rank, bool is_send)
{
    switch (kind) {
    case ALL_IN_ARENAS:
    case ODD_ADDRESSES_IN_ARENAS:
        return true;
    case ODD_RANKS_IN_ARENAS:
        return rank % 2 != 0;
    case SENDS_IN_ARENAS:
        return is_send;
    case RECEIVES_IN_ARENAS:
        return !is_send;
    default:
        return false;
    }
}

// A buffer with guards around it.
typedef struct buffer {
    char *memory;
    bool in_arena;
    char *data;
    size_t nbytes;
} buffer;

static buffer make_buffer(
    cadre_group *g, memory_kind kind, bool is_send, size_t nbytes)
{
    buffer b = {
        .in_arena = is_in_arena(kind, cadre_rank(g), is_send),
        .nbytes = nbytes,
    };
    size_t whole = nbytes + 2 * GUARD_BYTES;
    if (b.in_arena) {
        void *memory = NULL;
        RANK_OK(cadre_arena_alloc(g, whole, &memory));
        b.memory = memory;
    } else {
        b.memory = cadre_alloc(whole);
        RANK_CHECK(b.memory != NULL);
    }
    memset(b.memory, GUARD, whole);
    bool is_odd = kind == ODD_ADDRESSES || kind == ODD_ADDRESSES_IN_ARENAS;
    b.data = b.memory + (is_odd ? GUARD_BYTES / 2 + 1 : GUARD_BYTES);
    return b;
}

static void free_buffer(cadre_group *g, buffer b)
{
    for (char *at = b.memory; at < b.data; at++) {
        RANK_CHECK((unsigned char)*at == GUARD);
    }
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        RANK_CHECK((unsigned char)b.data[b.nbytes + i] == GUARD);
    }
    if (b.in_arena) {
        cadre_arena_free(g, b.memory);
    } else {
        cadre_free(b.memory);
    }
}

// What all ranks of a run share; only read by them.
typedef struct scene {
    cadre_dtype dtype;
    cadre_reduce_op op;
    size_t count;
    char *inputs[MAX_RANKS];
    char *sum;
    size_t counts[MAX_RANKS];
} scene;

static size_t offset_of(const scene *s, int rank)
{
    size_t offset = 0;
    for (int r = 0; r < rank; r++) {
        offset += s->counts[r];
    }
    return offset;
}

// Elements must be these; copied, since data may be at odd addresses.
static void check_elements(
    const scene *s, const char *data, const char *wanted, size_t count)
{
    char *copy = cadre_alloc(count * cadre_dtype_bytes(s->dtype));
    RANK_CHECK(copy != NULL);
    if (count > 0) {
        memcpy(copy, data, count * cadre_dtype_bytes(s->dtype));
    }
    RANK_CHECK(reference_difference(s->dtype, copy, wanted, count) == count);
    cadre_free(copy);
}

static void check_allreduce(
    cadre_group *g, const scene *s, memory_kind kind, bool in_place)
{
    size_t nbytes = s->count * cadre_dtype_bytes(s->dtype);
    const char *input = s->inputs[cadre_rank(g)];
    buffer recv = make_buffer(g, kind, false, nbytes);
    buffer send = in_place ? recv : make_buffer(g, kind, true, nbytes);
    memcpy(send.data, input, nbytes);
    RANK_OK(cadre_allreduce(
        g, send.data, recv.data, s->count, s->dtype, s->op, NULL));
    check_elements(s, recv.data, s->sum, s->count);
    free_buffer(g, recv);
    if (!in_place) {
        RANK_CHECK(memcmp(send.data, input, nbytes) == 0);
        free_buffer(g, send);
    }
}

static void check_reduce_scatter(
    cadre_group *g, const scene *s, memory_kind kind, bool in_place)
{
    size_t element_bytes = cadre_dtype_bytes(s->dtype);
    size_t nbytes = s->count * element_bytes;
    int rank = cadre_rank(g);
    const char *input = s->inputs[rank];
    size_t own = s->counts[rank];
    buffer send = make_buffer(g, kind, true, nbytes);
    buffer recv =
        in_place ? send : make_buffer(g, kind, false, own * element_bytes);
    memcpy(send.data, input, nbytes);
    RANK_OK(cadre_reduce_scatter(
        g, send.data, recv.data, s->counts, s->dtype, s->op, NULL));
    check_elements(
        s, recv.data, s->sum + offset_of(s, rank) * element_bytes, own);
    if (!in_place) {
        RANK_CHECK(memcmp(send.data, input, nbytes) == 0);
        free_buffer(g, recv);
    }
    free_buffer(g, send);
}

static void check_allgather(
    cadre_group *g, const scene *s, memory_kind kind, bool in_place)
{
    size_t element_bytes = cadre_dtype_bytes(s->dtype);
    int rank = cadre_rank(g);
    size_t own = offset_of(s, rank) * element_bytes;
    size_t own_bytes = s->counts[rank] * element_bytes;
    buffer recv = make_buffer(g, kind, false, s->count * element_bytes);
    buffer send = {.data = recv.data + own};
    if (!in_place) {
        send = make_buffer(g, kind, true, own_bytes);
    }
    memcpy(send.data, s->inputs[rank] + own, own_bytes);
    RANK_OK(
        cadre_allgather(g, send.data, recv.data, s->counts, s->dtype, NULL));
    for (int r = 0; r < cadre_world_size(g); r++) {
        size_t at = offset_of(s, r) * element_bytes;
        check_elements(s, recv.data + at, s->inputs[r] + at, s->counts[r]);
    }
    if (!in_place) {
        free_buffer(g, send);
    }
    free_buffer(g, recv);
}

static void check_broadcast(
    cadre_group *g, const scene *s, memory_kind kind, int root)
{
    size_t nbytes = s->count * cadre_dtype_bytes(s->dtype);
    buffer b = make_buffer(g, kind, false, nbytes);
    if (cadre_rank(g) == root) {
        memcpy(b.data, s->inputs[root], nbytes);
    }
    RANK_OK(cadre_broadcast(g, b.data, s->count, s->dtype, root, NULL));
    check_elements(s, b.data, s->inputs[root], s->count);
    free_buffer(g, b);
}

static void check_all_kinds(cadre_group *g, void *ctx)
{
    const scene *s = ctx;
    for (int i = 0; i < N_KINDS; i++) {
        memory_kind kind = (memory_kind)i;
        for (int in_place = 0; in_place < 2; in_place++) {
            check_allreduce(g, s, kind, in_place != 0);
            check_reduce_scatter(g, s, kind, in_place != 0);
            check_allgather(g, s, kind, in_place != 0);
        }
        check_broadcast(g, s, kind, cadre_world_size(g) - 1);
    }
}

static void run_scene(rank_link link, int n, scene *s)
{
    const void *runs[MAX_RANKS];
    size_t nbytes = s->count * cadre_dtype_bytes(s->dtype);
    for (int r = 0; r < n; r++) {
        s->inputs[r] = cadre_alloc(nbytes);
        assert_non_null(s->inputs[r]);
        reference_fill(s->dtype, (uint32_t)r, s->inputs[r], s->count);
        runs[r] = s->inputs[r];
    }
    s->sum = cadre_alloc(nbytes);
    assert_non_null(s->sum);
    for (size_t i = 0; i < s->count; i++) {
        reference_reduce(s->dtype, s->op, runs, n, i, s->sum);
    }
    run_as_threads(link, n, 0, check_all_kinds, s);
    cadre_free(s->sum);
    for (int r = 0; r < n; r++) {
        cadre_free(s->inputs[r]);
    }
}

// Parts of all sizes: the first has nothing, the last the most.
static void cut_unevenly(scene *s, int n)
{
    size_t left = s->count;
    for (int r = 0; r < n; r++) {
        size_t part = (size_t)r * s->count / (size_t)(n * n);
        s->counts[r] = r == n - 1 ? left : part;
        left -= s->counts[r];
    }
}

static void run_count(
    rank_link link, int n, cadre_dtype dtype, cadre_reduce_op op, size_t count)
{
    scene s = {.dtype = dtype, .op = op, .count = count};
    cut_unevenly(&s, n);
    run_scene(link, n, &s);
}

// Elements of a whole turn of an all-reduce.
static size_t turn_count(int n, cadre_dtype dtype)
{
    size_t given[MAX_RANKS + 1] = {0};
    size_t offsets[MAX_RANKS + 1];
    cadre_call call = {.operation = CADRE_OP_ALLREDUCE, .dtype = dtype};
    return cadre_turns_lay_out(&call, n, given, offsets).run_count * (size_t)n;
}

// What offers it.
static const rank_link links[] = {LINK_INPROC, LINK_SHM};
enum { N_SHARED_LINKS = sizeof(links) / sizeof(links[0]) };

static void run_edges(rank_link link)
{
    size_t turn = turn_count(2, CADRE_F32);
    const size_t counts[] = {0, 1, 15, 16, 17, turn - 1, turn, turn + 1,
        CADRE_WINDOW_TURNS * turn, CADRE_WINDOW_TURNS * turn + 1};
    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
        run_count(link, 2, CADRE_F32, CADRE_SUM, counts[k]);
    }
    turn = turn_count(5, CADRE_F32);
    run_count(link, 5, CADRE_F32, CADRE_SUM, turn - 1);
    run_count(
        link, 5, CADRE_F32, CADRE_SUM, (CADRE_WINDOW_TURNS + 1) * turn + 3);
}

static void every_kind_of_memory_at_the_edges_of_turns(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHARED_LINKS; i++) {
        run_edges(links[i]);
    }
}

static void run_types(rank_link link, int n)
{
    for (int i = 0; i < N_DTYPES; i++) {
        cadre_dtype dtype = (cadre_dtype)i;
        cadre_reduce_op op =
            reference_is_real(dtype) ? CADRE_MEAN : CADRE_PRODUCT;
        run_count(link, n, dtype, op, SMALL_COUNT);
    }
}

static void every_kind_of_memory_for_all_types(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHARED_LINKS; i++) {
        run_types(links[i], 3);
        run_types(links[i], 4);
        run_count(
            links[i], 3, CADRE_BF16, CADRE_SUM, turn_count(3, CADRE_BF16) + 5);
    }
    run_types(LINK_INPROC, 13);
}

// Works posted in a row over the same arena, while others lag behind.
static void post_in_a_row(cadre_group *g, void *ctx)
{
    (void)ctx;
    enum { N_WORKS = 40, COUNT = 3000 };
    void *memory = NULL;
    float *user = cadre_alloc_array(COUNT, sizeof(*user));
    RANK_OK(cadre_arena_alloc(g, COUNT * sizeof(float), &memory));
    RANK_CHECK(user != NULL);
    float *arena = memory;
    int rank = cadre_rank(g);
    for (int i = 0; i < COUNT; i++) {
        arena[i] = (float)(rank + 1);
        user[i] = (float)(rank + 1);
    }
    cadre_work *works[2 * N_WORKS];
    int n_posted = 0;
    float wanted = 0;
    for (int k = 0; k < N_WORKS / 2; k++) {
        RANK_OK(cadre_allreduce(
            g, arena, arena, COUNT, CADRE_F32, CADRE_MAX, &works[n_posted++]));
        RANK_OK(cadre_broadcast(g, arena, 1, CADRE_F32, k % cadre_world_size(g),
            &works[n_posted++]));
        RANK_OK(cadre_allreduce(g, user, user, COUNT - (size_t)k, CADRE_F32,
            CADRE_MEAN, &works[n_posted++]));
    }
    for (int k = n_posted - 1; k >= 0; k--) {
        RANK_OK(cadre_work_wait(works[k], 0));
    }
    wanted = (float)cadre_world_size(g);
    for (int i = 0; i < COUNT; i++) {
        RANK_CHECK(arena[i] == wanted);
        RANK_CHECK(user[i] == (wanted + 1) / 2);
    }
    cadre_free(user);
}

static void works_in_a_row_share_memory(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHARED_LINKS; i++) {
        for (int n = 2; n <= 8; n++) {
            run_as_threads(links[i], n, 0, post_in_a_row, NULL);
        }
    }
}

// What other ranks take from this one; the parts of an all-reduce are whole
// cache lines.
static void count_bytes(cadre_group *g, void *ctx)
{
    (void)ctx;
    enum { COUNT = 4 * 16 * 10 };
    float send[COUNT] = {0};
    float recv[COUNT];
    const size_t counts[4] = {100, 0, 300, 240};
    uint64_t n = 4;
    uint64_t own = counts[cadre_rank(g)];
    uint64_t wanted = 0;
    RANK_OK(cadre_allreduce(g, send, recv, COUNT, CADRE_F32, CADRE_SUM, NULL));
    wanted += 2 * (n - 1) * COUNT / n;
    RANK_OK(cadre_reduce_scatter(
        g, send, recv, counts, CADRE_F32, CADRE_SUM, NULL));
    wanted += COUNT - own;
    RANK_OK(cadre_allgather(g, send, recv, counts, CADRE_F32, NULL));
    wanted += (n - 1) * own;
    RANK_OK(cadre_broadcast(g, recv, COUNT, CADRE_F32, 2, NULL));
    wanted += cadre_rank(g) == 2 ? (n - 1) * COUNT : 0;
    RANK_OK(cadre_barrier(g, NULL));
    uint64_t payload = 0;
    uint64_t overhead = 0;
    cadre_group_sent(g, &payload, &overhead);
    RANK_CHECK(payload == wanted * sizeof(float));
    RANK_CHECK(overhead == 0);
    RANK_CHECK(strcmp(cadre_algorithm_name(g), "shared") == 0);
}

static void what_others_take_is_counted(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHARED_LINKS; i++) {
        run_as_threads(links[i], 4, 0, count_bytes, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_memory_at_the_edges_of_turns),
        cmocka_unit_test(every_kind_of_memory_for_all_types),
        cmocka_unit_test(works_in_a_row_share_memory),
        cmocka_unit_test(what_others_take_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
