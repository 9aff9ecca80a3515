// SPDX-License-Identifier: Apache-2.0

#include "state/plane.h"

size_t cadre_plane_shard(
    const cadre_layout *layout, int rank, int n, cadre_plane_part *parts)
{
    size_t total = 0;
    for (int u = 0; u < layout->n_units; u++) {
        parts[u].shard = cadre_shard_of(&layout->units[u], rank, n);
        parts[u].start = total;
        total += parts[u].shard.hi - parts[u].shard.lo;
    }
    return total;
}

float *cadre_plane_at(const cadre_plane *plane, int unit, size_t index)
{
    if (plane->parts == NULL) {
        return plane->data + index;
    }
    const cadre_plane_part *part = &plane->parts[unit];
    return plane->data + part->start + (index - part->shard.lo);
}
