// SPDX-License-Identifier: Apache-2.0
//
// Every collective, on every kind of connection, number of ranks, type and
// count around the edges, against a naive reference that sums along the
// recursive definition of the tree (docs/numerics.md section 2).  Bits are
// compared.

#include "support/check.h"
#include "support/ranks.h"

#include "base/alloc.h"
#include "base/random.h"
#include <math.h>
#include <stdlib.h>

enum {
    MAX_RANKS = 13,
    SMALL_COUNT = 1000,
    LARGE_COUNT = 65537, // in f32 only
    GUARD_BYTES = 64,
    GUARD = 0xa5,
};

static const int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 13};
enum { N_RANK_COUNTS = sizeof(rank_counts) / sizeof(rank_counts[0]) };

// What all ranks of a run share; only read by them.
typedef struct matrix {
    cadre_dtype dtype;
    char *inputs[MAX_RANKS]; // of each rank
    char *sum;
} matrix;

// Values whose sum depends on the order, with zeros of both signs, subnormals
// and infinities among them.
static double real_value(uint32_t rank, uint32_t i)
{
    uint32_t words[4];
    cadre_random_words(1, CADRE_STREAM_INITIAL, rank, i, words);
    switch (i % 16) {
    case 3:
        return -0.0;
    case 5:
        return rank % 2 == 0 ? 0.0 : -0.0;
    case 7:
        return ldexp((double)(words[0] % 1000), -149);
    case 9:
        return rank == 1 && i % 64 == 9 ? HUGE_VAL : 1.0;
    default:
        return ldexp((double)(int32_t)words[0] * 0x1p-31, (int)(words[1] % 8));
    }
}

static void set_value(matrix *m, int rank, size_t i)
{
    uint32_t r = (uint32_t)rank;
    uint32_t words[4] = {0};
    switch (m->dtype) {
    case CADRE_F32:
        ((float *)(void *)m->inputs[rank])[i] =
            (float)real_value(r, (uint32_t)i);
        break;
    case CADRE_F64:
        ((double *)(void *)m->inputs[rank])[i] =
            real_value(r, (uint32_t)i) * (1.0 + 0x1p-40 * (double)i);
        break;
    case CADRE_I64:
    case CADRE_U8:
        cadre_random_words(2, CADRE_STREAM_INITIAL, r, i, words);
        memcpy(m->inputs[rank] + i * cadre_dtype_bytes(m->dtype), words,
            cadre_dtype_bytes(m->dtype));
        break;
    }
}

// The largest power of two below count, which is at least 2.
static int split_of(int count)
{
    int half = 1;
    while (2 * half < count) {
        half *= 2;
    }
    return half;
}

#define DEFINE_TREE_SUM(name, type)                                     \
    static type name(const matrix *m, int lo, int hi, size_t i)         \
    {                                                                   \
        if (hi - lo == 1) {                                             \
            return ((const type *)(const void *)m->inputs[lo])[i];      \
        }                                                               \
        int middle = lo + split_of(hi - lo);                            \
        return (type)(name(m, lo, middle, i) + name(m, middle, hi, i)); \
    }

DEFINE_TREE_SUM(tree_sum_f32, float)
DEFINE_TREE_SUM(tree_sum_f64, double)
DEFINE_TREE_SUM(tree_sum_i64, uint64_t)
DEFINE_TREE_SUM(tree_sum_u8, uint8_t)

static void set_sum(matrix *m, int n, size_t i)
{
    switch (m->dtype) {
    case CADRE_F32:
        ((float *)(void *)m->sum)[i] = tree_sum_f32(m, 0, n, i);
        break;
    case CADRE_F64:
        ((double *)(void *)m->sum)[i] = tree_sum_f64(m, 0, n, i);
        break;
    case CADRE_I64:
        ((uint64_t *)(void *)m->sum)[i] = tree_sum_i64(m, 0, n, i);
        break;
    case CADRE_U8:
        ((uint8_t *)m->sum)[i] = tree_sum_u8(m, 0, n, i);
        break;
    }
}

static void matrix_init(matrix *m, cadre_dtype dtype, int n)
{
    size_t count = dtype == CADRE_F32 ? LARGE_COUNT : SMALL_COUNT;
    m->dtype = dtype;
    m->sum = cadre_alloc(count * cadre_dtype_bytes(dtype));
    assert_non_null(m->sum);
    for (int r = 0; r < n; r++) {
        m->inputs[r] = cadre_alloc(count * cadre_dtype_bytes(dtype));
        assert_non_null(m->inputs[r]);
        for (size_t i = 0; i < count; i++) {
            set_value(m, r, i);
        }
    }
    for (size_t i = 0; i < count; i++) {
        set_sum(m, n, i);
    }
}

static void matrix_fini(matrix *m, int n)
{
    for (int r = 0; r < n; r++) {
        cadre_free(m->inputs[r]);
    }
    cadre_free(m->sum);
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

// The buffer's first bytes must be these, and the guard untouched.
static void check_buffer(buffer b, const char *wanted, size_t nbytes)
{
    RANK_CHECK(nbytes == 0 || memcmp(b.data, wanted, nbytes) == 0);
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        RANK_CHECK((unsigned char)b.data[b.nbytes + i] == GUARD);
    }
    cadre_free(b.data);
}

