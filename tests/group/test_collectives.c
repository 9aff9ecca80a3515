// SPDX-License-Identifier: Apache-2.0
//
// Every collective, on every kind of connection, number of ranks, type,
// operation and count around the edges, against the reference.  Bits are
// compared.

#include "support/check.h"
#include "support/ranks.h"
#include "support/reference.h"

#include "base/alloc.h"

enum {
    MAX_RANKS = 13,
    SMALL_COUNT = 1000,
    LARGE_COUNT = 65537, // in f32 only
    POSTED_COUNT = 3000,
    GUARD_BYTES = 64,
    GUARD = 0xa5,
};

// What more ranks could race about, fewer do; under the thread sanitizer each
// costs ten times as much.
#if defined(__SANITIZE_THREAD__)
static const int rank_counts[] = {1, 2, 3, 5};
#else
static const int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 13};
#endif
enum { N_RANK_COUNTS = sizeof(rank_counts) / sizeof(rank_counts[0]) };

// What each rank brings, of each type; the same in all runs.
static char *inputs[N_DTYPES][MAX_RANKS];

static size_t most_elements(cadre_dtype dtype)
{
    return dtype == CADRE_F32 ? LARGE_COUNT : SMALL_COUNT;
}

static int make_inputs(void **state)
{
    (void)state;
    for (int i = 0; i < N_DTYPES; i++) {
        cadre_dtype dtype = (cadre_dtype)i;
        size_t count = most_elements(dtype);
        for (int r = 0; r < MAX_RANKS; r++) {
            inputs[i][r] = cadre_alloc(count * cadre_dtype_bytes(dtype));
            assert_non_null(inputs[i][r]);
            reference_fill(dtype, (uint32_t)r, inputs[i][r], count);
        }
    }
    return 0;
}

static int free_inputs(void **state)
{
    (void)state;
    for (int i = 0; i < N_DTYPES; i++) {
        for (int r = 0; r < MAX_RANKS; r++) {
            cadre_free(inputs[i][r]);
        }
    }
    return 0;
}

// What all ranks of a run share; only read by them.
typedef struct matrix {
    cadre_dtype dtype;
    char *const *inputs;  // of each rank
    char *results[N_OPS]; // NULL where there is none
} matrix;

static void add_result(matrix *m, cadre_reduce_op op, int n, size_t count)
{
    const void *runs[MAX_RANKS];
    for (int r = 0; r < n; r++) {
        runs[r] = m->inputs[r];
    }
    m->results[op] = cadre_alloc(count * cadre_dtype_bytes(m->dtype));
    assert_non_null(m->results[op]);
    for (size_t i = 0; i < count; i++) {
        reference_reduce(m->dtype, op, runs, n, i, m->results[op]);
    }
}

static matrix make_matrix(cadre_dtype dtype)
{
    return (matrix){.dtype = dtype, .inputs = inputs[dtype]};
}

static void free_results(matrix *m)
{
    for (int op = 0; op < N_OPS; op++) {
        cadre_free(m->results[op]);
    }
}

// A result buffer with a guard behind it.
typedef struct buffer {
    char *data;
    size_t nbytes;
} buffer;

static buffer make_buffer(size_t nbytes)
{
    buffer b = {cadre_alloc(nbytes + GUARD_BYTES), nbytes};
    RANK_CHECK(b.data != NULL);
    memset(b.data, GUARD, nbytes + GUARD_BYTES);
    return b;
}

// The buffer's first elements must be these, and the guard untouched.
static void check_buffer(
    buffer b, cadre_dtype dtype, const char *wanted, size_t count)
{
    RANK_CHECK(reference_difference(dtype, b.data, wanted, count) == count);
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        RANK_CHECK((unsigned char)b.data[b.nbytes + i] == GUARD);
    }
    cadre_free(b.data);
}

