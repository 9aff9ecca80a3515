// SPDX-License-Identifier: Apache-2.0
//
// What reductions are made of: the operation on two runs, and the last step
// that makes a mean of a sum.
//
// Elements of 16 bits are not reduced as such.  They are widened to f32
// (kernel/narrow.h), reduced as f32, and rounded once at the end; so ask
// cadre_accumulator() for the type to work in.
//
// Threads: any.

#ifndef CADRE_KERNEL_REDUCE_H
#define CADRE_KERNEL_REDUCE_H

#include "cadre/types.h"
#include <stdbool.h>

/** The type in which dtype is reduced: f32 for 16 bits, else itself. */
cadre_dtype cadre_accumulator(cadre_dtype dtype);

/** False for the mean of integers, and for values that are no type or op. */
bool cadre_reduce_is_defined(cadre_dtype dtype, cadre_reduce_op op);

/**
 * left = left op right, element by element, each rounded once; for CADRE_MEAN
 * the sum, see cadre_reduce_finish().
 *
 * accumulator is a type that cadre_accumulator() returns.  The runs must not
 * overlap and are aligned to their element.  Integers wrap.  Sums and products
 * of signed zeros, infinities and subnormals are as IEEE 754 says; the smaller
 * and the larger of two numbers is a NaN if one of them is, and -0 is below +0.
 * A NaN stays one, without promise of its payload (docs/numerics.md section 2).
 */
void cadre_reduce(cadre_dtype accumulator, cadre_reduce_op op, void *left,
    const void *right, size_t count);

/**
 * The same, but the results go to n_to places.  Each of them begins where
 * left or right does, or before that, or overlaps neither; it need not be
 * aligned.
 */
void cadre_reduce_to(cadre_dtype accumulator, cadre_reduce_op op,
    const void *left, const void *right, size_t count, void *const to[],
    int n_to);

/**
 * Makes the result over so many ranks of what cadre_reduce() has left: a mean
 * is divided, with one rounding; nothing else changes.
 */
void cadre_reduce_finish(cadre_dtype accumulator, cadre_reduce_op op, void *run,
    size_t count, int n_ranks);

#endif // CADRE_KERNEL_REDUCE_H