static void check_allreduce(
    cadre_group *g, const matrix *m, size_t count, bool in_place)
{
    size_t nbytes = count * cadre_dtype_bytes(m->dtype);
    const char *input = m->inputs[cadre_rank(g)];
    buffer recv = make_buffer(nbytes);
    if (in_place) {
        memcpy(recv.data, input, nbytes);
        input = recv.data;
    }
    RANK_OK(
        cadre_allreduce(g, input, recv.data, count, m->dtype, CADRE_SUM, NULL));
    check_buffer(recv, m->sum, nbytes);
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

static void check_reduce_scatter(cadre_group *g, const matrix *m, size_t count,
    const size_t counts[], bool in_place)
{
    size_t element_bytes = cadre_dtype_bytes(m->dtype);
    int rank = cadre_rank(g);
    const char *input = m->inputs[rank];
    buffer recv =
        make_buffer((in_place ? count : counts[rank]) * element_bytes);
    if (in_place) {
        memcpy(recv.data, input, count * element_bytes);
        input = recv.data;
    }
    RANK_OK(cadre_reduce_scatter(
        g, input, recv.data, counts, m->dtype, CADRE_SUM, NULL));
    check_buffer(recv, m->sum + offset_of(counts, rank) * element_bytes,
        counts[rank] * element_bytes);
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
    check_buffer(recv, wanted.data, count * element_bytes);
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
    check_buffer(b, m->inputs[root], nbytes);
}

static void check_count(cadre_group *g, const matrix *m, size_t count)
{
    int n = cadre_world_size(g);
    int n_cuts = count > SMALL_COUNT ? 1 : N_CUTS;
    size_t counts[MAX_RANKS];
    for (int in_place = 0; in_place < 2; in_place++) {
        check_allreduce(g, m, count, in_place != 0);
        for (int how = 0; how < n_cuts; how++) {
            cut(how, count, n, counts);
            check_reduce_scatter(g, m, count, counts, in_place != 0);
            check_allgather(g, m, count, counts, in_place != 0);
        }
    }
    check_broadcast(g, m, count, 0);
    check_broadcast(g, m, count, n - 1);
    RANK_OK(cadre_barrier(g, NULL));
}

static void check_all_counts(cadre_group *g, void *ctx)
{
    const matrix *m = ctx;
    size_t n = (size_t)cadre_world_size(g);
    const size_t counts[] = {0, 1, n - 1, n, n + 1, 255, 256, 257, SMALL_COUNT};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        check_count(g, m, counts[i]);
    }
    if (m->dtype == CADRE_F32) {
        check_count(g, m, LARGE_COUNT);
    }
}

static void run_matrix(rank_link link, cadre_dtype dtype)
{
    for (int i = 0; i < N_RANK_COUNTS; i++) {
        int n = rank_counts[i];
        matrix m;
        matrix_init(&m, dtype, n);
        run_as_threads(link, n, 0, check_all_counts, &m);
        matrix_fini(&m, n);
    }
}

static const cadre_dtype dtypes[] = {CADRE_F32, CADRE_F64, CADRE_I64, CADRE_U8};
enum { N_DTYPES = sizeof(dtypes) / sizeof(dtypes[0]) };

static void agrees_with_the_tree_inproc(void **state)
{
    (void)state;
    for (int i = 0; i < N_DTYPES; i++) {
        run_matrix(LINK_INPROC, dtypes[i]);
    }
}

static void agrees_with_the_tree_over_unix_sockets(void **state)
{
    (void)state;
    for (int i = 0; i < N_DTYPES; i++) {
        run_matrix(LINK_UNIX, dtypes[i]);
    }
}

static void agrees_with_the_tree_over_tcp(void **state)
{
    (void)state;
    run_matrix(LINK_TCP, CADRE_F32);
    run_matrix(LINK_TCP, CADRE_I64);
    run_matrix(LINK_CHECKED, CADRE_F32);
}

static void agrees_with_the_tree_as_processes(void **state)
{
    (void)state;
    for (int n = 1; n <= 4; n++) {
        matrix m;
        matrix_init(&m, CADRE_F32, n);
        run_as_processes(n, 0, check_all_counts, &m);
        matrix_fini(&m, n);
    }
}

// Posts many works over different memory and waits for them out of order.
static void post_many(cadre_group *g, void *ctx)
{
    enum { N_WORKS = 24, COUNT = 3000 };
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
            check_buffer(recv[i], m->sum,
                (COUNT - (size_t)i) * cadre_dtype_bytes(m->dtype));
        }
    }
}

static void several_works_run_in_order(void **state)
{
    (void)state;
    for (int link = 0; link < N_LINKS; link++) {
        for (int n = 1; n <= 5; n++) {
            matrix m;
            matrix_init(&m, CADRE_F32, n);
            run_as_threads((rank_link)link, n, 0, post_many, &m);
            matrix_fini(&m, n);
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
    check_buffer(sum, m->sum, COUNT * sizeof(float));
}

static void a_work_may_use_what_the_one_before_it_makes(void **state)
{
    (void)state;
    for (int link = 0; link < N_LINKS; link++) {
        matrix m;
        matrix_init(&m, CADRE_F32, 4);
        run_as_threads((rank_link)link, 4, 0, chain_works, &m);
        matrix_fini(&m, 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_tree_inproc),
        cmocka_unit_test(agrees_with_the_tree_over_unix_sockets),
        cmocka_unit_test(agrees_with_the_tree_over_tcp),
        cmocka_unit_test(agrees_with_the_tree_as_processes),
        cmocka_unit_test(several_works_run_in_order),
        cmocka_unit_test(a_work_may_use_what_the_one_before_it_makes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
