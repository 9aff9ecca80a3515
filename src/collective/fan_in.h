// SPDX-License-Identifier: Apache-2.0
//
// One block of elements reduced over all ranks, along the tree of
// docs/numerics.md section 2.
//
// A block, and all that is computed from it, stay in the innermost cache, so
// whoever reduces a long run goes block by block.  Elements of 16 bits are
// widened to f32 and rounded once, after the last rank's has gone in.
//
// Ranks' memory is read where it lies.  The last addition writes to wherever the
// result is wanted; where that is more than two places, to the first, from which
// the block is copied while it is still in the cache.
//
// Memory:  all of it is the caller's.
// Threads: any.

#ifndef CADRE_COLLECTIVE_FAN_IN_H
#define CADRE_COLLECTIVE_FAN_IN_H

#include "cadre/types.h"
#include <stdbool.h>

typedef struct cadre_fan_in {
    cadre_dtype dtype;
    cadre_reduce_op op;
    int world_size;
    const void **in; // what each rank brings, aligned to its element
    void **to;       // where the result goes: to each of n_to places, in[] or
    int n_to;        // others that overlap none of them; unaligned, if need be
    char *scratch;   // cadre_fan_in_scratch_bytes()
} cadre_fan_in;

size_t cadre_fan_in_scratch_bytes(int world_size);

/** The most elements of one block. */
size_t cadre_fan_in_elements(cadre_dtype dtype);

/**
 * True if nothing is kept in scratch on the way, so that a block may have any
 * number of elements: the only addition is the last.
 */
bool cadre_fan_in_is_direct(const cadre_fan_in *f);

/** Reduces count elements. */
void cadre_fan_in_block(const cadre_fan_in *f, size_t count);

#endif // CADRE_COLLECTIVE_FAN_IN_H
