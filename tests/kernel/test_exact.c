// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"
#include "support/isa.h"

#include "base/random.h"
#include "kernel/exact.h"
#include "kernel/squares.h"
#include <math.h>

static double sum_of(const double *x, int n)
{
    cadre_exact sum = {0};
    for (int i = 0; i < n; i++) {
        assert_true(cadre_exact_add(&sum, x[i]));
    }
    return cadre_exact_value(&sum);
}

static void keeps_what_a_double_would_lose(void **state)
{
    (void)state;
    assert_true(sum_of((double[]){0x1p100, 1.0, -0x1p100}, 3) == 1.0);
    assert_true(sum_of((double[]){0x1p250, 0x1p-250, -0x1p250}, 3) == 0x1p-250);
    assert_true(sum_of((double[]){1.5, -1.5}, 2) == 0.0);
    assert_true(sum_of((double[]){-3.25, 1.0}, 2) == -2.25);
    assert_true(sum_of(NULL, 0) == 0.0);
}

static void rounds_once_to_nearest_even(void **state)
{
    (void)state;
    // 2^53 + 1 is halfway: to even, down.  A hair above it: up.
    assert_true(sum_of((double[]){0x1p53, 1.0}, 2) == 0x1p53);
    assert_true(sum_of((double[]){0x1p53, 1.0, 0x1p-200}, 3) == 0x1p53 + 2);
    assert_true(sum_of((double[]){0x1p53, 3.0}, 2) == 0x1p53 + 4);
    assert_true(sum_of((double[]){-0x1p53, -1.0}, 2) == -0x1p53);
    assert_true(sum_of((double[]){-0x1p53, -1.0, -0x1p-200}, 3) == -0x1p53 - 2);
    // The lowest digit decides, three words below the highest.
    assert_true(sum_of((double[]){0x1p153, 0x1p100, 0x1p-90}, 3) ==
                0x1.0000000000001p153);
}

static void cuts_bits_below_its_unit(void **state)
{
    (void)state;
    assert_true(sum_of((double[]){0x1p-321}, 1) == 0.0);
    assert_true(sum_of((double[]){0x1p-320}, 1) == 0x1p-320);
    assert_true(sum_of((double[]){0x1.8p-320}, 1) == 0x1p-320);
    assert_true(sum_of((double[]){-0x1.8p-320}, 1) == -0x1p-320);
    assert_true(sum_of((double[]){5e-324}, 1) == 0.0);
}

static void refuses_what_is_not_finite(void **state)
{
    (void)state;
    cadre_exact sum = {0};
    assert_false(cadre_exact_add(&sum, NAN));
    assert_false(cadre_exact_add(&sum, INFINITY));
    assert_false(cadre_exact_add(&sum, -INFINITY));
    assert_false(cadre_exact_add(&sum, 0x1p300));
    assert_true(cadre_exact_add(&sum, nextafter(0x1p300, 0)));
    cadre_exact fresh = {0};
    assert_true(cadre_exact_add(&fresh, nextafter(0x1p300, 0)));
    assert_memory_equal(sum.word, fresh.word, sizeof(sum.word));
}

// Any order and any split over ranks give the same bits.
static void does_not_know_order_or_ranks(void **state)
{
    (void)state;
    enum { N = 5000, RANKS = 7 };
    static double x[N];
    for (int i = 0; i < N; i++) {
        uint32_t w[4];
        cadre_random_words(11, CADRE_STREAM_ORDER, 0, (uint64_t)i, w);
        x[i] = ldexp((double)(int32_t)w[0], (int)(w[1] % 200) - 100);
    }
    double forward = sum_of(x, N);

    cadre_exact backward = {0};
    for (int i = N; i-- > 0;) {
        assert_true(cadre_exact_add(&backward, x[i]));
    }
    assert_true(cadre_exact_value(&backward) == forward);

    cadre_exact total = {0};
    for (int r = RANKS; r-- > 0;) {
        cadre_exact part = {0};
        for (int i = r; i < N; i += RANKS) {
            assert_true(cadre_exact_add(&part, x[i]));
        }
        cadre_exact_settle(&part);
        cadre_exact_merge(&total, part.word);
    }
    assert_true(cadre_exact_value(&total) == forward);
}

static void squares_do_not_depend_on_where_a_run_is_cut(void **state)
{
    use_isa(state);
    enum { N = 2000, INDEX = 48 };
    static float x[N];
    for (int i = 0; i < N; i++) {
        uint32_t w[4];
        cadre_random_words(3, CADRE_STREAM_ORDER, 1, (uint64_t)i, w);
        x[i] = cadre_random_unit(w[0]) - 0.5f;
    }
    cadre_exact whole = {0};
    assert_true(cadre_add_squares(&whole, x, INDEX, N));
    double expected = cadre_exact_value(&whole);

    // Shards and chunks end at quanta of the layout.
    for (size_t cut = 256 - INDEX; cut < N; cut += 256) {
        cadre_exact parts = {0};
        assert_true(cadre_add_squares(&parts, x + cut, INDEX + cut, N - cut));
        assert_true(cadre_add_squares(&parts, x, INDEX, cut));
        assert_true(cadre_exact_value(&parts) == expected);
    }
    double plain = 0;
    for (int i = 0; i < N; i++) {
        plain += (double)x[i] * x[i];
    }
    assert_true(fabs(plain - expected) < 1e-9);
}

static void squares_use_eight_lanes_joined_by_the_tree(void **state)
{
    use_isa(state);
    enum { MOST = 70 };
    float x[MOST];
    for (int i = 0; i < MOST; i++) {
        x[i] = 1.0f + 0.1f * (float)i;
    }
    x[1] = 0x1p-149f;
    x[2] = 0x1.fffffep127f;
    x[3] = -0.0f;
    for (size_t count = 0; count <= MOST; count++) {
        double lane[8] = {0};
        for (size_t i = 0; i < count; i++) {
            lane[i % 8] += (double)x[i] * x[i];
        }
        double expected = ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
                          ((lane[4] + lane[5]) + (lane[6] + lane[7]));
        cadre_exact sum = {0};
        assert_true(cadre_add_squares(&sum, x, 512, count));
        assert_true(cadre_exact_value(&sum) == expected);
    }
}

static void squares_flag_what_is_not_finite(void **state)
{
    use_isa(state);
    float x[300] = {0};
    x[299] = INFINITY;
    x[10] = 2.0f;
    cadre_exact sum = {0};
    assert_false(cadre_add_squares(&sum, x, 0, 300));
    assert_true(cadre_exact_value(&sum) == 4.0);
    x[299] = 3e38f; // its square is beyond f32, not beyond f64
    sum = (cadre_exact){0};
    assert_true(cadre_add_squares(&sum, x, 0, 300));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_what_a_double_would_lose),
        cmocka_unit_test(rounds_once_to_nearest_even),
        cmocka_unit_test(cuts_bits_below_its_unit),
        cmocka_unit_test(refuses_what_is_not_finite),
        cmocka_unit_test(does_not_know_order_or_ranks),
        ON_EVERY_ISA(squares_do_not_depend_on_where_a_run_is_cut),
        ON_EVERY_ISA(squares_use_eight_lanes_joined_by_the_tree),
        ON_EVERY_ISA(squares_flag_what_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
