// SPDX-License-Identifier: Apache-2.0

#include "group/mirror.h"

#include "base/alloc.h"
#include "base/check.h"
#include "group/work.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>

struct cadre_mirror {
    cadre_group *group;
    const char *memory; // this rank's
    size_t nbytes;
    cadre_shared_name *names; // per rank, of its memory
    char **peers;             // per rank, as found last
};

enum { NAME_WORDS = 2 };
static_assert(sizeof(cadre_shared_name) == NAME_WORDS * sizeof(int64_t),
    "names travel as words");

static cadre_status make(
    cadre_group *group, const void *memory, size_t nbytes, cadre_mirror **out)
{
    size_t n = (size_t)group->world_size;
    cadre_mirror *m = cadre_alloc(sizeof(*m));
    if (m == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    m->group = group;
    m->memory = memory;
    m->nbytes = nbytes;
    m->names = cadre_alloc_array(n, sizeof(*m->names));
    m->peers = cadre_alloc_array(n, sizeof(*m->peers));
    if (m->names == NULL || m->peers == NULL) {
        cadre_mirror_close(m);
        return CADRE_ERR_NO_MEMORY;
    }
    *out = m;
    return CADRE_OK;
}

// All ranks get the names of all.  What has no name is named by zeros.
static cadre_status gather_names(cadre_mirror *m)
{
    const cadre_group *group = m->group;
    size_t n = (size_t)group->world_size;
    const cadre_transport *t = group->transport;
    cadre_shared_name *mine = &m->names[group->rank];
    if (m->memory != NULL && group->shared != NULL &&
        !t->ops->shared->name(group->transport, m->memory, m->nbytes, mine)) {
        *mine = (cadre_shared_name){0};
    }
    size_t *counts = cadre_alloc_array(n, sizeof(*counts));
    if (counts == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    for (size_t r = 0; r < n; r++) {
        counts[r] = NAME_WORDS;
    }
    cadre_status status =
        cadre_allgather(m->group, mine, m->names, counts, CADRE_I64, NULL);
    cadre_free(counts);
    return status;
}

static bool all_named(const cadre_mirror *m)
{
    bool all = true;
    for (int r = 0; r < m->group->world_size; r++) {
        all = all && m->names[r].arena != 0;
    }
    return all;
}

cadre_status cadre_mirror_open(
    cadre_group *group, const void *memory, size_t nbytes, cadre_mirror **out)
{
    cadre_mirror *m = NULL;
    CADRE_TRY(make(group, memory, nbytes, &m));
    cadre_status status = gather_names(m);
    if (status != CADRE_OK || !all_named(m)) {
        cadre_mirror_close(m);
        m = NULL;
    }
    *out = m;
    return status;
}

void cadre_mirror_close(cadre_mirror *mirror)
{
    if (mirror == NULL) {
        return;
    }
    cadre_free(mirror->peers);
    cadre_free(mirror->names);
    cadre_free(mirror);
}

// A peer that is found no more has failed, or runs wild.
static cadre_status lose(cadre_mirror *m, int peer)
{
    char text[CADRE_FAIL_TEXT_BYTES];
    snprintf(text, sizeof(text), "what rank %d shares is unusable: %.900s",
        peer, cadre_error_text());
    return cadre_group_break(m->group, CADRE_ERR_PEER_LOST, peer, text);
}

cadre_status cadre_mirror_find(cadre_mirror *mirror)
{
    cadre_transport *t = mirror->group->transport;
    for (int r = 0; r < t->world_size; r++) {
        if (r == t->rank) {
            continue;
        }
        void *found = NULL;
        if (t->ops->shared->reach(
                t, r, mirror->names[r], mirror->nbytes, &found) != CADRE_OK) {
            return lose(mirror, r);
        }
        mirror->peers[r] = found;
    }
    return CADRE_OK;
}

void cadre_mirror_put(cadre_mirror *mirror, const void *own, size_t nbytes)
{
    cadre_transport *t = mirror->group->transport;
    size_t at = (size_t)((const char *)own - mirror->memory);
    CADRE_ASSERT(at <= mirror->nbytes && nbytes <= mirror->nbytes - at);
    for (int i = 1; i < t->world_size; i++) {
        // Beginning with the next rank, so that not all write to the same one.
        char *peer = mirror->peers[(t->rank + i) % t->world_size];
        memcpy(peer + at, own, nbytes);
        t->sent_payload_bytes += nbytes;
    }
}
