// SPDX-License-Identifier: Apache-2.0
//
// Sums of squares for norms, piece by piece (docs/numerics.md section 6).
//
// A piece is what a quantum of 256 elements shares with a segment.  Its sum is
// f64 in 8 lanes, by index in the quantum mod 8, each in index order; the lanes
// are then joined pair by pair.  Pieces are added exactly.
//
// Threads: any.

#ifndef CADRE_KERNEL_SQUARES_H
#define CADRE_KERNEL_SQUARES_H

#include "kernel/exact.h"
#include <stdbool.h>
#include <stddef.h>

/** Elements of a quantum: the grain of shards, pieces and hashes. */
enum { CADRE_QUANTUM = 256 };

/**
 * Adds the squares of count elements, whose first has this layout index.
 *
 * The run lies in one segment; only its ends may lie within a quantum, and the
 * first element of a piece is a multiple of 8.  False if some element is not
 * finite; pieces with such elements are left out.
 */
bool cadre_add_squares(
    cadre_exact *sum, const float *x, size_t index, size_t count);

#endif // CADRE_KERNEL_SQUARES_H
