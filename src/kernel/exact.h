// SPDX-License-Identifier: Apache-2.0
//
// Sums that have no order: a fixed-point accumulator so wide that adding a
// double is exact, so neither rank nor thread nor order can matter
// (docs/numerics.md section 6).
//
// 22 signed words are digits of 32 bits each, the lowest of unit 2^-320: room
// for 2^40 squares of f32 numbers.  Bits of a term below 2^-320 are cut.  After
// cadre_exact_settle() the words of several ranks may be added as integers.
//
// Threads: one at a time per accumulator.

#ifndef CADRE_KERNEL_EXACT_H
#define CADRE_KERNEL_EXACT_H

#include <stdbool.h>
#include <stdint.h>

enum { CADRE_EXACT_WORDS = 22 };

typedef struct cadre_exact {
    int64_t word[CADRE_EXACT_WORDS];
    uint32_t unsettled; // terms since carries were last moved up
} cadre_exact;

/**
 * Adds value.  False, and nothing added, if it is not finite or not below
 * 2^300 in magnitude.
 */
bool cadre_exact_add(cadre_exact *sum, double value);

/** Moves carries up: all words but the top one are then in [0, 2^32). */
void cadre_exact_settle(cadre_exact *sum);

/** Adds another sum's words, settled before. */
void cadre_exact_merge(cadre_exact *sum, const int64_t *words);

/** The sum, rounded once to the nearest double, ties to even. */
double cadre_exact_value(const cadre_exact *sum);

#endif // CADRE_KERNEL_EXACT_H
