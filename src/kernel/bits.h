// SPDX-License-Identifier: Apache-2.0
//
// The bits of floats, and floats of bits; bf16 is the upper half of them.
//
// Threads: any.

#ifndef CADRE_KERNEL_BITS_H
#define CADRE_KERNEL_BITS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t cadre_bits_of_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float cadre_f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline float cadre_f32_of_bf16(uint16_t narrow)
{
    return cadre_f32_of_bits((uint32_t)narrow << 16);
}

/** To the nearest, ties to even, without branches; a NaN becomes a quiet one. */
static inline uint16_t cadre_bf16_of_f32(float wide)
{
    uint32_t bits = cadre_bits_of_f32(wide);
    // Just below half a unit is added, and a hair more if the unit is odd; a
    // carry goes into the exponent, up to infinity.
    uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    uint32_t quiet = bits | 0x400000;
    bool is_nan = isnan(wide);
    return (uint16_t)((is_nan ? quiet : rounded) >> 16);
}

static inline uint64_t cadre_bits_of_f64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

#endif // CADRE_KERNEL_BITS_H
