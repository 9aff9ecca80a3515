// SPDX-License-Identifier: Apache-2.0
//
// A bucket as its owner sees it: arrays for the elements of the owned part, and
// the tree on which the nodes of all rounds are added up.
//
// A node is an array, packed without gaps, or lies in a plane of the layout:
// `plane` if it is this rank's own and stays there, else a peer's, which is only
// read.
//
// Memory:  arrays are the caller's; a stack of pointers keeps the free ones.
// Threads: one at a time.

#ifndef CADRE_PARALLEL_OWNED_H
#define CADRE_PARALLEL_OWNED_H

#include "kernel/exact.h"
#include "parallel/bucket.h"
#include "state/tree.h"

typedef struct cadre_owned {
    const cadre_bucket_part *part; // borrowed
    const float *arrays;           // all of them, one after another
    const float *arrays_end;
    float **free; // stack of arrays
    int n_free;
    float *plane; // or NULL
    cadre_tree tree;
    float *sum; // after close: plane, or an array
} cadre_owned;

/** Starts a step with n_arrays of so many elements each. */
void cadre_owned_begin(
    cadre_owned *own, float *arrays, int n_arrays, size_t elements);

/** An array of any content. */
float *cadre_owned_take(cadre_owned *own);
void cadre_owned_give_back(cadre_owned *own, float *array);

/** Puts the next node on the tree and adds up what can be. */
void cadre_owned_push(cadre_owned *own, int level, float *node);

/** After the last node: adds up the rest. */
void cadre_owned_close(cadre_owned *own);

/**
 * Adds the squares of the sum's gradients; false if it is not all finite,
 * buffers' statistics included.
 */
bool cadre_owned_squares(
    const cadre_owned *own, const cadre_layout *layout, cadre_exact *squares);

/** Where slice i of the sum lies; packed counts elements of those before. */
const float *cadre_owned_slice(const cadre_owned *own, int i, size_t packed);

#endif // CADRE_PARALLEL_OWNED_H
