// SPDX-License-Identifier: Apache-2.0
//
// Where buffers lie in one block when it is known beforehand from when to when
// each is needed: two that are needed at the same time never overlap, others
// share.
//
// Threads: any.

#ifndef CADRE_NN_LIFETIMES_H
#define CADRE_NN_LIFETIMES_H

#include "cadre/status.h"
#include <stddef.h>

/** A buffer's life; count 0 if it is not needed at all. */
typedef struct cadre_lifetime {
    size_t count;  // floats
    int first;     // moment of its first write
    int last;      // moment of its last read, at least first
    size_t offset; // into the block, in whole cache lines
} cadre_lifetime;

/**
 * Gives each buffer an offset, and *count the floats of the block: the largest
 * first, each into the smallest gap that it fits.
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_lifetimes_place(
    cadre_lifetime *all, size_t n, size_t *count);

#endif // CADRE_NN_LIFETIMES_H
