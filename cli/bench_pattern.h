// SPDX-License-Identifier: Apache-2.0
//
// What `cadre bench` puts into buffers, and what must come out: small whole
// numbers that tell rank and place apart, chosen so that every rank can work
// out the bits of every result by itself.  Sums and products are exact in the
// type that they are taken in, so the order does not matter; a mean is divided,
// and 16 bits are rounded to, once.
//
// Memory:  none but the pattern itself.
// Threads: a pattern belongs to one; no state.

#ifndef CADRE_CLI_BENCH_PATTERN_H
#define CADRE_CLI_BENCH_PATTERN_H

#include <cadre/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A prime, so that a part at the wrong place shows.
enum { PATTERN_PERIOD = 251 };

typedef struct pattern_kind {
    cadre_dtype dtype;
    bool reduced; // else moved as it is
    cadre_reduce_op op;
    int n_ranks;
} pattern_kind;

typedef struct pattern {
    size_t element_bytes;
    uint8_t bytes[2 * PATTERN_PERIOD * sizeof(double)]; // two periods
} pattern;

/** What this rank brings. */
pattern pattern_of_rank(const pattern_kind *kind, int rank);

/** What comes out of a reduction over all ranks. */
pattern pattern_of_result(const pattern_kind *kind);

/** Writes count elements, those from number `first` on. */
void pattern_write(
    const pattern *p, size_t first, size_t count, void *elements);

/** How many of count elements differ in their bits from what was expected. */
size_t pattern_count_wrong(
    const pattern *p, size_t first, size_t count, const void *elements);

#endif // CADRE_CLI_BENCH_PATTERN_H
