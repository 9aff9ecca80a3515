// SPDX-License-Identifier: Apache-2.0
//
// The bits of floats, and floats of bits.
//
// Threads: any.

#ifndef CADRE_KERNEL_BITS_H
#define CADRE_KERNEL_BITS_H

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

static inline uint64_t cadre_bits_of_f64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

#endif // CADRE_KERNEL_BITS_H