static void check_allreduce(cadre_group *g, const matrix *m, cadre_reduce_op op,
    size_t count, bool in_place)
{
    size_t nbytes = count * cadre_dtype_bytes(m->dtype);
    const char *input = m->inputs[cadre_rank(g)];
    buffer recv = make_buffer(nbytes);
    if (in_place) {
        memcpy(recv.data, input, nbytes);
        input = recv.data;
    }
    RANK_OK(cadre_allreduce(g, input, recv.data, count, m->dtype, op, NULL));
    check_buffer(recv, m->dtype, m->results[op], count);
}

// Ways to cut count elements into parts.
enum { CUT_EVEN, CUT_LAST_HAS_ALL, CUT_GROWING, N_CUTS };

static void cut(int how, size_t count, int n, size_t counts[])
{
    size_t left = count;
    for (int r = 0; r < n; r++) {
        size_t part = 0;
        if (how == CUT_EVEN) {
            part = left / (size_t)(n - r);
        } else if (how == CUT_GROWING) {
            part = (size_t)r * count / (size_t)(n * n);
        }
        counts[r] = r == n - 1 ? left : part;
        left -= counts[r];
    }
}

static size_t offset_of(const size_t counts[], int rank)
{
    size_t offset = 0;
    for (int r = 0; r < rank; r++) {
        offset += counts[r];
    }
    return offset;
}

static void check_reduce_scatter(cadre_group *g, const matrix *m,
    cadre_reduce_op op, const size_t counts[], bool in_place)
{
    size_t element_bytes = cadre_dtype_bytes(m->dtype);
    int rank = cadre_rank(g);
    const char *input = m->inputs[rank];
    size_t count = offset_of(counts, cadre_world_size(g));
    buffer recv =
        make_buffer((in_place ? count : counts[rank]) * element_bytes);
    if (in_place) {
        memcpy(recv.data, input, count * element_bytes);
        input = recv.data;
    }
    RANK_OK(
        cadre_reduce_scatter(g, input, recv.data, counts, m->dtype, op, NULL));
    check_buffer(recv, m->dtype,
        m->results[op] + offset_of(counts, rank) * element_bytes, counts[rank]);
}

static void check_allgather(cadre_group *g, const matrix *m, size_t count,
    const size_t counts[], bool in_place)
{
    size_t element_bytes = cadre_dtype_bytes(m->dtype);
    int rank = cadre_rank(g);
    buffer wanted = make_buffer(count * element_bytes);
    for (int r = 0; r < cadre_world_size(g); r++) {
        size_t at = offset_of(counts, r) * element_bytes;
        memcpy(wanted.data + at, m->inputs[r] + at, counts[r] * element_bytes);
    }
    size_t own = offset_of(counts, rank) * element_bytes;
    const char *send = m->inputs[rank] + own;
    buffer recv = make_buffer(count * element_bytes);
    if (in_place) {
        memcpy(recv.data + own, send, counts[rank] * element_bytes);
        send = recv.data + own;
    }
    RANK_OK(cadre_allgather(g, send, recv.data, counts, m->dtype, NULL));
    check_buffer(recv, m->dtype, wanted.data, count);
    cadre_free(wanted.data);
}

static void check_broadcast(
    cadre_group *g, const matrix *m, size_t count, int root)
{
    size_t nbytes = count * cadre_dtype_bytes(m->dtype);
    buffer b = make_buffer(nbytes);
    if (cadre_rank(g) == root) {
        memcpy(b.data, m->inputs[root], nbytes);
    }
    RANK_OK(cadre_broadcast(g, b.data, count, m->dtype, root, NULL));
    check_buffer(b, m->dtype, m->inputs[root], count);
}

// The other operations differ from the sum in the owner's arithmetic alone, so
// a half of the ways to call them will do.
static void check_other_reductions(
    cadre_group *g, const matrix *m, size_t count)
{
    size_t counts[MAX_RANKS];
    cut(CUT_GROWING, count, cadre_world_size(g), counts);
    for (int i = CADRE_SUM + 1; i < N_OPS; i++) {
        cadre_reduce_op op = (cadre_reduce_op)i;
        if (m->results[op] != NULL) {
            check_allreduce(g, m, op, count, i % 2 == 0);
            check_reduce_scatter(g, m, op, counts, i % 2 != 0);
        }
    }
}

