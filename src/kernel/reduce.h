// SPDX-License-Identifier: Apache-2.0
//
// The sum of two runs, the one operation that reductions are made of.
//
// Threads: any.

#ifndef CADRE_KERNEL_REDUCE_H
#define CADRE_KERNEL_REDUCE_H

#include "cadre/types.h"

/**
 * left = left + right, element by element, each rounded once.
 *
 * The runs must not overlap and are aligned to their element.  Integers wrap.
 * Signed zeros, infinities and subnormals are as IEEE 754 says; a NaN stays
 * one, without promise of its payload (docs/numerics.md section 2).
 */
void cadre_reduce_sum(
    cadre_dtype dtype, void *left, const void *right, size_t count);

#endif // CADRE_KERNEL_REDUCE_H
