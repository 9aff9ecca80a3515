// SPDX-License-Identifier: Apache-2.0
//
// Groups of order ring: on every kind of connection, number of ranks, type,
// operation and count around the edges, results have the bits of the model, the
// same ones on all ranks; and they are as near to the true sum as is promised.

#include "support/check.h"
#include "support/ranks.h"
#include "support/reference.h"

#include "base/alloc.h"
#include "collective/schedule.h"
#include <math.h>
#include <stdio.h>

enum {
    MAX_RANKS = 13,
    SMALL_COUNT = 300,
    // Several rounds of chunks between two ranks, and of unequal length.
    LARGE_COUNT = 700001,
};

// What more ranks could race about, fewer do; under the thread sanitizer each
// costs ten times as much.
#if defined(__SANITIZE_THREAD__)
static const int rank_counts[] = {1, 2, 3, 5};
#else
static const int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 13};
#endif
enum { N_RANK_COUNTS = sizeof(rank_counts) / sizeof(rank_counts[0]) };

typedef void (*filler)(
    cadre_dtype dtype, uint32_t rank, void *run, size_t count);

// What all ranks of a run share; only read by them.
typedef struct table {
    cadre_dtype dtype;
    size_t count;
    char *inputs[MAX_RANKS];
    char *results[N_OPS][MAX_RANKS]; // by owner; NULL where there is none
} table;

static void make_inputs(table *t, int n, filler fill)
{
    for (int r = 0; r < n; r++) {
        t->inputs[r] = cadre_alloc(t->count * cadre_dtype_bytes(t->dtype));
        assert_non_null(t->inputs[r]);
        fill(t->dtype, (uint32_t)r, t->inputs[r], t->count);
    }
}

static void make_results(table *t, cadre_reduce_op op, int n)
{
    const void *runs[MAX_RANKS];
    for (int r = 0; r < n; r++) {
        runs[r] = t->inputs[r];
    }
    for (int owner = 0; owner < n; owner++) {
        char *result = cadre_alloc(t->count * cadre_dtype_bytes(t->dtype));
        assert_non_null(result);
        for (size_t i = 0; i < t->count; i++) {
            reference_reduce_ring(t->dtype, op, runs, n, owner, i, result);
        }
        t->results[op][owner] = result;
    }
}

static void free_table(table *t)
{
    for (int r = 0; r < MAX_RANKS; r++) {
        cadre_free(t->inputs[r]);
        for (int op = 0; op < N_OPS; op++) {
            cadre_free(t->results[op][r]);
        }
    }
}

// The elements of `part`, reduced by its owner, must be these.
static void check_part(const table *t, cadre_reduce_op op, int owner,
    const char *part, size_t offset, size_t count)
{
    const char *wanted =
        t->results[op][owner] + offset * cadre_dtype_bytes(t->dtype);
    RANK_CHECK(reference_difference(t->dtype, part, wanted, count) == count);
}

// A copy of this rank's input where it is to be reduced in place.
static char *make_buffer(cadre_group *g, const table *t)
{
    size_t nbytes = t->count * cadre_dtype_bytes(t->dtype);
    char *buffer = cadre_alloc(nbytes);
    RANK_CHECK(buffer != NULL);
    memcpy(buffer, t->inputs[cadre_rank(g)], nbytes);
    return buffer;
}

static void check_allreduce(cadre_group *g, const table *t, cadre_reduce_op op,
    size_t count, bool in_place)
{
    int n = cadre_world_size(g);
    size_t offsets[MAX_RANKS + 1];
    char *buffer = make_buffer(g, t);
    const char *send = in_place ? buffer : t->inputs[cadre_rank(g)];
    RANK_OK(cadre_allreduce(g, send, buffer, count, t->dtype, op, NULL));
    cadre_split_evenly(count, n, offsets);
    for (int r = 0; r < n; r++) {
        check_part(t, op, r, buffer + offsets[r] * cadre_dtype_bytes(t->dtype),
            offsets[r], offsets[r + 1] - offsets[r]);
    }
    cadre_free(buffer);
}

// Parts that grow with the rank; the first is empty, the last has the rest.
static void cut(size_t count, int n, size_t counts[], size_t offsets[])
{
    offsets[0] = 0;
    for (int r = 0; r < n; r++) {
        size_t part = (size_t)r * count / (size_t)(n * n);
        counts[r] = r == n - 1 ? count - offsets[r] : part;
        offsets[r + 1] = offsets[r] + counts[r];
    }
}