static void check_count(cadre_group *g, const matrix *m, size_t count)
{
    int n = cadre_world_size(g);
    size_t counts[MAX_RANKS];
    for (int in_place = 0; in_place < 2; in_place++) {
        check_allreduce(g, m, CADRE_SUM, count, in_place != 0);
        for (int how = 0; how < N_CUTS; how++) {
            cut(how, count, n, counts);
            check_reduce_scatter(g, m, CADRE_SUM, counts, in_place != 0);
            check_allgather(g, m, count, counts, in_place != 0);
        }
    }
    check_other_reductions(g, m, count);
    check_broadcast(g, m, count, 0);
    check_broadcast(g, m, count, n - 1);
    RANK_OK(cadre_barrier(g, NULL));
}

static void check_all_types(cadre_group *g, void *ctx)
{
    const matrix *matrices = ctx;
    size_t n = (size_t)cadre_world_size(g);
    const size_t counts[] = {0, 1, n - 1, n, n + 1, 255, 256, 257, SMALL_COUNT};
    for (int dtype = 0; dtype < N_DTYPES; dtype++) {
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            check_count(g, &matrices[dtype], counts[i]);
        }
    }
}

// Many blocks of the owner's arithmetic, and more than a socket takes at once.
static void check_large(cadre_group *g, void *ctx)
{
    const matrix *m = ctx;
    size_t counts[MAX_RANKS];
    cut(CUT_EVEN, LARGE_COUNT, cadre_world_size(g), counts);
    for (int in_place = 0; in_place < 2; in_place++) {
        check_allreduce(g, m, CADRE_SUM, LARGE_COUNT, in_place != 0);
        check_reduce_scatter(g, m, CADRE_SUM, counts, in_place != 0);
        check_allgather(g, m, LARGE_COUNT, counts, in_place != 0);
    }
    check_broadcast(g, m, LARGE_COUNT, 0);
}

static void run_all_types(rank_link link, int n)
{
    matrix matrices[N_DTYPES];
    for (int i = 0; i < N_DTYPES; i++) {
        matrices[i] = make_matrix((cadre_dtype)i);
        for (int op = 0; op < N_OPS; op++) {
            if (op != CADRE_MEAN || reference_is_real((cadre_dtype)i)) {
                add_result(&matrices[i], (cadre_reduce_op)op, n, SMALL_COUNT);
            }
        }
    }
    run_as_threads(link, n, 0, check_all_types, matrices);
    for (int i = 0; i < N_DTYPES; i++) {
        free_results(&matrices[i]);
    }
}

static void run_matrix(rank_link link)
{
    for (int i = 0; i < N_RANK_COUNTS; i++) {
        int n = rank_counts[i];
        run_all_types(link, n);
        matrix large = make_matrix(CADRE_F32);
        add_result(&large, CADRE_SUM, n, LARGE_COUNT);
        run_as_threads(link, n, 0, check_large, &large);
        free_results(&large);
    }
}

static void agrees_with_the_tree_inproc(void **state)
{
    (void)state;
    run_matrix(LINK_INPROC);
}

static void agrees_with_the_tree_over_shared_memory(void **state)
{
    (void)state;
    run_matrix(LINK_SHM);
}

static void agrees_with_the_tree_over_unix_sockets(void **state)
{
    (void)state;
    run_matrix(LINK_UNIX);
}

static void agrees_with_the_tree_over_tcp(void **state)
{
    (void)state;
    run_matrix(LINK_TCP);
}

static void agrees_with_the_tree_with_checksums(void **state)
{
    (void)state;
    run_all_types(LINK_CHECKED, 2);
    run_all_types(LINK_CHECKED, 5);
}

static void agrees_with_the_tree_as_processes(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) {
        matrix m = make_matrix(CADRE_F32);
        add_result(&m, CADRE_SUM, n, LARGE_COUNT);
        run_as_processes(LINK_UNIX, n, 0, check_large, &m);
        run_as_processes(LINK_SHM, n, 0, check_large, &m);
        free_results(&m);
    }
}

