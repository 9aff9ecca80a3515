// SPDX-License-Identifier: Apache-2.0

#include "parallel/whole.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "parallel/verdict.h"
#include <string.h>

// Room for the largest unit, and for the ranks' shares of one.
typedef struct room {
    float *unit;
    size_t *counts;
} room;

// All ranks have it, or none.
static cadre_status make_room(
    cadre_group *group, const cadre_layout *layout, room *r)
{
    size_t largest = 0;
    for (int u = 0; u < layout->n_units; u++) {
        size_t count = layout->units[u].hi - layout->units[u].lo;
        largest = count > largest ? count : largest;
    }
    *r = (room){
        .unit = cadre_alloc_array(largest, sizeof(float)),
        .counts =
            cadre_alloc_array((size_t)cadre_world_size(group), sizeof(size_t)),
    };
    bool made = r->unit != NULL && r->counts != NULL;
    return cadre_share_verdict(group, made ? CADRE_OK : CADRE_ERR_NO_MEMORY);
}

static void release_room(room *r)
{
    cadre_free(r->unit);
    cadre_free(r->counts);
}

static cadre_status collect_unit(cadre_group *group, const cadre_unit *unit,
    const room *r, const float *part, float *whole)
{
    int n = cadre_world_size(group);
    for (int rank = 0; rank < n; rank++) {
        cadre_shard s = cadre_shard_of(unit, rank, n);
        r->counts[rank] = s.hi - s.lo;
    }
    float *to = whole == NULL ? r->unit : whole + unit->lo;
    return cadre_allgather(group, part, to, r->counts, CADRE_F32, NULL);
}

cadre_status cadre_plane_collect(cadre_group *group, const cadre_layout *layout,
    cadre_placement placement, const float *part, float *whole)
{
    if (placement != CADRE_SHARDED) {
        if (whole != NULL) {
            memcpy(whole, part, layout->n_elements * sizeof(*whole));
        }
        return CADRE_OK;
    }
    room r;
    cadre_status status = make_room(group, layout, &r);
    for (int u = 0; u < layout->n_units && status == CADRE_OK; u++) {
        status = collect_unit(group, &layout->units[u], &r, part, whole);
        part += r.counts[cadre_rank(group)];
    }
    release_room(&r);
    return status;
}

static cadre_status deal_whole(cadre_group *group, const cadre_layout *layout,
    const float *whole, float *part)
{
    if (whole != NULL && whole != part) {
        memcpy(part, whole, layout->n_elements * sizeof(*part));
    }
    return cadre_broadcast(group, part, layout->n_elements, CADRE_F32, 0, NULL);
}

cadre_status cadre_plane_deal(cadre_group *group, const cadre_layout *layout,
    cadre_placement placement, float *whole, float *part)
{
    if (placement != CADRE_SHARDED) {
        return deal_whole(group, layout, whole, part);
    }
    int rank = cadre_rank(group);
    int n = cadre_world_size(group);
    room r;
    cadre_status status = make_room(group, layout, &r);
    for (int u = 0; u < layout->n_units && status == CADRE_OK; u++) {
        const cadre_unit *unit = &layout->units[u];
        float *from = whole == NULL ? r.unit : whole + unit->lo;
        status = cadre_broadcast(
            group, from, unit->hi - unit->lo, CADRE_F32, 0, NULL);
        cadre_shard own = cadre_shard_of(unit, rank, n);
        size_t count = own.hi - own.lo;
        if (status == CADRE_OK && count > 0) {
            memcpy(part, from + (own.lo - unit->lo), count * sizeof(*part));
        }
        part += count;
    }
    release_room(&r);
    return status;
}
