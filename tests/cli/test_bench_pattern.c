// SPDX-License-Identifier: Apache-2.0
//
// That nothing wrong passes for right.

#include "support/check.h"

#include "bench_pattern.h"
#include <string.h>

enum { N_RANKS = 3, COUNT = 3 * PATTERN_PERIOD + 17 };

static const cadre_dtype dtypes[] = {CADRE_F32, CADRE_F64, CADRE_I64, CADRE_U8,
    CADRE_I8, CADRE_I32, CADRE_BF16, CADRE_F16};
enum { N_DTYPES = sizeof(dtypes) / sizeof(dtypes[0]) };

static pattern_kind sum_of(cadre_dtype dtype)
{
    return (pattern_kind){
        .dtype = dtype, .reduced = true, .op = CADRE_SUM, .n_ranks = N_RANKS};
}

static void every_changed_element_counts(void **state)
{
    (void)state;
    static uint8_t elements[COUNT * sizeof(double)];
    for (int d = 0; d < N_DTYPES; d++) {
        const pattern_kind kind = sum_of(dtypes[d]);
        const pattern p = pattern_of_result(&kind);
        size_t nbytes = cadre_dtype_bytes(dtypes[d]);
        pattern_write(&p, 5, COUNT, elements);
        assert_int_equal(pattern_count_wrong(&p, 5, COUNT, elements), 0);
        for (size_t i = 0; i < COUNT; i++) {
            uint8_t *last = &elements[(i + 1) * nbytes - 1];
            *last ^= 1;
            assert_int_equal(pattern_count_wrong(&p, 5, COUNT, elements), 1);
            *last ^= 1;
        }
        memset(elements, 0x55, COUNT * nbytes);
        assert_int_equal(pattern_count_wrong(&p, 5, COUNT, elements), COUNT);
    }
}

static void another_place_is_wrong(void **state)
{
    (void)state;
    static float elements[COUNT];
    const pattern_kind kind = sum_of(CADRE_F32);
    const pattern p = pattern_of_result(&kind);
    pattern_write(&p, 0, COUNT, elements);
    for (size_t first = 1; first < PATTERN_PERIOD; first++) {
        // Sums of a few ranks take few values, so some agree by chance.
        assert_true(
            pattern_count_wrong(&p, first, COUNT, elements) > COUNT / 2);
    }
}

static void what_a_rank_brings_is_not_the_result(void **state)
{
    (void)state;
    static uint8_t elements[COUNT * sizeof(double)];
    for (int d = 0; d < N_DTYPES; d++) {
        const pattern_kind kind = sum_of(dtypes[d]);
        const pattern result = pattern_of_result(&kind);
        for (int r = 0; r < N_RANKS; r++) {
            const pattern own = pattern_of_rank(&kind, r);
            pattern_write(&own, 0, COUNT, elements);
            assert_true(
                pattern_count_wrong(&result, 0, COUNT, elements) > COUNT / 2);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_changed_element_counts),
        cmocka_unit_test(another_place_is_wrong),
        cmocka_unit_test(what_a_rank_brings_is_not_the_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
