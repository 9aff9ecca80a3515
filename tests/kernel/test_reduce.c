// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"
#include "support/isa.h"
#include "support/reference.h"

#include "kernel/reduce.h"
#include <math.h>

enum { MOST = 70, SHIFTS = 9, ROOM = MOST + SHIFTS, ELEMENT_BYTES = 8 };

// Reduces into several places: one of their own that is not aligned, what lies
// before the right run, and both runs themselves.
static void check_places(cadre_dtype dtype, cadre_reduce_op op, size_t count)
{
    enum { BYTES = (MOST + 1) * ELEMENT_BYTES };
    size_t nbytes = cadre_dtype_bytes(dtype);
    _Alignas(64) char left[BYTES];
    _Alignas(64) char right[BYTES];
    _Alignas(64) char alone[BYTES + 1];
    _Alignas(64) char wanted[BYTES] = {0};
    reference_fill(dtype, 3, left, MOST);
    reference_fill(dtype, 4, right, MOST + 1);
    const void *const runs[] = {left, right + nbytes};
    for (size_t i = 0; i < count; i++) {
        reference_reduce(dtype, op, runs, 2, i, wanted);
    }
    char last[ELEMENT_BYTES];
    memcpy(last, right + count * nbytes, nbytes);
    void *const before[] = {alone + 1, right, left};
    cadre_reduce_to(dtype, op, left, right + nbytes, count, before, 3);
    assert_int_equal(reference_difference(dtype, left, wanted, count), count);
    assert_int_equal(reference_difference(dtype, right, wanted, count), count);
    assert_memory_equal(alone + 1, left, count * nbytes);
    assert_memory_equal(right + count * nbytes, last, nbytes);
}

static void results_go_to_every_place(void **state)
{
    use_isa(state);
    static const size_t counts[] = {0, 1, 7, 16, 17, 63, 64, MOST};
    for (int dtype = 0; dtype < N_DTYPES; dtype++) {
        for (int op = 0; op < N_OPS; op++) {
            cadre_dtype d = (cadre_dtype)dtype;
            cadre_reduce_op o = (cadre_reduce_op)op;
            for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
                if (cadre_accumulator(d) == d && o != CADRE_MEAN) {
                    check_places(d, o, counts[i]);
                }
            }
        }
    }
}

// Reduces runs of every length at every small distance from an aligned address,
// and checks each element, and what lies around them.
static void check_runs(cadre_dtype dtype, cadre_reduce_op op)
{
    _Alignas(64) char left[ROOM * ELEMENT_BYTES];
    _Alignas(64) char right[ROOM * ELEMENT_BYTES];
    _Alignas(64) char before[ROOM * ELEMENT_BYTES];
    _Alignas(64) char wanted[ROOM * ELEMENT_BYTES];
    size_t nbytes = cadre_dtype_bytes(dtype);
    reference_fill(dtype, 1, before, ROOM);
    reference_fill(dtype, 2, right, ROOM);
    for (size_t shift = 0; shift < SHIFTS; shift++) {
        const char *moved = right + (shift + 3) % SHIFTS * nbytes;
        const void *const runs[] = {before + shift * nbytes, moved};
        for (size_t count = 0; count <= MOST; count++) {
            memcpy(left, before, sizeof(left));
            memcpy(wanted, before, sizeof(left));
            for (size_t i = 0; i < count; i++) {
                reference_reduce(
                    dtype, op, runs, 2, i, wanted + shift * nbytes);
            }
            cadre_reduce(dtype, op, left + shift * nbytes, moved, count);
            size_t i = reference_difference(dtype, left, wanted, ROOM);
            if (i < ROOM) {
                fail_msg("%s of %s: element %zu, from %zu on %zu",
                    cadre_reduce_op_name(op), cadre_dtype_name(dtype), i, shift,
                    count);
            }
        }
    }
}

static void runs_of_all_lengths_are_reduced(void **state)
{
    use_isa(state);
    for (int dtype = 0; dtype < N_DTYPES; dtype++) {
        for (int op = 0; op < N_OPS; op++) {
            cadre_dtype d = (cadre_dtype)dtype;
            cadre_reduce_op o = (cadre_reduce_op)op;
            // The mean comes of the sum, below.
            if (cadre_accumulator(d) == d && o != CADRE_MEAN) {
                check_runs(d, o);
            }
        }
    }
}

