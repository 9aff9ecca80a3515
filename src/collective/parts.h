// SPDX-License-Identifier: Apache-2.0
//
// The owner's reduction of one part over all ranks, along the tree of
// docs/numerics.md section 2.
//
// Parts of 16-bit elements are received as they are, widened here to f32, and
// rounded once, after the last rank's has gone in.
//
// Threads: any.

#ifndef CADRE_COLLECTIVE_PARTS_H
#define CADRE_COLLECTIVE_PARTS_H

#include "cadre/types.h"

/** Memory for the parts that the other ranks send. */
typedef struct cadre_parts {
    char *memory;        // cadre_parts_bytes(), aligned as cadre_alloc() does
    char *received;      // in it
    size_t stride_bytes; // from one received part to the next
    cadre_dtype dtype;
    int world_size;
    int rank; // the owner, whose own part is elsewhere
} cadre_parts;

/** Bytes of memory for parts of count elements; SIZE_MAX if too many. */
size_t cadre_parts_bytes(int world_size, cadre_dtype dtype, size_t count);

cadre_parts cadre_parts_lay_out(
    void *memory, int world_size, int rank, cadre_dtype dtype, size_t count);

/** Where the part of peer, not this rank, is to be received. */
void *cadre_parts_of(const cadre_parts *parts, int peer);

/**
 * Reduces count elements over all ranks into out; the parts' content is lost.
 *
 * own is this rank's part; out may be own, or lie before it and overlap it, as
 * in a reduce-scatter in place.  Neither need be aligned.
 */
void cadre_parts_reduce(const cadre_parts *parts, cadre_reduce_op op,
    const void *own, void *out, size_t count);

#endif // CADRE_COLLECTIVE_PARTS_H
