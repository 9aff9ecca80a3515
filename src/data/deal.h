// SPDX-License-Identifier: Apache-2.0
//
// Which samples a step takes: a pure function, so that no rank keeps a list and
// the order does not know how many ranks there are.
//
// An epoch is a pass over the data in an order that is a function of (seed,
// epoch): a permutation made by a Feistel network over the next power of four,
// walked until it falls below n (Black, Rogaway, "Ciphers with Arbitrary Finite
// Domains", CT-RSA 2002).
//
// Threads: any.

#ifndef CADRE_DATA_DEAL_H
#define CADRE_DATA_DEAL_H

#include <stdbool.h>
#include <stdint.h>

/**
 * The samples at count positions of an epoch, from first on; positions and
 * results in [0, n).  Sixteen or more at once take a fraction of the time.
 */
void cadre_deal_samples(uint64_t seed, int64_t epoch, int64_t n_samples,
    int64_t first, int64_t count, int64_t *samples);

/** A step's part of an epoch. */
typedef struct cadre_batch {
    int64_t epoch;     // from 0
    int64_t first;     // position in the epoch
    int64_t n_samples; // the global batch's, less at an epoch's end
} cadre_batch;

/** Steps per epoch: a final short batch counts unless it is dropped. */
int64_t cadre_deal_steps(
    int64_t n_samples, int64_t global_batch, bool drop_last);

/** The batch of step, counted from 0.  global_batch is at most n_samples. */
cadre_batch cadre_deal_batch(
    int64_t n_samples, int64_t global_batch, bool drop_last, int64_t step);

#endif // CADRE_DATA_DEAL_H
