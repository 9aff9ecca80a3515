// SPDX-License-Identifier: Apache-2.0
//
// Leaves: the V fixed parts of a step's batch, and who computes which
// (docs/numerics.md sections 1 and 3).  Pure functions.
//
// Threads: any.

#ifndef CADRE_STATE_LEAF_H
#define CADRE_STATE_LEAF_H

#include <stdbool.h>
#include <stdint.h>

enum { CADRE_MAX_LEAVES = 65536 };

/** Of n_samples, leaf l of V holds [*lo, *hi). */
void cadre_leaf_samples(
    int64_t n_samples, int n_leaves, int leaf, int64_t *lo, int64_t *hi);

/**
 * How leaves are dealt: block j is leaves [j k, (j + 1) k), it belongs to rank
 * j mod n and is folded in round j div n.
 */
typedef struct cadre_dealing {
    int n_leaves;   // V
    int block;      // k, a power of two
    int world_size; // n
} cadre_dealing;

/** The k of the deferred fold: the largest power of two that divides V / n. */
int cadre_fold_deferred(int n_leaves, int world_size);

/** The k of the eager fold: the largest power of two up to n_threads. */
int cadre_fold_eager(int n_threads);

/** The level of a whole block's node in the tree: log2 k. */
int cadre_dealing_level(const cadre_dealing *d);

/** Blocks in all: ceil(V / k). */
int cadre_dealing_blocks(const cadre_dealing *d);

/** Rounds: ceil(V / (k n)). */
int cadre_dealing_rounds(const cadre_dealing *d);

/** The number of leaves in block j; only the last may have fewer than k. */
int cadre_dealing_block_leaves(const cadre_dealing *d, int block);

/** True if rank has a block in this round. */
bool cadre_dealing_has_block(const cadre_dealing *d, int rank, int round);

/** The number of rank's leaves. */
int cadre_dealing_rank_leaves(const cadre_dealing *d, int rank);

/** Rank's i-th leaf, in order; i below cadre_dealing_rank_leaves(). */
int cadre_dealing_rank_leaf(const cadre_dealing *d, int rank, int i);

/** The inverse: which of its rank's leaves this one is, from 0. */
int cadre_dealing_leaf_index(const cadre_dealing *d, int leaf);

#endif // CADRE_STATE_LEAF_H
