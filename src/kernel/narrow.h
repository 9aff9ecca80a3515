// SPDX-License-Identifier: Apache-2.0
//
// Numbers of 16 bits, which travel and are stored as such, and are computed
// with as f32.
//
// Threads: any.

#ifndef CADRE_KERNEL_NARROW_H
#define CADRE_KERNEL_NARROW_H

#include "cadre/types.h"
#include <stdint.h>

/** Converts count elements of dtype, CADRE_BF16 or CADRE_F16: always exact. */
void cadre_widen(
    cadre_dtype dtype, float *wide, const uint16_t *narrow, size_t count);

/**
 * Converts count numbers to dtype, CADRE_BF16 or CADRE_F16: to the nearest,
 * ties to even; subnormals are kept, what is too large becomes an infinity.  A
 * NaN becomes a quiet NaN, without promise of its payload.
 */
void cadre_narrow(
    cadre_dtype dtype, uint16_t *narrow, const float *wide, size_t count);

#endif // CADRE_KERNEL_NARROW_H