// Posts many works over different memory and waits for them out of order.
static void post_many(cadre_group *g, void *ctx)
{
    enum { N_WORKS = 24, COUNT = POSTED_COUNT };
    const matrix *m = ctx;
    size_t nbytes = COUNT * cadre_dtype_bytes(m->dtype);
    const char *input = m->inputs[cadre_rank(g)];
    for (int round = 0; round < 3; round++) {
        buffer recv[N_WORKS];
        cadre_work *works[N_WORKS];
        for (int i = 0; i < N_WORKS; i++) {
            recv[i] = make_buffer(nbytes);
            RANK_OK(cadre_allreduce(g, input, recv[i].data, COUNT - (size_t)i,
                m->dtype, CADRE_SUM, &works[i]));
        }
        // Far ones first: waiting for one carries out those before it.
        for (int i = N_WORKS - 1; i >= 0; i -= 2) {
            RANK_OK(cadre_work_wait(works[i], 0));
        }
        for (int i = 0; i < N_WORKS; i += 2) {
            bool done = false;
            while (!done) {
                RANK_OK(cadre_work_test(works[i], &done));
            }
            RANK_OK(cadre_work_wait(works[i], 0));
        }
        for (int i = 0; i < N_WORKS; i++) {
            check_buffer(
                recv[i], m->dtype, m->results[CADRE_SUM], COUNT - (size_t)i);
        }
    }
}

static void several_works_run_in_order(void **state)
{
    (void)state;
    for (int link = 0; link < N_LINKS; link++) {
        for (int n = 1; n <= 5; n++) {
            matrix m = make_matrix(CADRE_F32);
            add_result(&m, CADRE_SUM, n, POSTED_COUNT);
            run_as_threads((rank_link)link, n, 0, post_many, &m);
            free_results(&m);
        }
    }
}

// A reduce-scatter and the all-gather of its result, posted at once: works run
// one after the other, so the second may use what the first makes.
static void chain_works(cadre_group *g, void *ctx)
{
    enum { COUNT = 1000 };
    const matrix *m = ctx;
    size_t counts[MAX_RANKS] = {0};
    cut(CUT_EVEN, COUNT, cadre_world_size(g), counts);
    size_t own = offset_of(counts, cadre_rank(g)) * sizeof(float);
    buffer sum = make_buffer(COUNT * sizeof(float));
    cadre_work *first = NULL;
    cadre_work *second = NULL;
    RANK_OK(cadre_reduce_scatter(g, m->inputs[cadre_rank(g)], sum.data + own,
        counts, CADRE_F32, CADRE_SUM, &first));
    RANK_OK(cadre_allgather(
        g, sum.data + own, sum.data, counts, CADRE_F32, &second));
    RANK_OK(cadre_work_wait(second, 0));
    RANK_OK(cadre_work_wait(first, 0));
    check_buffer(sum, CADRE_F32, m->results[CADRE_SUM], COUNT);
}

static void a_work_may_use_what_the_one_before_it_makes(void **state)
{
    (void)state;
    for (int link = 0; link < N_LINKS; link++) {
        matrix m = make_matrix(CADRE_F32);
        add_result(&m, CADRE_SUM, 4, POSTED_COUNT);
        run_as_threads((rank_link)link, 4, 0, chain_works, &m);
        free_results(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_tree_inproc),
        cmocka_unit_test(agrees_with_the_tree_over_shared_memory),
        cmocka_unit_test(agrees_with_the_tree_over_unix_sockets),
        cmocka_unit_test(agrees_with_the_tree_over_tcp),
        cmocka_unit_test(agrees_with_the_tree_with_checksums),
        cmocka_unit_test(agrees_with_the_tree_as_processes),
        cmocka_unit_test(several_works_run_in_order),
        cmocka_unit_test(a_work_may_use_what_the_one_before_it_makes),
    };
    return cmocka_run_group_tests(tests, make_inputs, free_inputs);
}