static void check_reduce_scatter(cadre_group *g, const table *t,
    cadre_reduce_op op, size_t count, bool in_place)
{
    int rank = cadre_rank(g);
    size_t counts[MAX_RANKS];
    size_t offsets[MAX_RANKS + 1];
    cut(count, cadre_world_size(g), counts, offsets);
    char *buffer = make_buffer(g, t);
    const char *send = in_place ? buffer : t->inputs[rank];
    RANK_OK(cadre_reduce_scatter(g, send, buffer, counts, t->dtype, op, NULL));
    check_part(t, op, rank, buffer, offsets[rank], counts[rank]);
    cadre_free(buffer);
}

static void check_allgather(
    cadre_group *g, const table *t, size_t count, bool in_place)
{
    int n = cadre_world_size(g);
    size_t element_bytes = cadre_dtype_bytes(t->dtype);
    size_t counts[MAX_RANKS];
    size_t offsets[MAX_RANKS + 1];
    cut(count, n, counts, offsets);
    char *buffer = make_buffer(g, t);
    size_t own = offsets[cadre_rank(g)] * element_bytes;
    const char *send = in_place ? buffer + own : t->inputs[cadre_rank(g)] + own;
    RANK_OK(cadre_allgather(g, send, buffer, counts, t->dtype, NULL));
    for (int r = 0; r < n; r++) {
        size_t at = offsets[r] * element_bytes;
        RANK_CHECK(memcmp(buffer + at, t->inputs[r] + at,
                       counts[r] * element_bytes) == 0);
    }
    cadre_free(buffer);
}

static void check_table(cadre_group *g, const table *t)
{
    size_t n = (size_t)cadre_world_size(g);
    const size_t counts[] = {0, 1, n - 1, n, n + 1, 255, t->count};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        for (int op = 0; op < N_OPS; op++) {
            if (t->results[op][0] != NULL) {
                bool in_place = (i + (size_t)op) % 2 != 0;
                cadre_reduce_op reduce_op = (cadre_reduce_op)op;
                check_allreduce(g, t, reduce_op, counts[i], in_place);
                check_reduce_scatter(g, t, reduce_op, counts[i], in_place);
            }
        }
        check_allgather(g, t, counts[i], i % 2 != 0);
    }
}

static void check_all_types(cadre_group *g, void *ctx)
{
    const table *tables = ctx;
    RANK_CHECK(strcmp(cadre_order_name(g), "ring") == 0);
    RANK_CHECK(strcmp(cadre_algorithm_name(g),
                   cadre_world_size(g) == 1 ? "none" : "ring") == 0);
    for (int i = 0; i < N_DTYPES; i++) {
        check_table(g, &tables[i]);
    }
}

static bool has_mean(cadre_dtype dtype)
{
    return reference_is_real(dtype);
}

static void has_the_bits_of_the_model(void **state)
{
    (void)state;
    for (int i = 0; i < N_RANK_COUNTS; i++) {
        int n = rank_counts[i];
        table tables[N_DTYPES] = {0};
        for (int d = 0; d < N_DTYPES; d++) {
            tables[d] = (table){.dtype = (cadre_dtype)d, .count = SMALL_COUNT};
            make_inputs(&tables[d], n, reference_fill);
            for (int op = 0; op < N_OPS; op++) {
                if (op != CADRE_MEAN || has_mean((cadre_dtype)d)) {
                    make_results(&tables[d], (cadre_reduce_op)op, n);
                }
            }
        }
        for (int link = 0; link < (n == 5 ? LINK_CHECKED + 1 : N_LINKS);
             link++) {
            run_as_threads((rank_link)link, n, 0, check_all_types, tables);
        }
        for (int d = 0; d < N_DTYPES; d++) {
            free_table(&tables[d]);
        }
    }
}

static void check_large(cadre_group *g, void *ctx)
{
    const table *t = ctx;
    for (int in_place = 0; in_place < 2; in_place++) {
        check_allreduce(g, t, CADRE_SUM, t->count, in_place != 0);
        check_reduce_scatter(g, t, CADRE_SUM, t->count, in_place != 0);
    }
    check_allgather(g, t, t->count, false);
}

