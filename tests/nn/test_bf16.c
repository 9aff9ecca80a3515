// SPDX-License-Identifier: Apache-2.0
//
// Products of factors that are rounded to bf16, against the same in f64 of
// factors rounded here.

#include "nn/compute_bf16.h"

#include "kernel/bits.h"
#include "nn/bf16.h"
#include "nn/formula.h"
#include "nn/net.h"

// A matrix of the formula's values, with NaN between its rows.
static cadre_matrix matrix(uint32_t tag, int64_t rows, int64_t columns)
{
    int64_t stride = columns + 3;
    cadre_matrix m = {floats((size_t)(rows * stride)), rows, columns, stride};
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < stride; c++) {
            size_t i = (size_t)(r * columns + c);
            cadre_matrix_row(m, r)[c] =
                c < columns ? formula_value(tag, i, 1.0f) : NAN;
        }
    }
    return m;
}

// A factor that is rounded before it is multiplied.
typedef struct factor {
    cadre_matrix_view matrix;
    bool transposed;
} factor;

static float element(factor f, int64_t row, int64_t column)
{
    return f.transposed ? cadre_matrix_view_row(f.matrix, column)[row]
                        : cadre_matrix_view_row(f.matrix, row)[column];
}

static void multiply(factor a, factor b, bool adds, cadre_matrix c)
{
    const cadre_narrow_matrix na = narrowed(a.matrix);
    const cadre_narrow_matrix nb = narrowed(b.matrix);
    cadre_bf16_product *p = NULL;
    CHECK_OK(cadre_bf16_product_create(
        (cadre_bf16_factor){cadre_narrow_read(na), a.transposed},
        (cadre_bf16_factor){cadre_narrow_read(nb), b.transposed}, c, adds, &p));
    float *scratch = floats(cadre_bf16_product_scratch(p));
    uint64_t calls = cadre_alloc_calls();
    CHECK_OK(cadre_bf16_product_compute(p, na.data, nb.data, c.data, scratch));
    assert_int_equal(cadre_alloc_calls(), calls);
    cadre_free(scratch);
    cadre_bf16_product_destroy(p);
    cadre_free(na.data);
    cadre_free(nb.data);
}

static void check_product(factor a, factor b, int64_t depth)
{
    int64_t rows = a.transposed ? a.matrix.columns : a.matrix.rows;
    int64_t columns = b.transposed ? b.matrix.rows : b.matrix.columns;
    cadre_matrix c = matrix(0, rows, columns);
    multiply(a, b, false, c);
    size_t count = (size_t)(rows * columns);
    float *ours = floats(count);
    double *exact = cadre_alloc_array(count, sizeof(*exact));
    double *wanted = cadre_alloc_array(count, sizeof(*wanted));
    for (int64_t i = 0; i < rows * columns; i++) {
        int64_t row = i / columns;
        int64_t column = i % columns;
        ours[i] = cadre_matrix_row(c, row)[column];
        for (int64_t k = 0; k < depth; k++) {
            float x = element(a, row, k);
            float y = element(b, k, column);
            wanted[i] += rounded(x) * rounded(y);
            exact[i] += (double)x * (double)y;
        }
        assert_true(isnan(cadre_matrix_row(c, row)[columns]));
    }
    assert_close("a product", ours, wanted, count);
    // Had nothing been rounded it would be nearer to this one.
    double error = distance(ours, exact, count);
    assert_true(count < 50 || (error > 1e-4 && error < 1e-2));
    cadre_free(ours);
    cadre_free(exact);
    cadre_free(wanted);
    cadre_free(c.data);
}

static void products_are_those_of_rounded_factors(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {{1, 1, 1}, {3, 5, 7}, {17, 33, 9},
        {64, 129, 65}, {43, 256, 31}, {5, 1000, 3}, {1, 70, 130}, {130, 70, 1},
        {65, 1, 66}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int turned = 0; turned < 4; turned++) {
            const int64_t *n = cases[i];
            bool a_turned = turned % 2 == 1;
            bool b_turned = turned / 2 == 1;
            cadre_matrix a = a_turned ? matrix(FORMULA_X, n[1], n[0])
                                      : matrix(FORMULA_X, n[0], n[1]);
            cadre_matrix b = b_turned ? matrix(FORMULA_DY, n[2], n[1])
                                      : matrix(FORMULA_DY, n[1], n[2]);
            check_product((factor){cadre_matrix_read(a), a_turned},
                (factor){cadre_matrix_read(b), b_turned}, n[1]);
            cadre_free(a.data);
            cadre_free(b.data);
        }
    }
}