static void a_mean_is_divided_once(void **state)
{
    use_isa(state);
    float f32[ROOM];
    double f64[ROOM];
    for (int n = 1; n <= 13; n++) {
        reference_fill(CADRE_F32, (uint32_t)n, f32, ROOM);
        reference_fill(CADRE_F64, (uint32_t)n, f64, ROOM);
        f32[0] = 1.0F;
        for (size_t count = 0; count <= MOST; count++) {
            float sums[ROOM];
            double wide_sums[ROOM];
            memcpy(sums, f32, sizeof(f32));
            memcpy(wide_sums, f64, sizeof(f64));
            cadre_reduce_finish(CADRE_F32, CADRE_MEAN, sums, count, n);
            cadre_reduce_finish(CADRE_F64, CADRE_MEAN, wide_sums, count, n);
            float quotients[ROOM];
            double wide_quotients[ROOM];
            for (size_t i = 0; i < ROOM; i++) {
                quotients[i] = f32[i] / (float)(i < count ? n : 1);
                wide_quotients[i] = f64[i] / (i < count ? n : 1);
            }
            assert_int_equal(
                reference_difference(CADRE_F32, sums, quotients, ROOM), ROOM);
            assert_int_equal(reference_difference(
                                 CADRE_F64, wide_sums, wide_quotients, ROOM),
                ROOM);
        }
    }
}

static void only_means_are_divided(void **state)
{
    use_isa(state);
    const cadre_reduce_op ops[] = {
        CADRE_SUM, CADRE_MIN, CADRE_MAX, CADRE_PRODUCT};
    for (int i = 0; i < 4; i++) {
        float x = 3.0F;
        cadre_reduce_finish(CADRE_F32, ops[i], &x, 1, 2);
        assert_true(x == 3.0F);
    }
}

// The result, which goes through the vector body and the tail alike.
static uint32_t reduce_f32(cadre_reduce_op op, float a, float b)
{
    float left[17];
    float right[17];
    for (int i = 0; i < 17; i++) {
        left[i] = a;
        right[i] = b;
    }
    cadre_reduce(CADRE_F32, op, left, right, 17);
    uint32_t bits[17];
    memcpy(bits, left, sizeof(bits));
    for (int i = 1; i < 17; i++) {
        assert_int_equal(bits[i], bits[0]);
    }
    return bits[0];
}

static void sums_of_special_numbers_are_as_the_standard_says(void **state)
{
    use_isa(state);
    static const struct {
        float a;
        float b;
        uint32_t sum;
    } cases[] = {
        {-0.0F, 0.0F, 0x00000000},
        {0.0F, -0.0F, 0x00000000},
        {-0.0F, -0.0F, 0x80000000},
        {1.0F, -1.0F, 0x00000000},
        {HUGE_VALF, 1.0F, 0x7f800000},
        {-HUGE_VALF, -HUGE_VALF, 0xff800000},
        {0x1.fffffep127F, 0x1.fffffep127F, 0x7f800000},
        {0x1p-149F, 0x1p-149F, 0x00000002},
        {0x1p-126F, -0x1p-149F, 0x007fffff},
        // Half of the last place rounds to even.
        {1.0F, 0x1p-24F, 0x3f800000},
        {0x1.000002p0F, 0x1p-24F, 0x3f800002},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(
            reduce_f32(CADRE_SUM, cases[i].a, cases[i].b), cases[i].sum);
    }
    assert_int_equal(
        reduce_f32(CADRE_SUM, HUGE_VALF, -HUGE_VALF) & 0x7fc00000, 0x7fc00000);
    assert_int_equal(reduce_f32(CADRE_SUM, NAN, 1.0F) & 0x7fc00000, 0x7fc00000);
    assert_int_equal(
        reduce_f32(CADRE_PRODUCT, 0.0F, -HUGE_VALF) & 0x7fc00000, 0x7fc00000);
    assert_int_equal(reduce_f32(CADRE_PRODUCT, 0x1.8p-149F, -1.0F), 0x80000002);
}

// Numbers from the lowest to the highest.
static const float rising[] = {-HUGE_VALF, -0x1.fffffep127F, -2.0F, -1.0F,
    -0x1p-126F, -0x1p-149F, -0.0F, 0.0F, 0x1p-149F, 0x1p-126F, 1.0F, 2.0F,
    0x1.fffffep127F, HUGE_VALF};
enum { N_RISING = sizeof(rising) / sizeof(rising[0]) };

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static void the_smaller_and_the_larger_do_not_know_the_order(void **state)
{
    use_isa(state);
    for (int lower = 0; lower < N_RISING; lower++) {
        float a = rising[lower];
        for (int higher = lower; higher < N_RISING; higher++) {
            float b = rising[higher];
            assert_int_equal(reduce_f32(CADRE_MIN, a, b), bits_of(a));
            assert_int_equal(reduce_f32(CADRE_MIN, b, a), bits_of(a));
            assert_int_equal(reduce_f32(CADRE_MAX, a, b), bits_of(b));
            assert_int_equal(reduce_f32(CADRE_MAX, b, a), bits_of(b));
        }
        for (int op = CADRE_MIN; op <= CADRE_MAX; op++) {
            cadre_reduce_op o = (cadre_reduce_op)op;
            assert_true((reduce_f32(o, a, NAN) & 0x7fffffff) > 0x7f800000);
            assert_true((reduce_f32(o, -NAN, a) & 0x7fffffff) > 0x7f800000);
        }
    }
}