// Twice: what one run gives the next one does.
static void large_vectors_have_the_same_bits_in_every_run(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++) {
        table t = {.dtype = CADRE_F32, .count = LARGE_COUNT};
        make_inputs(&t, n, reference_fill);
        make_results(&t, CADRE_SUM, n);
        for (int link = 0; link < N_LINKS; link++) {
            run_as_threads((rank_link)link, n, 0, check_large, &t);
            run_as_threads((rank_link)link, n, 0, check_large, &t);
        }
        run_as_processes(LINK_SHM, n, 0, check_large, &t);
        free_table(&t);
    }
}

// Small dyadic numbers: whatever the order, the bits are those of the tree.
static void check_dyadic(cadre_group *g, void *ctx)
{
    const table *t = ctx;
    static const cadre_reduce_op ops[] = {
        CADRE_SUM, CADRE_MEAN, CADRE_MIN, CADRE_MAX};
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (ops[i] == CADRE_MEAN && !has_mean(t->dtype)) {
            continue;
        }
        char *ring = make_buffer(g, t);
        RANK_OK(
            cadre_allreduce(g, ring, ring, t->count, t->dtype, ops[i], NULL));
        const char *wanted = t->results[ops[i]][0];
        RANK_CHECK(
            reference_difference(t->dtype, ring, wanted, t->count) == t->count);
        cadre_free(ring);
    }
}

static void dyadic_numbers_have_the_bits_of_any_order(void **state)
{
    (void)state;
    for (int i = 0; i < N_RANK_COUNTS * N_DTYPES; i++) {
        int n = rank_counts[i / N_DTYPES];
        table t = {.dtype = (cadre_dtype)(i % N_DTYPES), .count = SMALL_COUNT};
        make_inputs(&t, n, reference_fill_dyadic);
        const void *runs[MAX_RANKS];
        for (int r = 0; r < n; r++) {
            runs[r] = t.inputs[r];
        }
        for (int op = 0; op < N_OPS; op++) {
            t.results[op][0] =
                cadre_alloc(t.count * cadre_dtype_bytes(t.dtype));
            assert_non_null(t.results[op][0]);
            for (size_t e = 0; e < t.count; e++) {
                reference_reduce(
                    t.dtype, (cadre_reduce_op)op, runs, n, e, t.results[op][0]);
            }
        }
        run_as_threads(LINK_INPROC, n, 0, check_dyadic, &t);
        free_table(&t);
    }
}

static void fill_evenly(
    cadre_dtype dtype, uint32_t rank, void *run, size_t count)
{
    (void)dtype;
    float *values = run;
    for (size_t i = 0; i < count; i++) {
        values[i] =
            (float)(((int)(i * 7919 + rank * 104729) % 2003) - 1001) / 1001.0F;
    }
}

// |ring - sum| <= (n - 1) u sum |x|, u = 2^-24: docs/numerics.md
// section 4.  The sum in f64 has an error that does not matter here.
static void check_bound(cadre_group *g, void *ctx)
{
    const table *t = ctx;
    int n = cadre_world_size(g);
    char *ring = make_buffer(g, t);
    RANK_OK(
        cadre_allreduce(g, ring, ring, t->count, t->dtype, CADRE_SUM, NULL));
    for (size_t i = 0; i < t->count; i++) {
        double sum = 0;
        double magnitude = 0;
        for (int r = 0; r < n; r++) {
            double x = reference_value(t->dtype, t->inputs[r], i);
            sum += x;
            magnitude += fabs(x);
        }
        double error = fabs(reference_value(t->dtype, ring, i) - sum);
        RANK_CHECK(error <= (n - 1) * 0x1p-24 * magnitude + 1e-15);
    }
    cadre_free(ring);
}

static void sums_are_within_their_bound(void **state)
{
    (void)state;
    for (int i = 0; i < N_RANK_COUNTS; i++) {
        table t = {.dtype = CADRE_F32, .count = 2000};
        make_inputs(&t, rank_counts[i], fill_evenly);
        run_as_threads(LINK_INPROC, rank_counts[i], 0, check_bound, &t);
        free_table(&t);
    }
}

// As bf16, 257 does not exist, and partial sums are not rounded to it.
static void sum_in_bf16(cadre_group *g, void *ctx)
{
    (void)ctx;
    static const uint16_t values[] = {0x4380, 0x3f80, 0x3f80}; // 256, 1, 1
    uint16_t x[3];
    for (int i = 0; i < 3; i++) {
        x[i] = values[cadre_rank(g)];
    }
    RANK_OK(cadre_allreduce(g, x, x, 3, CADRE_BF16, CADRE_SUM, NULL));
    for (int i = 0; i < 3; i++) {
        RANK_CHECK(x[i] == 0x4381); // 258
    }
}

