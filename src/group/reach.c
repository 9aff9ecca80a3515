// SPDX-License-Identifier: Apache-2.0

#include "group/reach.h"

#include "base/alloc.h"
#include "base/check.h"
#include "group/work.h"
#include <inttypes.h>
#include <string.h>

// A rank's memory, in words that travel.
typedef struct place {
    uint64_t arena; // 0: it has no name
    uint64_t offset;
    uint64_t nbytes;
} place;

enum {
    PLACE_WORDS = sizeof(place) / sizeof(uint64_t),
    ALIGNMENT = 4, // of what is looked for
};

struct cadre_reach {
    cadre_group *group;
    const char *memory; // this rank's
    place *places;      // per rank
    char **peers;       // per rank, its memory as found last
};

static cadre_status make(
    cadre_group *group, const void *memory, cadre_reach **out)
{
    size_t n = (size_t)group->world_size;
    cadre_reach *r = cadre_alloc(sizeof(*r));
    if (r == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    r->group = group;
    r->memory = memory;
    r->places = cadre_alloc_array(n, sizeof(*r->places));
    r->peers = cadre_alloc_array(n, sizeof(*r->peers));
    if (r->places == NULL || r->peers == NULL) {
        cadre_reach_close(r);
        return CADRE_ERR_NO_MEMORY;
    }
    *out = r;
    return CADRE_OK;
}

// All ranks get the places of all.
static cadre_status gather_places(cadre_reach *r, size_t nbytes)
{
    cadre_group *group = r->group;
    cadre_shared_name name = {0};
    if (r->memory != NULL && group->shared != NULL &&
        !group->transport->ops->shared->name(
            group->transport, r->memory, nbytes, &name)) {
        name = (cadre_shared_name){0};
    }
    place *mine = &r->places[group->rank];
    *mine = (place){name.arena, name.offset, nbytes};
    return cadre_gather_words(group, mine, PLACE_WORDS, r->places);
}

static bool all_named(const cadre_reach *r)
{
    bool all = true;
    for (int i = 0; i < r->group->world_size; i++) {
        all = all && r->places[i].arena != 0;
    }
    return all;
}

cadre_status cadre_reach_open(
    cadre_group *group, const void *memory, size_t nbytes, cadre_reach **out)
{
    cadre_reach *r = NULL;
    CADRE_TRY(make(group, memory, &r));
    cadre_status status = gather_places(r, nbytes);
    if (status != CADRE_OK || !all_named(r)) {
        cadre_reach_close(r);
        *out = NULL;
        return status;
    }
    *out = r;
    return CADRE_OK;
}

void cadre_reach_close(cadre_reach *reach)
{
    if (reach == NULL) {
        return;
    }
    cadre_free(reach->peers);
    cadre_free(reach->places);
    cadre_free(reach);
}

// A peer whose memory is not what it said has failed, or runs wild.
static cadre_status lose(cadre_reach *r, int peer, cadre_status status)
{
    if (status == CADRE_ERR_CORRUPT) {
        r->group->transport->failed_peer = peer;
        status = cadre_fail(CADRE_ERR_PEER_LOST,
            "what rank %d shares is unusable: %s", peer, cadre_error_text());
    }
    return cadre_group_break_by_transport(r->group, status);
}

cadre_status cadre_reach_find(cadre_reach *reach)
{
    cadre_transport *t = reach->group->transport;
    for (int i = 0; i < t->world_size; i++) {
        const place *at = &reach->places[i];
        const cadre_shared_name name = {at->arena, at->offset};
        void *found = NULL;
        if (i == t->rank) {
            continue;
        }
        cadre_status status =
            t->ops->shared->reach(t, i, name, at->nbytes, &found);
        if (status != CADRE_OK) {
            return lose(reach, i, status);
        }
        reach->peers[i] = found;
    }
    return CADRE_OK;
}

static bool has_place(
    const cadre_reach *r, int rank, uint64_t offset, size_t nbytes)
{
    uint64_t there = r->places[rank].nbytes;
    return offset <= there && nbytes <= there - offset;
}

static cadre_status no_place(
    cadre_reach *r, int peer, uint64_t offset, size_t nbytes)
{
    return lose(r, peer,
        cadre_fail(CADRE_ERR_CORRUPT,
            "it has %" PRIu64 " bytes, %zu are to be at %" PRIu64,
            r->places[peer].nbytes, nbytes, offset));
}

cadre_status cadre_reach_at(
    cadre_reach *reach, int peer, uint64_t offset, size_t nbytes, void **out)
{
    if (offset % ALIGNMENT != 0 || !has_place(reach, peer, offset, nbytes)) {
        return no_place(reach, peer, offset, nbytes);
    }
    *out = reach->peers[peer] + offset;
    return CADRE_OK;
}

cadre_status cadre_reach_put(cadre_reach *reach, const void *own, size_t nbytes)
{
    const cadre_transport *t = reach->group->transport;
    size_t at = (size_t)((const char *)own - reach->memory);
    CADRE_ASSERT(has_place(reach, t->rank, at, nbytes));
    for (int i = 1; i < t->world_size; i++) {
        // Beginning with the next rank, so that not all write to the same one.
        int peer = (t->rank + i) % t->world_size;
        if (!has_place(reach, peer, at, nbytes)) {
            return no_place(reach, peer, at, nbytes);
        }
        memcpy(reach->peers[peer] + at, own, nbytes);
    }
    return CADRE_OK;
}