static void integers_wrap(void **state)
{
    use_isa(state);
    int64_t left[3] = {INT64_MAX, INT64_MIN, -1};
    const int64_t right[3] = {1, -1, 1};
    cadre_reduce(CADRE_I64, CADRE_SUM, left, right, 3);
    assert_true(left[0] == INT64_MIN);
    assert_true(left[1] == INT64_MAX);
    assert_true(left[2] == 0);
    int32_t word = INT32_MIN;
    const int32_t minus_one = -1;
    cadre_reduce(CADRE_I32, CADRE_PRODUCT, &word, &minus_one, 1);
    assert_true(word == INT32_MIN);
    uint8_t byte = 250;
    const uint8_t ten = 10;
    cadre_reduce(CADRE_U8, CADRE_SUM, &byte, &ten, 1);
    assert_int_equal(byte, 4);
    int8_t small = -128;
    const int8_t minus_two = -2;
    cadre_reduce(CADRE_I8, CADRE_PRODUCT, &small, &minus_two, 1);
    assert_int_equal(small, 0);
}

static void signs_matter_to_the_smaller_and_the_larger(void **state)
{
    use_isa(state);
    uint8_t u8 = 255;
    int8_t i8 = -1;
    const uint8_t one = 1;
    cadre_reduce(CADRE_U8, CADRE_MAX, &u8, &one, 1);
    cadre_reduce(CADRE_I8, CADRE_MAX, &i8, &one, 1);
    assert_int_equal(u8, 255);
    assert_int_equal(i8, 1);
}

static void types_have_sizes_and_names(void **state)
{
    (void)state;
    static const struct {
        size_t nbytes;
        const char *name;
    } types[N_DTYPES] = {
        [CADRE_F32] = {4, "f32"},
        [CADRE_F64] = {8, "f64"},
        [CADRE_I64] = {8, "i64"},
        [CADRE_U8] = {1, "u8"},
        [CADRE_I8] = {1, "i8"},
        [CADRE_I32] = {4, "i32"},
        [CADRE_BF16] = {2, "bf16"},
        [CADRE_F16] = {2, "f16"},
    };
    for (int i = 0; i < N_DTYPES; i++) {
        cadre_dtype dtype = (cadre_dtype)i;
        assert_int_equal(cadre_dtype_bytes(dtype), types[i].nbytes);
        assert_string_equal(cadre_dtype_name(dtype), types[i].name);
    }
    assert_int_equal(cadre_dtype_bytes((cadre_dtype)77), 0);
    assert_string_equal(cadre_dtype_name((cadre_dtype)77), "?");
}

// They are on the wire (docs/wire-protocol.md).
static void values_of_types_and_operations_stay(void **state)
{
    (void)state;
    static const char *const types[] = {
        "f32", "f64", "i64", "u8", "i8", "i32", "bf16", "f16", "?"};
    static const char *const ops[] = {
        "sum", "mean", "min", "max", "product", "?"};
    for (int i = 0; i < 9; i++) {
        assert_string_equal(cadre_dtype_name((cadre_dtype)i), types[i]);
    }
    for (int i = 0; i < 6; i++) {
        assert_string_equal(cadre_reduce_op_name((cadre_reduce_op)i), ops[i]);
    }
}

static void only_means_of_integers_are_not_defined(void **state)
{
    (void)state;
    for (int i = 0; i < N_DTYPES; i++) {
        cadre_dtype dtype = (cadre_dtype)i;
        for (int op = 0; op < N_OPS; op++) {
            bool wanted = op != CADRE_MEAN || reference_is_real(dtype);
            assert_int_equal(
                cadre_reduce_is_defined(dtype, (cadre_reduce_op)op), wanted);
        }
    }
    assert_false(cadre_reduce_is_defined((cadre_dtype)N_DTYPES, CADRE_SUM));
    assert_false(cadre_reduce_is_defined((cadre_dtype)-1, CADRE_SUM));
    assert_false(cadre_reduce_is_defined(CADRE_F32, (cadre_reduce_op)N_OPS));
    assert_false(cadre_reduce_is_defined(CADRE_F32, (cadre_reduce_op)-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_EVERY_ISA(runs_of_all_lengths_are_reduced),
        ON_EVERY_ISA(results_go_to_every_place),
        ON_EVERY_ISA(a_mean_is_divided_once),
        ON_EVERY_ISA(only_means_are_divided),
        ON_EVERY_ISA(sums_of_special_numbers_are_as_the_standard_says),
        ON_EVERY_ISA(the_smaller_and_the_larger_do_not_know_the_order),
        ON_EVERY_ISA(integers_wrap),
        ON_EVERY_ISA(signs_matter_to_the_smaller_and_the_larger),
        cmocka_unit_test(types_have_sizes_and_names),
        cmocka_unit_test(values_of_types_and_operations_stay),
        cmocka_unit_test(only_means_of_integers_are_not_defined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
