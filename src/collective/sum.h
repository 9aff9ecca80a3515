// SPDX-License-Identifier: Apache-2.0
//
// The owner's sum of one part over all ranks, along the tree of
// docs/numerics.md section 2.
//
// Threads: any.

#ifndef CADRE_COLLECTIVE_SUM_H
#define CADRE_COLLECTIVE_SUM_H

#include "cadre/types.h"

/** Memory for the parts that the other ranks send. */
typedef struct cadre_parts {
    void *memory;        // cadre_parts_bytes(), aligned as cadre_alloc() does
    size_t stride_bytes; // from one part to the next
    int world_size;
    int rank; // the owner, whose own part is elsewhere
} cadre_parts;

/** Bytes of memory for parts of so many bytes; SIZE_MAX if too many. */
size_t cadre_parts_bytes(int world_size, size_t part_bytes);

cadre_parts cadre_parts_lay_out(
    void *memory, int world_size, int rank, size_t part_bytes);

/** Where the part of peer, not this rank, is to be received. */
void *cadre_parts_of(const cadre_parts *parts, int peer);

/**
 * Sums count elements over all ranks into out; the parts' content is lost.
 *
 * own is this rank's part; out may be own, or lie before it and overlap it, as
 * in a reduce-scatter in place.  Neither need be aligned.
 */
void cadre_parts_sum(const cadre_parts *parts, cadre_dtype dtype,
    const void *own, void *out, size_t count);

#endif // CADRE_COLLECTIVE_SUM_H
