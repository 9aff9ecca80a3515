// SPDX-License-Identifier: Apache-2.0
//
// What a reduction gives, written down without thought of speed: one element at
// a time, along the recursive definition of the tree, computed in wider numbers
// and rounded by the definition of rounding (docs/numerics.md section 2).

#ifndef CADRE_TESTS_SUPPORT_REFERENCE_H
#define CADRE_TESTS_SUPPORT_REFERENCE_H

#include "cadre/types.h"
#include <stdbool.h>
#include <stdint.h>

enum { N_DTYPES = CADRE_F16 + 1, N_OPS = CADRE_PRODUCT + 1 };

/** False for integers. */
bool reference_is_real(cadre_dtype dtype);

/** What an element of 16 bits stands for. */
double reference_widen(cadre_dtype dtype, uint16_t narrow);

/** The element of 16 bits that is nearest to wide, ties to even. */
uint16_t reference_narrow(cadre_dtype dtype, float wide);

/**
 * Fills count elements with values whose sum depends on the order: zeros of
 * both signs, subnormals, infinities and any bits at all are among them.
 */
void reference_fill(cadre_dtype dtype, uint32_t rank, void *run, size_t count);

/** Reduces element i of n runs to element i of out. */
void reference_reduce(cadre_dtype dtype, cadre_reduce_op op,
    const void *const runs[], int n, size_t i, void *out);

/**
 * The same round the ring of n ranks: from the rank after the element's owner to
 * the owner.
 */
void reference_reduce_ring(cadre_dtype dtype, cadre_reduce_op op,
    const void *const runs[], int n, int owner, size_t i, void *out);

/** An element as a number; of i64 only what a double can hold. */
double reference_value(cadre_dtype dtype, const void *run, size_t i);

/**
 * Fills count elements with small dyadic numbers, which no order of summation
 * over 13 ranks rounds, also not in 16 bits.
 */
void reference_fill_dyadic(
    cadre_dtype dtype, uint32_t rank, void *run, size_t count);

/**
 * The first of count elements in which two runs differ, or count.  A NaN equals
 * any other.
 */
size_t reference_difference(
    cadre_dtype dtype, const void *a, const void *b, size_t count);

#endif // CADRE_TESTS_SUPPORT_REFERENCE_H
