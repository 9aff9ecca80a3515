// SPDX-License-Identifier: Apache-2.0
//
// A group's life, its first failure, and its arenas.

#include "group/group.h"

#include "base/alloc.h"
#include "base/check.h"
#include "group/work.h"
#include <stdio.h>
#include <string.h>

enum { DEFAULT_TIMEOUT_MS = 30000 };

// What lies before the memory of an arena that no transport knows.
struct cadre_arena {
    _Alignas(CADRE_CACHE_LINE) cadre_arena *before;
    cadre_arena *after;
};

cadre_status cadre_group_create(int rank, int world_size, int timeout_ms,
    cadre_transport *transport, cadre_watch *watch, cadre_group **out)
{
    CADRE_ASSERT(rank >= 0 && rank < world_size);
    CADRE_ASSERT(world_size == 1 || (transport != NULL && watch != NULL));
    cadre_group *group = cadre_alloc(sizeof(*group));
    if (group == NULL) {
        cadre_watch_stop(watch);
        cadre_transport_close(transport);
        return CADRE_ERR_NO_MEMORY;
    }
    group->rank = rank;
    group->world_size = world_size;
    group->timeout_ms = timeout_ms > 0 ? timeout_ms : DEFAULT_TIMEOUT_MS;
    group->transport = transport;
    group->watch = watch;

    cadre_status status = cadre_works_allocate(group);
    if (status != CADRE_OK) {
        cadre_group_release(group);
        return status;
    }
    *out = group;
    return CADRE_OK;
}

static void leave_shared(cadre_group *group)
{
    if (group->shared != NULL) {
        cadre_shared_leave(group->shared);
    }
}

void cadre_group_release(cadre_group *group)
{
    if (group == NULL) {
        return;
    }
    // Once the transport is closed, nobody reads the memory of works given up.
    leave_shared(group);
    cadre_watch_stop(group->watch);
    cadre_transport_close(group->transport);
    while (group->arenas != NULL) {
        cadre_arena *arena = group->arenas;
        group->arenas = arena->after;
        cadre_free(arena);
    }
    cadre_works_free(group);
    cadre_free(group);
}

int cadre_rank(const cadre_group *group)
{
    return group->rank;
}

int cadre_world_size(const cadre_group *group)
{
    return group->world_size;
}

const char *cadre_transport_name(const cadre_group *group)
{
    return group->transport == NULL ? "none" : group->transport->ops->scheme;
}

static const char *const order_names[] = {
    [CADRE_ORDER_CANONICAL] = "canonical",
    [CADRE_ORDER_RING] = "ring",
};

cadre_status cadre_order_from_name(const char *name, cadre_order *out)
{
    if (name == NULL || strcmp(name, order_names[CADRE_ORDER_CANONICAL]) == 0) {
        *out = CADRE_ORDER_CANONICAL;
        return CADRE_OK;
    }
    if (strcmp(name, order_names[CADRE_ORDER_RING]) == 0) {
        *out = CADRE_ORDER_RING;
        return CADRE_OK;
    }
    return cadre_fail(CADRE_ERR_INVALID_ARG,
        "order is '%s'; it can be 'canonical' or 'ring'", name);
}

void cadre_group_set_order(cadre_group *group, cadre_order order)
{
    CADRE_ASSERT(group->sequence == 0);
    group->order = order;
}

cadre_order cadre_group_order(const cadre_group *group)
{
    return group->order;
}

const char *cadre_order_name(const cadre_group *group)
{
    return order_names[group->order];
}

const char *cadre_algorithm_name(const cadre_group *group)
{
    if (group->world_size == 1) {
        return "none";
    }
    if (group->order == CADRE_ORDER_RING) {
        return "ring";
    }
    return group->shared != NULL ? "shared" : "direct";
}

void cadre_group_count_sent(cadre_group *group, uint64_t nbytes)
{
    if (group->transport != NULL) {
        group->transport->sent_payload_bytes += nbytes;
    }
}

void cadre_group_sent(
    const cadre_group *group, uint64_t *payload, uint64_t *overhead)
{
    const cadre_transport *t = group->transport;
    *payload = t == NULL ? 0 : t->sent_payload_bytes;
    *overhead = t == NULL ? 0 : t->sent_overhead_bytes;
}

// The first cause is the calling thread's failure text.
static cadre_status keep_first_cause(cadre_group *group, cadre_status status)
{
    group->failed = status;
    snprintf(group->failed_text, sizeof(group->failed_text), "%s",
        cadre_error_text());
    if (group->transport != NULL) {
        // Callers get their buffers back with this status.
        leave_shared(group);
        cadre_transport_abandon(group->transport);
    }
    return status;
}

cadre_status cadre_group_check(cadre_group *group)
{
    if (group->failed != CADRE_OK) {
        return cadre_fail(group->failed, "%s", group->failed_text);
    }
    if (group->watch == NULL) {
        return CADRE_OK;
    }
    cadre_status status = cadre_watch_check(group->watch);
    return status == CADRE_OK ? CADRE_OK : keep_first_cause(group, status);
}

cadre_status cadre_group_break(
    cadre_group *group, cadre_status status, int suspect, const char *text)
{
    CADRE_ASSERT(status != CADRE_OK);
    CADRE_TRY(cadre_group_check(group));
    if (group->watch == NULL) {
        return keep_first_cause(group, cadre_fail(status, "%s", text));
    }
    return keep_first_cause(
        group, cadre_watch_fail(group->watch, status, suspect, text));
}

cadre_status cadre_group_fail(
    cadre_group *group, cadre_status status, const char *text)
{
    return cadre_group_break(group, status, -1, text);
}

cadre_status cadre_arena_alloc(cadre_group *group, size_t nbytes, void **out)
{
    if (group == NULL || out == NULL) {
        return cadre_fail(CADRE_ERR_INVALID_ARG, "an argument is NULL");
    }
    if (group->shared != NULL) {
        return group->transport->ops->shared->alloc(
            group->transport, nbytes, out);
    }
    cadre_arena *arena = cadre_alloc_flex(sizeof(*arena), nbytes, 1);
    if (arena == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    arena->after = group->arenas;
    if (arena->after != NULL) {
        arena->after->before = arena;
    }
    group->arenas = arena;
    *out = arena + 1;
    return CADRE_OK;
}

void cadre_arena_free(cadre_group *group, void *memory)
{
    if (memory == NULL) {
        return;
    }
    if (group->shared != NULL) {
        group->transport->ops->shared->free(group->transport, memory);
        return;
    }
    cadre_arena *arena = (cadre_arena *)memory - 1;
    if (arena->before == NULL) {
        group->arenas = arena->after;
    } else {
        arena->before->after = arena->after;
    }
    if (arena->after != NULL) {
        arena->after->before = arena->before;
    }
    cadre_free(arena);
}
