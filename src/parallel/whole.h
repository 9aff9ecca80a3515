// SPDX-License-Identifier: Apache-2.0
//
// Whole planes out of the parts that ranks hold, and back.  Of a sharded plane a
// rank holds its shards of all units, one after another without gaps, as
// cadre_plane_shard() (state/plane.h) says.
//
// Memory:  one unit's elements while a sharded plane is collected or dealt.
// Threads: the group's.

#ifndef CADRE_PARALLEL_WHOLE_H
#define CADRE_PARALLEL_WHOLE_H

#include "cadre/group.h"
#include "state/layout.h"
#include "state/placement.h"

/**
 * Fills in rank 0's whole plane from all ranks' parts.  Collective.
 *
 * whole is NULL on other ranks.  Gaps are left as they are.
 *
 * Errors: CADRE_ERR_NO_MEMORY, the same on all ranks; those of a collective
 */
cadre_status cadre_plane_collect(cadre_group *group, const cadre_layout *layout,
    cadre_placement placement, const float *part, float *whole);

/**
 * Gives every rank its part of rank 0's whole plane.  Collective.
 *
 * whole is NULL on other ranks, and may be part on rank 0 if it is replicated.
 *
 * Errors: as above
 */
cadre_status cadre_plane_deal(cadre_group *group, const cadre_layout *layout,
    cadre_placement placement, float *whole, float *part);

#endif // CADRE_PARALLEL_WHOLE_H
