// SPDX-License-Identifier: Apache-2.0
//
// Sums along a row in kernels: element i is added to lane i mod 16, and lanes
// are joined pair by pair, so that the order is fixed and a compiler can
// vectorise it.
//
// Threads: any.

#ifndef CADRE_NN_LANES_H
#define CADRE_NN_LANES_H

#include "kernel/bits.h"
#include "kernel/vector.h"
#include <stdint.h>

enum { CADRE_LANES = 16 };

CADRE_VECTOR_BODY float cadre_lanes_join(const float lane[CADRE_LANES])
{
    float half[CADRE_LANES / 2];
    for (int j = 0; j < CADRE_LANES / 2; j++) {
        half[j] = lane[j] + lane[j + CADRE_LANES / 2];
    }
    return ((half[0] + half[4]) + (half[2] + half[6])) +
           ((half[1] + half[5]) + (half[3] + half[7]));
}

/** The sum of x. */
CADRE_VECTOR_BODY float cadre_lanes_sum(const float *x, int64_t n)
{
    float lane[CADRE_LANES] = {0};
    int64_t i = 0;
    for (; i + CADRE_LANES <= n; i += CADRE_LANES) {
        for (int j = 0; j < CADRE_LANES; j++) {
            lane[j] += x[i + j];
        }
    }
    for (int j = 0; i + j < n; j++) {
        lane[j] += x[i + j];
    }
    return cadre_lanes_join(lane);
}

/** The sum of (x - center) (y - center). */
CADRE_VECTOR_BODY float cadre_lanes_dot(
    const float *x, const float *y, float center, int64_t n)
{
    float lane[CADRE_LANES] = {0};
    int64_t i = 0;
    for (; i + CADRE_LANES <= n; i += CADRE_LANES) {
        for (int j = 0; j < CADRE_LANES; j++) {
            lane[j] += (x[i + j] - center) * (y[i + j] - center);
        }
    }
    for (int j = 0; i + j < n; j++) {
        lane[j] += (x[i + j] - center) * (y[i + j] - center);
    }
    return cadre_lanes_join(lane);
}

// The bits of a number as an integer, in the order of the numbers, and back.
CADRE_VECTOR_BODY int32_t cadre_lanes_place(int32_t bits)
{
    return bits ^ ((bits >> 31) & INT32_MAX);
}

/**
 * The largest of x, n of them and at least one; of NaNs, one that has no sign is
 * above all numbers, and one that has one below.  Compilers vectorise that of
 * integers, whose order does not matter.
 */
CADRE_VECTOR_BODY float cadre_lanes_max(const float *x, int64_t n)
{
    int32_t top = INT32_MIN;
    for (int64_t i = 0; i < n; i++) {
        int32_t place = cadre_lanes_place((int32_t)cadre_bits_of_f32(x[i]));
        top = place > top ? place : top;
    }
    return cadre_f32_of_bits((uint32_t)cadre_lanes_place(top));
}

#endif // CADRE_NN_LANES_H
