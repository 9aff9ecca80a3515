// SPDX-License-Identifier: Apache-2.0
//
// Conversions without branches, so that they are vectorised: every case is
// computed, and the right one is chosen.  None depends on subnormal f32 numbers,
// so a thread that flushes them gets the same bits.

#include "kernel/narrow.h"

#include "base/check.h"
#include "kernel/bits.h"
#include "kernel/vector.h"
#include <stdbool.h>

static const uint32_t sign_bit = 0x80000000;
static const uint32_t f32_infinity = 0x7f800000;

// The exponents of f16 and f32 differ by 112 in how they are stored.
enum {
    F16_SHIFT = 23 - 10, // from the mantissa of f16 to that of f32
    F16_REBIAS = 112 << 23,
    F16_SMALLEST_NORMAL = 113 << 23, // 2^-14, as f32
    F16_TOO_LARGE = 143 << 23,       // 2^16; what rounds to it has its carry
};

CADRE_VECTOR_BODY float f16_to_f32(uint16_t narrow)
{
    uint32_t sign = ((uint32_t)narrow << 16) & sign_bit;
    uint32_t magnitude = narrow & 0x7fff;
    uint32_t shifted = magnitude << F16_SHIFT;
    uint32_t normal = shifted + F16_REBIAS;
    uint32_t subnormal =
        cadre_bits_of_f32((float)(int32_t)magnitude * 0x1p-24f);
    uint32_t infinite = shifted | f32_infinity; // or NaN
    uint32_t bits = magnitude < 0x400 ? subnormal : normal;
    bits = magnitude >= 0x7c00 ? infinite : bits;
    return cadre_f32_of_bits(bits | sign);
}

CADRE_VECTOR_BODY uint16_t f16_of_f32(float wide)
{
    uint32_t bits = cadre_bits_of_f32(wide);
    uint32_t sign = (bits & sign_bit) >> 16;
    uint32_t magnitude = bits & ~sign_bit;
    uint32_t unit_is_odd = (magnitude >> F16_SHIFT) & 1;
    uint32_t normal =
        (magnitude - F16_REBIAS + 0xfff + unit_is_odd) >> F16_SHIFT;
    // The last place of 0.5 is 2^-24, that of f16's subnormals: adding rounds.
    uint32_t subnormal =
        cadre_bits_of_f32(cadre_f32_of_bits(magnitude) + 0.5f) -
        cadre_bits_of_f32(0.5f);
    uint32_t out = magnitude < F16_SMALLEST_NORMAL ? subnormal : normal;
    out = magnitude >= F16_TOO_LARGE ? 0x7c00 : out;
    out = magnitude > f32_infinity ? 0x7e00 : out;
    return (uint16_t)(out | sign);
}

#define DEFINE_CONVERSIONS(type, to_f32, of_f32)                               \
    CADRE_VECTOR_BODY void widen_##type##_body(                                \
        float *restrict wide, const uint16_t *restrict narrow, size_t count)   \
    {                                                                          \
        for (size_t i = 0; i < count; i++) {                                   \
            wide[i] = to_f32(narrow[i]);                                       \
        }                                                                      \
    }                                                                          \
    CADRE_VECTOR_BODY void narrow_##type##_body(                               \
        uint16_t *restrict narrow, const float *restrict wide, size_t count)   \
    {                                                                          \
        for (size_t i = 0; i < count; i++) {                                   \
            narrow[i] = of_f32(wide[i]);                                       \
        }                                                                      \
    }                                                                          \
    CADRE_VECTOR(widen_##type,                                                 \
        (float *restrict wide, const uint16_t *restrict narrow, size_t count), \
        (wide, narrow, count));                                                \
    CADRE_VECTOR(narrow_##type,                                                \
        (uint16_t *restrict narrow, const float *restrict wide, size_t count), \
        (narrow, wide, count))

DEFINE_CONVERSIONS(bf16, cadre_f32_of_bf16, cadre_bf16_of_f32);
DEFINE_CONVERSIONS(f16, f16_to_f32, f16_of_f32);

void cadre_widen(
    cadre_dtype dtype, float *wide, const uint16_t *narrow, size_t count)
{
    CADRE_ASSERT(dtype == CADRE_BF16 || dtype == CADRE_F16);
    cadre_isa isa = cadre_isa_in_use();
    if (dtype == CADRE_BF16) {
        widen_bf16[isa](wide, narrow, count);
    } else {
        widen_f16[isa](wide, narrow, count);
    }
}

void cadre_narrow(
    cadre_dtype dtype, uint16_t *narrow, const float *wide, size_t count)
{
    CADRE_ASSERT(dtype == CADRE_BF16 || dtype == CADRE_F16);
    cadre_isa isa = cadre_isa_in_use();
    if (dtype == CADRE_BF16) {
        narrow_bf16[isa](narrow, wide, count);
    } else {
        narrow_f16[isa](narrow, wide, count);
    }
}
