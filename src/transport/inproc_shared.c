// SPDX-License-Identifier: Apache-2.0
//
// What ranks that are threads have of each other's memory: arenas, which are
// memory as any other, found again by their number, and boards.
//
// Memory:  peers may be at work in an arena whose rank has failed or left, so
//          from then on arenas are kept until the world is destroyed.

#include "transport/inproc_impl.h"

#include "base/alloc.h"
#include "base/fail.h"
#include <inttypes.h>

enum { PAGE_BYTES = 4096 };

void inproc_free_arena(inproc_arena *a)
{
    cadre_free(a->memory);
    cadre_free(a);
}

static cadre_status inproc_alloc(
    cadre_transport *base, size_t nbytes, void **out)
{
    inproc *t = as_inproc(base);
    inproc_seat *mine = &t->world->seats[base->rank];
    inproc_arena *a = cadre_alloc(sizeof(*a));
    char *memory = a == NULL ? NULL : cadre_alloc(nbytes);
    if (memory == NULL) {
        cadre_free(a);
        return CADRE_ERR_NO_MEMORY;
    }
    *a = (inproc_arena){mine->arenas, ++t->n_arenas, memory, nbytes};
    pthread_mutex_lock(&mine->mu);
    mine->arenas = a;
    pthread_mutex_unlock(&mine->mu);
    *out = memory;
    return CADRE_OK;
}

static void inproc_free(cadre_transport *base, void *memory)
{
    inproc *t = as_inproc(base);
    inproc_seat *mine = &t->world->seats[base->rank];
    if (t->abandoned) {
        return; // peers may be at work in it
    }
    pthread_mutex_lock(&mine->mu);
    inproc_arena **link = &mine->arenas;
    while ((*link)->memory != memory) {
        link = &(*link)->next;
    }
    inproc_arena *a = *link;
    *link = a->next;
    pthread_mutex_unlock(&mine->mu);
    inproc_free_arena(a);
}

static bool inproc_name(cadre_transport *base, const void *memory,
    size_t nbytes, cadre_shared_name *out)
{
    const inproc_seat *mine = &as_inproc(base)->world->seats[base->rank];
    uintptr_t begin = (uintptr_t)memory;
    for (const inproc_arena *a = mine->arenas; a != NULL; a = a->next) {
        uintptr_t offset = begin - (uintptr_t)a->memory;
        if (begin >= (uintptr_t)a->memory && offset <= a->nbytes &&
            nbytes <= a->nbytes - offset) {
            *out = (cadre_shared_name){a->number, offset};
            return true;
        }
    }
    return false;
}

static cadre_status inproc_reach(cadre_transport *base, int peer,
    cadre_shared_name name, size_t nbytes, void **out)
{
    inproc_seat *theirs = &as_inproc(base)->world->seats[peer];
    char *found = NULL;
    pthread_mutex_lock(&theirs->mu);
    for (const inproc_arena *a = theirs->arenas; a != NULL; a = a->next) {
        if (a->number == name.arena && name.offset <= a->nbytes &&
            nbytes <= a->nbytes - name.offset) {
            found = a->memory + name.offset;
        }
    }
    pthread_mutex_unlock(&theirs->mu);
    if (found == NULL) {
        base->failed_peer = peer;
        return cadre_fail(CADRE_ERR_CORRUPT,
            "rank %d has no %zu bytes at %" PRIu64 " in an arena %" PRIu64,
            peer, nbytes, name.offset, name.arena);
    }
    *out = found;
    return CADRE_OK;
}

static void *inproc_board(cadre_transport *base, int rank)
{
    char *boards = as_inproc(base)->world->boards;
    size_t past_page = (uintptr_t)boards % PAGE_BYTES;
    size_t to_page = past_page == 0 ? 0 : PAGE_BYTES - past_page;
    return boards + to_page + (size_t)rank * CADRE_BOARD_BYTES;
}

static bool inproc_is_gone(cadre_transport *base, int rank)
{
    cadre_inproc_world *world = as_inproc(base)->world;
    inproc_seat *mine = &world->seats[base->rank];
    pthread_mutex_lock(&mine->mu);
    bool gone = inproc_mailbox_of(world, base->rank, rank)->closed;
    pthread_mutex_unlock(&mine->mu);
    return gone;
}

static void inproc_ring(cadre_transport *base)
{
    for (int peer = 0; peer < base->world_size; peer++) {
        if (peer != base->rank) {
            inproc_wake_seat(&as_inproc(base)->world->seats[peer]);
        }
    }
}

const cadre_shared_ops inproc_shared_ops = {
    .alloc = inproc_alloc,
    .free = inproc_free,
    .name = inproc_name,
    .reach = inproc_reach,
    .board = inproc_board,
    .is_gone = inproc_is_gone,
    .ring = inproc_ring,
};