static void partial_sums_are_not_rounded_to_16_bits(void **state)
{
    (void)state;
    run_as_threads(LINK_UNIX, 3, 0, sum_in_bf16, NULL);
}

// Works over different memory, waited for out of order; broadcasts and barriers
// between them do not go round.
static void post_many(cadre_group *g, void *ctx)
{
    enum { N_WORKS = 20 };
    const table *t = ctx;
    char *buffers[N_WORKS];
    cadre_work *works[N_WORKS];
    cadre_work *barrier;
    cadre_work *broadcast;
    char root[5] = "root";
    for (int i = 0; i < N_WORKS; i++) {
        buffers[i] = make_buffer(g, t);
        RANK_OK(cadre_allreduce(g, buffers[i], buffers[i], t->count, t->dtype,
            CADRE_SUM, &works[i]));
    }
    RANK_OK(cadre_barrier(g, &barrier));
    RANK_OK(cadre_broadcast(g, root, sizeof(root), CADRE_U8, 0, &broadcast));
    for (int i = N_WORKS - 1; i >= 0; i--) {
        RANK_OK(cadre_work_wait(works[i], 0));
    }
    RANK_OK(cadre_work_wait(broadcast, 0));
    RANK_OK(cadre_work_wait(barrier, 0));

    int n = cadre_world_size(g);
    size_t offsets[MAX_RANKS + 1];
    cadre_split_evenly(t->count, n, offsets);
    for (int i = 0; i < N_WORKS; i++) {
        for (int r = 0; r < n; r++) {
            check_part(t, CADRE_SUM, r,
                buffers[i] + offsets[r] * cadre_dtype_bytes(t->dtype),
                offsets[r], offsets[r + 1] - offsets[r]);
        }
        cadre_free(buffers[i]);
    }
}

static void several_works_run_in_order(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        table t = {.dtype = CADRE_F32, .count = 3000};
        make_inputs(&t, n, reference_fill);
        make_results(&t, CADRE_SUM, n);
        for (int link = 0; link < N_LINKS; link++) {
            run_as_threads((rank_link)link, n, 0, post_many, &t);
        }
        free_table(&t);
    }
}

static void disagree(cadre_group *g, void *ctx)
{
    const int *odd = ctx;
    float x[10] = {0};
    cadre_group_set_order(
        g, cadre_rank(g) == *odd ? CADRE_ORDER_CANONICAL : CADRE_ORDER_RING);
    cadre_status status =
        cadre_allreduce(g, x, x, 10, CADRE_F32, CADRE_SUM, NULL);
    RANK_CHECK(status == CADRE_ERR_DESYNC);
    // "rank 1 reduces in order 'ring', rank 2 in order 'canonical'"
    char who[32];
    snprintf(who, sizeof(who), "rank %d ", *odd);
    const char *at = strstr(cadre_error_text(), who);
    RANK_CHECK(at != NULL);
    const char *order = strchr(at, '\'');
    RANK_CHECK(order != NULL && strncmp(order, "'canonical'", 11) == 0);
    RANK_CHECK(strstr(cadre_error_text(), "'ring'") != NULL);
}

static void ranks_of_unlike_order_are_told(void **state)
{
    (void)state;
    for (int link = 0; link < N_LINKS; link++) {
        for (int odd = 0; odd < 4; odd++) {
            run_as_threads((rank_link)link, 4, 0, disagree, &odd);
        }
    }
}

static int use_ring(void **state)
{
    (void)state;
    use_order(CADRE_ORDER_RING);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_bits_of_the_model),
        cmocka_unit_test(large_vectors_have_the_same_bits_in_every_run),
        cmocka_unit_test(dyadic_numbers_have_the_bits_of_any_order),
        cmocka_unit_test(sums_are_within_their_bound),
        cmocka_unit_test(partial_sums_are_not_rounded_to_16_bits),
        cmocka_unit_test(several_works_run_in_order),
        cmocka_unit_test(ranks_of_unlike_order_are_told),
    };
    return cmocka_run_group_tests(tests, use_ring, NULL);
}
