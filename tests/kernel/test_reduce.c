// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "base/random.h"
#include "kernel/reduce.h"
#include <math.h>
#include <stdbool.h>

enum { MOST = 70, ROOM = MOST + 9 };

static uint64_t random_bits(size_t i, uint32_t which)
{
    uint32_t words[4];
    cadre_random_words(3, CADRE_STREAM_INITIAL, which, i, words);
    return (uint64_t)words[0] << 32 | words[1];
}

// Sums runs of every length at every small distance from an aligned address,
// and checks each element against the plain sum, and what lies behind.
#define DEFINE_CHECK(name, type, dtype)                                     \
    static void name(type (*value)(size_t i, uint32_t which))               \
    {                                                                       \
        for (size_t count = 0; count <= MOST; count++) {                    \
            for (size_t shift = 0; shift < 9; shift++) {                    \
                type left[ROOM + 1];                                        \
                type right[ROOM];                                           \
                type before[ROOM + 1];                                      \
                for (size_t i = 0; i < ROOM; i++) {                         \
                    left[i] = value(i, 1);                                  \
                    right[i] = value(i, 2);                                 \
                }                                                           \
                left[ROOM] = value(ROOM, 1);                                \
                memcpy(before, left, sizeof(left));                         \
                cadre_reduce_sum(dtype, left + shift, right, count);        \
                for (size_t i = 0; i <= ROOM; i++) {                        \
                    bool inside = i >= shift && i - shift < count;          \
                    type wanted = before[i];                                \
                    if (inside) {                                           \
                        wanted = (type)(wanted + right[i - shift]);         \
                    }                                                       \
                    bool both_nan = wanted != wanted && left[i] != left[i]; \
                    if (!both_nan &&                                        \
                        memcmp(&wanted, &left[i], sizeof(wanted)) != 0) {   \
                        fail_msg("element %zu of %zu", i, count);           \
                    }                                                       \
                }                                                           \
            }                                                               \
        }                                                                   \
    }

DEFINE_CHECK(check_f32, float, CADRE_F32)
DEFINE_CHECK(check_f64, double, CADRE_F64)
DEFINE_CHECK(check_u64, uint64_t, CADRE_I64)
DEFINE_CHECK(check_u8, uint8_t, CADRE_U8)

// Any bits at all: normal and subnormal numbers, infinities and NaNs.
static float any_f32(size_t i, uint32_t which)
{
    uint64_t bits = random_bits(i, which);
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static double any_f64(size_t i, uint32_t which)
{
    uint64_t bits = random_bits(i, which);
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static float subnormal_f32(size_t i, uint32_t which)
{
    return ldexpf(
        (float)(int32_t)(random_bits(i, which) % 65536) - 32768, -149);
}

static uint64_t any_u64(size_t i, uint32_t which)
{
    return random_bits(i, which);
}

static uint8_t any_u8(size_t i, uint32_t which)
{
    return (uint8_t)random_bits(i, which);
}

static void runs_of_all_lengths_are_summed(void **state)
{
    (void)state;
    check_f32(any_f32);
    check_f32(subnormal_f32);
    check_f64(any_f64);
    check_u64(any_u64);
    check_u8(any_u8);
}

static uint32_t sum_f32(float a, float b)
{
    // The element goes through the vector body and the tail alike.
    float left[17];
    float right[17];
    for (int i = 0; i < 17; i++) {
        left[i] = a;
        right[i] = b;
    }
    cadre_reduce_sum(CADRE_F32, left, right, 17);
    uint32_t bits[17];
    memcpy(bits, left, sizeof(bits));
    for (int i = 1; i < 17; i++) {
        assert_int_equal(bits[i], bits[0]);
    }
    return bits[0];
}

static void special_numbers_are_as_the_standard_says(void **state)
{
    (void)state;
    assert_int_equal(sum_f32(-0.0F, 0.0F), 0x00000000);
    assert_int_equal(sum_f32(0.0F, -0.0F), 0x00000000);
    assert_int_equal(sum_f32(-0.0F, -0.0F), 0x80000000);
    assert_int_equal(sum_f32(1.0F, -1.0F), 0x00000000);
    assert_int_equal(sum_f32(HUGE_VALF, 1.0F), 0x7f800000);
    assert_int_equal(sum_f32(-HUGE_VALF, -HUGE_VALF), 0xff800000);
    assert_int_equal(sum_f32(0x1.fffffep127F, 0x1.fffffep127F), 0x7f800000);
    assert_int_equal(sum_f32(0x1p-149F, 0x1p-149F), 0x00000002);
    assert_int_equal(sum_f32(0x1p-126F, -0x1p-149F), 0x007fffff);
    // Half of the last place rounds to even.
    assert_int_equal(sum_f32(1.0F, 0x1p-24F), 0x3f800000);
    assert_int_equal(sum_f32(0x1.000002p0F, 0x1p-24F), 0x3f800002);
    assert_int_equal(sum_f32(HUGE_VALF, -HUGE_VALF) & 0x7fc00000, 0x7fc00000);
    assert_int_equal(sum_f32(NAN, 1.0F) & 0x7fc00000, 0x7fc00000);
}

static void integers_wrap(void **state)
{
    (void)state;
    int64_t left[3] = {INT64_MAX, INT64_MIN, -1};
    const int64_t right[3] = {1, -1, 1};
    cadre_reduce_sum(CADRE_I64, left, right, 3);
    assert_true(left[0] == INT64_MIN);
    assert_true(left[1] == INT64_MAX);
    assert_true(left[2] == 0);
    uint8_t byte = 250;
    const uint8_t ten = 10;
    cadre_reduce_sum(CADRE_U8, &byte, &ten, 1);
    assert_int_equal(byte, 4);
}

static void types_have_sizes_and_names(void **state)
{
    (void)state;
    assert_int_equal(cadre_dtype_bytes(CADRE_F32), 4);
    assert_int_equal(cadre_dtype_bytes(CADRE_F64), 8);
    assert_int_equal(cadre_dtype_bytes(CADRE_I64), 8);
    assert_int_equal(cadre_dtype_bytes(CADRE_U8), 1);
    assert_int_equal(cadre_dtype_bytes((cadre_dtype)77), 0);
    assert_string_equal(cadre_dtype_name(CADRE_F32), "f32");
    assert_string_equal(cadre_dtype_name(CADRE_F64), "f64");
    assert_string_equal(cadre_dtype_name(CADRE_I64), "i64");
    assert_string_equal(cadre_dtype_name(CADRE_U8), "u8");
    assert_string_equal(cadre_dtype_name((cadre_dtype)77), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_of_all_lengths_are_summed),
        cmocka_unit_test(special_numbers_are_as_the_standard_says),
        cmocka_unit_test(integers_wrap),
        cmocka_unit_test(types_have_sizes_and_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