static void multiply_rounded(
    factor a, factor b, const float *bias, cadre_narrow_matrix c)
{
    const cadre_narrow_matrix na = narrowed(a.matrix);
    const cadre_narrow_matrix nb = narrowed(b.matrix);
    cadre_bf16_product *p = NULL;
    CHECK_OK(cadre_bf16_product_create_rounded(
        (cadre_bf16_factor){cadre_narrow_read(na), a.transposed},
        (cadre_bf16_factor){cadre_narrow_read(nb), b.transposed}, bias != NULL,
        c, &p));
    float *scratch = floats(cadre_bf16_product_scratch(p));
    CHECK_OK(cadre_bf16_product_compute_rounded(
        p, na.data, nb.data, bias, c.data, scratch));
    cadre_free(scratch);
    cadre_bf16_product_destroy(p);
    cadre_free(na.data);
    cadre_free(nb.data);
}

// What it comes to, rounded once; of what is next to the middle of two numbers
// either.
static void check_rounded(const int64_t *n, bool turned, bool biased)
{
    const cadre_matrix a = matrix(FORMULA_X, n[0], n[1]);
    const cadre_matrix b = turned ? matrix(FORMULA_DY, n[2], n[1])
                                  : matrix(FORMULA_DY, n[1], n[2]);
    const factor fa = {cadre_matrix_read(a), false};
    const factor fb = {cadre_matrix_read(b), turned};
    const cadre_matrix bias = matrix(FORMULA_BIAS, 1, n[2]);
    const cadre_matrix c = matrix(0, n[0], n[2]);
    const cadre_narrow_matrix found = narrowed(cadre_matrix_read(c));
    multiply_rounded(fa, fb, biased ? bias.data : NULL, found);
    size_t count = (size_t)(n[0] * n[2]);
    float *ours = floats(count);
    double *wanted = cadre_alloc_array(count, sizeof(*wanted));
    for (int64_t i = 0; i < n[0] * n[2]; i++) {
        const uint16_t *row = found.data + i / n[2] * found.stride;
        double sum = biased ? (double)bias.data[i % n[2]] : 0.0;
        for (int64_t k = 0; k < n[1]; k++) {
            sum += rounded(element(fa, i / n[2], k)) *
                   rounded(element(fb, k, i % n[2]));
        }
        ours[i] = cadre_f32_of_bf16(row[i % n[2]]);
        wanted[i] = rounded((float)sum);
        assert_true(isnan(cadre_f32_of_bf16(row[n[2]])));
    }
    assert_true(distance(ours, wanted, count) <= 1e-3);
    void *all[] = {a.data, b.data, bias.data, c.data, found.data, ours, wanted};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        cadre_free(all[i]);
    }
}

static void products_are_rounded_once(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {{1, 1, 1}, {3, 5, 7}, {17, 33, 9},
        {64, 129, 65}, {43, 256, 31}, {65, 1, 66}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int way = 0; way < 4; way++) {
            check_rounded(cases[i], way % 2 == 1, way / 2 == 1);
        }
    }
}

static void products_are_added(void **state)
{
    (void)state;
    enum { N = 5, DEPTH = 40, M = 18 };
    const cadre_matrix a = matrix(FORMULA_X, N, DEPTH);
    const cadre_matrix b = matrix(FORMULA_DY, DEPTH, M);
    const factor fa = {cadre_matrix_read(a), false};
    const factor fb = {cadre_matrix_read(b), false};
    const cadre_matrix once = matrix(0, N, M);
    const cadre_matrix more = matrix(FORMULA_BIAS, N, M);
    const cadre_matrix before = matrix(FORMULA_BIAS, N, M);
    multiply(fa, fb, false, once);
    multiply(fa, fb, true, more);
    for (int64_t i = 0; i < (int64_t)N * M; i++) {
        const int64_t row = i / M;
        float sum = cadre_matrix_row(before, row)[i % M] +
                    cadre_matrix_row(once, row)[i % M];
        float found = cadre_matrix_row(more, row)[i % M];
        assert_true(fabsf(found - sum) <= 1e-5f);
    }
    cadre_free(a.data);
    cadre_free(b.data);
    cadre_free(once.data);
    cadre_free(more.data);
    cadre_free(before.data);
}

