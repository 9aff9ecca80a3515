// SPDX-License-Identifier: Apache-2.0
//
// Shards: which part of a unit belongs to which rank.  A pure function in quanta
// of 256 elements: uneven by at most one quantum, no padding, and empty where
// there are fewer quanta than ranks.
//
// Threads: any.

#ifndef CADRE_STATE_SHARD_H
#define CADRE_STATE_SHARD_H

#include "kernel/squares.h" // CADRE_QUANTUM
#include "state/unit.h"
#include <stddef.h>

/** A range [lo, hi) of the layout. */
typedef struct cadre_shard {
    size_t lo;
    size_t hi;
} cadre_shard;

/** Rank's part of unit among n ranks. */
cadre_shard cadre_shard_of(const cadre_unit *unit, int rank, int n);

/**
 * Chunk c of n_chunks of a shard: what of it travels at once.  Also in quanta,
 * so that chunks never split a piece and never change who owns what.
 */
cadre_shard cadre_shard_chunk(cadre_shard shard, int chunk, int n_chunks);

#endif // CADRE_STATE_SHARD_H
