// SPDX-License-Identifier: Apache-2.0
//
// A plane: one array of state over the layout.  The layout's coordinate names an
// element in all of them: parameters, moments, gradients.
//
// A replicated plane has every element at its layout index.  A sharded one has,
// unit after unit, this rank's shard and nothing else: at most its share of the
// whole and a quantum per unit.
//
// Memory:  a plane borrows its data; who makes it says where it lies.
// Threads: any.

#ifndef CADRE_STATE_PLANE_H
#define CADRE_STATE_PLANE_H

#include "state/layout.h"
#include <stddef.h>

/** What a sharded plane holds of one unit. */
typedef struct cadre_plane_part {
    cadre_shard shard;
    size_t start; // where it begins in data
} cadre_plane_part;

typedef struct cadre_plane {
    const char *name; // "params", "exp_avg"
    float *data;      // replicated: layout->n_elements of them
    size_t nbytes;
    const cadre_plane_part *parts; // sharded: per unit; NULL: replicated
} cadre_plane;

/**
 * Fills in what rank of n holds of each unit in a sharded plane, and returns how
 * many elements that is.
 */
size_t cadre_plane_shard(
    const cadre_layout *layout, int rank, int n, cadre_plane_part *parts);

/** Where an element of a unit lies; in a sharded plane one of its shard. */
float *cadre_plane_at(const cadre_plane *plane, int unit, size_t index);

#endif // CADRE_STATE_PLANE_H