// The processor's own products of bf16 take subnormal factors for zero.
static bool keeps_subnormals(void)
{
    return !cadre_compute_has_bf16();
}

// Times one, in either place.
static void check_rounding(const uint32_t *from, const uint32_t *to, int n)
{
    float *values = floats((size_t)n);
    float *found = floats((size_t)n);
    float one = 1.0f;
    for (int i = 0; i < n; i++) {
        values[i] = cadre_f32_of_bits(from[i]);
    }
    const cadre_matrix_view unit = {&one, 1, 1, 1};
    const cadre_matrix_view column = {values, n, 1, 1};
    const cadre_matrix_view row = {values, 1, n, n};
    for (int which = 0; which < 2; which++) {
        if (which == 0) {
            multiply((factor){column, false}, (factor){unit, false}, false,
                (cadre_matrix){found, n, 1, 1});
        } else {
            multiply((factor){unit, false}, (factor){row, false}, false,
                (cadre_matrix){found, 1, n, n});
        }
        for (int i = 0; i < n; i++) {
            float wanted = cadre_f32_of_bits(to[i]);
            if (isnan(wanted) ? !isnan(found[i]) : found[i] != wanted) {
                fail_msg("%08x became %08x, not %08x", from[i],
                    cadre_bits_of_f32(found[i]), to[i]);
            }
        }
    }
    cadre_free(values);
    cadre_free(found);
}

static void rounding_is_to_nearest_even(void **state)
{
    (void)state;
    static const uint32_t rounding[][2] = {{0x3f800000, 0x3f800000}, // 1
        {0x3f807fff, 0x3f800000}, {0x3f808000, 0x3f800000}, // a tie: to even
        {0x3f808001, 0x3f810000}, {0x3f818000, 0x3f820000}, // up to even
        {0xbf808000, 0xbf800000}, {0xbf818000, 0xbf820000},
        {0x3fffffff, 0x40000000},                           // a carry
        {0x7f7f7fff, 0x7f7f0000}, {0x7f7f8000, 0x7f800000}, // to infinity
        {0xff7fffff, 0xff800000}, {0x7f800000, 0x7f800000},
        {0xff800000, 0xff800000}, {0x7fc00000, 0x7fc00000}, // NaN
        {0x7f800001, 0x7fc00000}, {0xffbfffff, 0x7fc00000},
        {0x00800000, 0x00800000}, {0x00818000, 0x00820000}, {0, 0},
        // subnormal
        {0x007fffff, 0x00800000}, {0x00008000, 0}, {0x00008001, 0x00010000},
        {0x00018000, 0x00020000}, {0x80018000, 0x80020000}, {0x00000001, 0}};
    enum { N = sizeof(rounding) / sizeof(rounding[0]), N_NORMAL = 19 };
    uint32_t from[N];
    uint32_t to[N];
    for (int i = 0; i < N; i++) {
        from[i] = rounding[i][0];
        to[i] = rounding[i][1];
    }
    check_rounding(from, to, keeps_subnormals() ? N : N_NORMAL);
}

static void no_memory_is_an_error_and_no_leak(void **state)
{
    (void)state;
    const cadre_bf16_factor a = {{NULL, 3, 4, 4}, false};
    const cadre_bf16_factor b = {{NULL, 4, 5, 5}, false};
    cadre_bf16_product *p = NULL;
    cadre_alloc_fail_after(0);
    cadre_status status = cadre_bf16_product_create(
        a, b, (cadre_matrix){NULL, 3, 5, 5}, false, &p);
    cadre_alloc_fail_after(-1);
    assert_int_equal(status, CADRE_ERR_NO_MEMORY);
    assert_null(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_those_of_rounded_factors),
        cmocka_unit_test(products_are_rounded_once),
        cmocka_unit_test(products_are_added),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(no_memory_is_an_error_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
