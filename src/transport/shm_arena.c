// SPDX-License-Identifier: Apache-2.0
//
// Arenas of this rank, and those of its peers as they lie in its memory.

#include "transport/shm_impl.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "transport/shm_segment.h"
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

// Of one rank at a time; far more than any use has.
enum { MOST_ARENAS = 4096 };

// Makes room for one more.
static cadre_status reserve_item(shm_arenas *a)
{
    if (a->n < a->capacity) {
        return CADRE_OK;
    }
    size_t capacity = a->capacity == 0 ? 8 : 2 * a->capacity;
    shm_arena *items = cadre_alloc_array(capacity, sizeof(*items));
    if (items == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    if (a->n > 0) {
        memcpy(items, a->items, a->n * sizeof(*items));
    }
    cadre_free(a->items);
    a->items = items;
    a->capacity = capacity;
    return CADRE_OK;
}

static void remove_item(shm_arenas *a, size_t i)
{
    shm_arena *item = &a->items[i];
    cadre_segment_unmap(item->memory, item->nbytes);
    if (item->fd >= 0) {
        close(item->fd);
    }
    a->n--;
    memmove(item, item + 1, (a->n - i) * sizeof(*item));
}

static cadre_status map_arena(shm_arenas *a, uint64_t id, size_t nbytes, int fd)
{
    if (id <= a->last_id || a->n == MOST_ARENAS) {
        close(fd);
        return cadre_fail(CADRE_ERR_CORRUPT,
            "arena %" PRIu64 " comes after arena %" PRIu64
            ", with %zu of them in use",
            id, a->last_id, a->n);
    }
    void *memory = NULL;
    CADRE_TRY(cadre_segment_map(fd, nbytes, &memory));
    a->items[a->n++] =
        (shm_arena){.id = id, .memory = memory, .nbytes = nbytes, .fd = -1};
    a->last_id = id;
    return CADRE_OK;
}

cadre_status cadre_shm_add_arena(
    shm_arenas *arenas, uint64_t id, size_t nbytes, int fd)
{
    cadre_status status = reserve_item(arenas);
    if (status != CADRE_OK) {
        close(fd);
        return status;
    }
    return map_arena(arenas, id, nbytes, fd);
}

// The number of the arena, or n.
static size_t find(const shm_arenas *arenas, uint64_t id)
{
    size_t i = 0;
    while (i < arenas->n && arenas->items[i].id != id) {
        i++;
    }
    return i;
}

const shm_arena *cadre_shm_find_arena(const shm_arenas *arenas, uint64_t id)
{
    size_t i = find(arenas, id);
    return i < arenas->n ? &arenas->items[i] : NULL;
}

bool cadre_shm_drop_arena(shm_arenas *arenas, uint64_t id)
{
    size_t i = find(arenas, id);
    if (i == arenas->n) {
        return false;
    }
    remove_item(arenas, i);
    return true;
}

void cadre_shm_close_fds(shm *t)
{
    for (size_t i = 0; i < t->arenas.n; i++) {
        if (t->arenas.items[i].fd >= 0) {
            close(t->arenas.items[i].fd);
            t->arenas.items[i].fd = -1;
        }
    }
}

void cadre_shm_free_arenas(shm_arenas *arenas)
{
    while (arenas->n > 0) {
        remove_item(arenas, arenas->n - 1);
    }
    cadre_free(arenas->items);
    arenas->items = NULL;
}

cadre_status cadre_shm_alloc(cadre_transport *base, size_t nbytes, void **out)
{
    shm *t = as_shm(base);
    shm_arena arena = {.nbytes = cadre_segment_bytes(nbytes)};
    if (arena.nbytes == 0 || t->arenas.n == MOST_ARENAS) {
        return cadre_fail(CADRE_ERR_NO_MEMORY,
            "no arena of %zu bytes is to be had beside %zu others", nbytes,
            t->arenas.n);
    }
    CADRE_TRY(reserve_item(&t->arenas));
    CADRE_TRY(cadre_shm_reserve_news(t));
    void *memory;
    CADRE_TRY(cadre_segment_create(arena.nbytes, &arena.fd, &memory));
    arena.memory = memory;
    arena.id = ++t->arenas.last_id;
    t->arenas.items[t->arenas.n++] = arena;
    cadre_shm_add_news(t, CADRE_NOTE_ARENA, arena.id);
    *out = memory;
    return CADRE_OK;
}

void cadre_shm_free(cadre_transport *base, void *memory)
{
    shm *t = as_shm(base);
    for (size_t i = 0; i < t->arenas.n; i++) {
        if (t->arenas.items[i].memory == memory) {
            uint64_t id = t->arenas.items[i].id;
            remove_item(&t->arenas, i);
            if (!cadre_shm_take_back_news(t, id)) {
                cadre_shm_add_news(t, CADRE_NOTE_FREED, id);
            }
            return;
        }
    }
    CADRE_ASSERT(memory == NULL); // else it is no arena of this rank
}

// The arena that holds all of it, or NULL.
static const shm_arena *holder(
    const shm_arenas *arenas, const uint8_t *memory, size_t nbytes)
{
    for (size_t i = 0; i < arenas->n; i++) {
        const shm_arena *a = &arenas->items[i];
        uintptr_t offset = (uintptr_t)memory - (uintptr_t)a->memory;
        if (offset <= a->nbytes && nbytes <= a->nbytes - offset) {
            return a;
        }
    }
    return NULL;
}

bool cadre_shm_name(cadre_transport *base, const void *memory, size_t nbytes,
    cadre_shared_name *out)
{
    shm *t = as_shm(base);
    const shm_arena *a = holder(&t->arenas, memory, nbytes);
    if (a != NULL && a->fd >= 0) {
        cadre_shm_tell(t);
    }
    // A name is of use only behind the descriptor.
    if (a == NULL || a->fd >= 0) {
        return false;
    }
    out->arena = a->id;
    out->offset = (uint64_t)((const uint8_t *)memory - a->memory);
    return true;
}

cadre_status cadre_shm_reach(cadre_transport *base, int peer,
    cadre_shared_name name, size_t nbytes, void **out)
{
    shm *t = as_shm(base);
    shm_peer *p = &t->peers[peer];
    const shm_arenas *arenas = peer == base->rank ? &t->arenas : &p->arenas;
    const shm_arena *a = cadre_shm_find_arena(arenas, name.arena);
    if (a == NULL && peer != base->rank) {
        bool moved;
        CADRE_TRY(cadre_shm_hear(t, peer, &moved));
        a = cadre_shm_find_arena(arenas, name.arena);
    }
    if (a == NULL && p->gone) {
        base->failed_peer = peer;
        return cadre_fail(
            CADRE_ERR_PEER_LOST, "rank %d has closed its connection", peer);
    }
    if (a == NULL || name.offset > a->nbytes ||
        nbytes > a->nbytes - name.offset) {
        return cadre_fail(CADRE_ERR_CORRUPT,
            "rank %d has no arena %" PRIu64 " with %zu bytes at %" PRIu64, peer,
            name.arena, nbytes, name.offset);
    }
    *out = a->memory + name.offset;
    return CADRE_OK;
}
