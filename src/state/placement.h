// SPDX-License-Identifier: Apache-2.0
//
// Placements: per plane, who holds it.  The table of placements *is* the mode
// (the ZeRO stage); a new mode is a new row.
//
// Threads: any.

#ifndef CADRE_STATE_PLACEMENT_H
#define CADRE_STATE_PLACEMENT_H

#include <stddef.h>

typedef enum cadre_placement {
    CADRE_REPLICATED = 0, // every rank holds all of it
    CADRE_SHARDED = 1,    // every rank holds its shards
    CADRE_PARTIAL = 2,    // every rank holds a sum not yet taken
} cadre_placement;

typedef struct cadre_placement_row {
    const char *mode; // "ddp"
    cadre_placement params;
    cadre_placement grads;
    cadre_placement optimizer;
} cadre_placement_row;

/** The row of a mode by its number, or NULL if there is none. */
const cadre_placement_row *cadre_placement_of(int mode);

#endif // CADRE_STATE_PLACEMENT_H
