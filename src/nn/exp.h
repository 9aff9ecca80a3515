// SPDX-License-Identifier: Apache-2.0
//
// e^x for kernels: plain operations that a compiler vectorises, so that every
// variant and every C library gives the same bits.
//
// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial (the Taylor series
// to the seventh power: an error below 2^-27), 2^n by its exponent.  The result is
// within 2 units in the last place.  Below -87 it stays e^-87, which is next to
// nothing, and above 88 it stays e^88; NaN stays NaN.
//
// Threads: any.

#ifndef CADRE_NN_EXP_H
#define CADRE_NN_EXP_H

#include "kernel/bits.h"
#include "kernel/vector.h"

/** Of an x that is not above 88. */
CADRE_VECTOR_BODY float cadre_exp_below(float x)
{
    // Adding and taking it away rounds to a whole number.
    const float round = 0x1.8p23f;
    // ln 2 in two parts; the product of the first with any n is exact.
    const float ln2_high = 0x1.63p-1f;
    const float ln2_low = -2.12194440e-4f;

    x = x < -87.0f ? -87.0f : x;
    float shifted = x * 0x1.715476p0f + round;
    float n = shifted - round;
    float r = (x - n * ln2_high) - n * ln2_low;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    // The low bits of shifted are n.
    return p * cadre_f32_of_bits((cadre_bits_of_f32(shifted) + 127) << 23);
}

CADRE_VECTOR_BODY float cadre_exp(float x)
{
    return cadre_exp_below(x > 88.0f ? 88.0f : x);
}

#endif // CADRE_NN_EXP_H
