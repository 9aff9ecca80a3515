// SPDX-License-Identifier: Apache-2.0

#include "group/work.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/thread.h"
#include <stdio.h>
#include <string.h>

cadre_status cadre_works_allocate(cadre_group *group)
{
    size_t n = (size_t)group->world_size;
    size_t n_transfers = 2 * (n - 1);
    group->transfers = cadre_alloc_array(
        CADRE_MAX_WORKS * n_transfers, sizeof(*group->transfers));
    group->peers =
        cadre_alloc_array(CADRE_MAX_WORKS * n_transfers, sizeof(*group->peers));
    group->runs =
        cadre_alloc_array(CADRE_MAX_WORKS * n_transfers, sizeof(*group->runs));
    group->offsets =
        cadre_alloc_array(CADRE_MAX_WORKS * (n + 1), sizeof(*group->offsets));
    if (group->transfers == NULL || group->peers == NULL ||
        group->runs == NULL || group->offsets == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }

    for (size_t i = 0; i < CADRE_MAX_WORKS; i++) {
        cadre_work *work = &group->works[i];
        work->group = group;
        work->direct.rank = group->rank;
        work->direct.world_size = group->world_size;
        work->direct.offsets = group->offsets + i * (n + 1);
        work->direct.runs = group->runs + i * n_transfers;
        work->direct.transfers.items = group->transfers + i * n_transfers;
        work->direct.transfers.peers = group->peers + i * n_transfers;
    }
    if (group->transport != NULL && group->transport->ops->shared != NULL) {
        return cadre_shared_open(group->transport, &group->shared);
    }
    return CADRE_OK;
}

static void give_memory_back(cadre_work *work)
{
    if (work->memory != work->group->memory) {
        cadre_free(work->memory);
    }
    work->memory = NULL;
}

void cadre_works_free(cadre_group *group)
{
    for (int i = 0; i < CADRE_MAX_WORKS; i++) {
        if (group->works[i].memory != NULL) {
            give_memory_back(&group->works[i]);
        }
    }
    cadre_shared_close(group->shared);
    cadre_free(group->memory);
    cadre_free(group->offsets);
    cadre_free(group->runs);
    cadre_free(group->peers);
    cadre_free(group->transfers);
}

cadre_status cadre_work_find(cadre_group *group, cadre_work **out)
{
    CADRE_TRY(cadre_group_check(group));
    for (int i = 0; i < CADRE_MAX_WORKS; i++) {
        if (group->works[i].state == CADRE_WORK_FREE) {
            *out = &group->works[i];
            return CADRE_OK;
        }
    }
    return cadre_fail(CADRE_ERR_STATE,
        "%d works are posted, which is the limit: wait for some",
        CADRE_MAX_WORKS);
}

// Disagreements come with a text that is the same on both ranks; for others the
// operation is told, and for what only this rank has met, such as a lack of
// memory, the rank.
cadre_status cadre_group_break_by_transport(
    cadre_group *group, cadre_status status)
{
    char text[CADRE_FAIL_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", cadre_error_text());
    int suspect =
        status == CADRE_ERR_PEER_LOST ? group->transport->failed_peer : -1;
    if (status != CADRE_ERR_DESYNC && group->oldest != NULL) {
        char call[CADRE_CALL_TEXT_BYTES];
        cadre_call_text(&group->oldest->direct.call, call);
        if (suspect >= 0) {
            (void)cadre_fail(status, "%s: %s", call, text);
        } else {
            (void)cadre_fail(
                status, "%s: rank %d: %s", call, group->rank, text);
        }
        snprintf(text, sizeof(text), "%s", cadre_error_text());
    }
    return cadre_group_break(group, status, suspect, text);
}

// Chooses how a collective is carried out.
static void choose_way(cadre_work *work)
{
    const cadre_group *group = work->group;
    const cadre_direct *d = &work->direct;
    if (group->order == CADRE_ORDER_RING &&
        cadre_ring_is_defined(d->call.operation)) {
        work->way = CADRE_WAY_RING;
        work->ring = (cadre_ring){
            .call = &d->call,
            .rank = group->rank,
            .world_size = group->world_size,
            .send = d->send,
            .recv = d->recv,
            .offsets = d->offsets,
            .chunk_bytes = CADRE_RING_CHUNK_BYTES,
        };
        return;
    }
    work->way = group->shared != NULL ? CADRE_WAY_SHARED : CADRE_WAY_DIRECT;
}

static size_t memory_bytes(const cadre_work *work)
{
    return work->way == CADRE_WAY_RING
               ? cadre_ring_memory_bytes(&work->ring)
               : cadre_direct_memory_bytes(&work->direct);
}

// Gives the group's memory for received parts at least this size.  A work that
// has started keeps the old memory until it is done.
static cadre_status grow_memory(cadre_group *group, size_t nbytes)
{
    if (nbytes <= group->memory_bytes) {
        return CADRE_OK;
    }
    void *memory = cadre_alloc(nbytes);
    if (memory == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    // Collectives run alone, so only the oldest can be using it.
    if (group->oldest == NULL || group->oldest->memory != group->memory) {
        cadre_free(group->memory);
    }
    group->memory = memory;
    group->memory_bytes = nbytes;
    return CADRE_OK;
}

// Ranks that share memory look there for what the others do.
static void note_frames(const cadre_work *work)
{
    if (work->group->shared != NULL) {
        cadre_shared_note_exchange(work->group->shared, &work->direct.call);
    }
}

static cadre_status start_exchange(cadre_work *work)
{
    cadre_transport *t = work->group->transport;
    cadre_transfer_set *transfers = &work->direct.transfers;
    const cadre_call *call = &work->direct.call;
    note_frames(work);
    cadre_transfer_set_empty(transfers);
    for (int i = 0; i < work->n_receives; i++) {
        const cadre_part *part = &work->receives[i];
        CADRE_TRY(cadre_transfer_set_receive(
            transfers, t, part->peer, call, part->runs, part->n_runs));
    }
    for (int i = 0; i < work->n_sends; i++) {
        const cadre_part *part = &work->sends[i];
        CADRE_TRY(cadre_transfer_set_send(
            transfers, t, part->peer, call, part->runs, part->n_runs));
    }
    return CADRE_OK;
}

static cadre_shared_what shared_what(const cadre_work *work)
{
    return (cadre_shared_what){
        .call = &work->direct.call,
        .send = work->direct.send,
        .recv = work->direct.recv,
        .offsets = work->direct.offsets,
    };
}

// A collective gets the memory that it needs before it is posted, so that it
// cannot fail for lack of it.
static cadre_status reserve_memory(cadre_work *work)
{
    cadre_group *group = work->group;
    if (work->way == CADRE_WAY_SHARED) {
        cadre_shared_what what = shared_what(work);
        return cadre_shared_reserve(group->shared, &what);
    }
    return grow_memory(group, memory_bytes(work));
}

static cadre_status start_work(cadre_work *work)
{
    cadre_group *group = work->group;
    cadre_shared_what what;
    work->state = CADRE_WORK_STARTED;
    switch (work->way) {
    case CADRE_WAY_EXCHANGE:
        return start_exchange(work);
    case CADRE_WAY_SHARED:
        what = shared_what(work);
        cadre_shared_begin(group->shared, &what);
        return CADRE_OK;
    case CADRE_WAY_RING:
        note_frames(work);
        work->memory = memory_bytes(work) > 0 ? group->memory : NULL;
        return cadre_ring_begin(&work->ring, group->transport, work->memory);
    case CADRE_WAY_DIRECT:
        break;
    }
    work->memory = memory_bytes(work) > 0 ? group->memory : NULL;
    return cadre_direct_begin(&work->direct, group->transport, work->memory);
}

// Starts what may start: a collective when it is the oldest, an exchange when
// there are but exchanges before it.
static cadre_status start_works(cadre_group *group)
{
    for (cadre_work *work = group->oldest; work != NULL; work = work->next) {
        if (work->way != CADRE_WAY_EXCHANGE && work != group->oldest) {
            break;
        }
        if (work->state == CADRE_WORK_POSTED) {
            cadre_status status = start_work(work);
            if (status != CADRE_OK) {
                return cadre_group_break_by_transport(group, status);
            }
        }
        if (work->way != CADRE_WAY_EXCHANGE) {
            break;
        }
    }
    return CADRE_OK;
}

static cadre_status advance_work(cadre_work *work, bool *done)
{
    cadre_group *group = work->group;
    switch (work->way) {
    case CADRE_WAY_EXCHANGE:
        *done = cadre_transfer_set_is_done(&work->direct.transfers);
        return CADRE_OK;
    case CADRE_WAY_SHARED:
        return cadre_shared_advance(group->shared, done);
    case CADRE_WAY_RING:
        return cadre_ring_advance(&work->ring, group->transport, done);
    case CADRE_WAY_DIRECT:
        break;
    }
    return cadre_direct_advance(&work->direct, group->transport, done);
}

// Takes the works that are done out of the queue; says if there were any.
static cadre_status finish_works(cadre_group *group, bool *any)
{
    cadre_work *before = NULL;
    cadre_work *work = group->oldest;
    *any = false;
    while (work != NULL && work->state == CADRE_WORK_STARTED) {
        bool done = false;
        cadre_status status = advance_work(work, &done);
        if (status != CADRE_OK) {
            return cadre_group_break_by_transport(group, status);
        }
        if (!done) {
            before = work;
            work = work->next;
            continue;
        }

        cadre_work *next = work->next;
        if (before == NULL) {
            group->oldest = next;
        } else {
            before->next = next;
        }
        if (next == NULL) {
            group->newest = before;
        }
        give_memory_back(work);
        work->state = CADRE_WORK_DONE;
        work = next;
        *any = true;
    }
    return CADRE_OK;
}

// Does all that can be done without waiting.  A work that is done may let the
// next one start, which may be done at once.
static cadre_status move_works(cadre_group *group)
{
    // Sums are made here, with plain floats whatever the caller's are.
    cadre_floats floats;
    cadre_floats_enter(&floats);
    cadre_status status;
    bool any = false;
    do {
        status = start_works(group);
        if (status == CADRE_OK) {
            status = finish_works(group, &any);
        }
    } while (status == CADRE_OK && any);
    cadre_floats_leave(&floats);
    return status;
}

// Moves data until some has moved or the deadline has passed.
static cadre_status step(cadre_group *group, cadre_deadline deadline)
{
    CADRE_TRY(cadre_group_check(group));
    if (group->oldest == NULL) {
        return CADRE_OK;
    }
    cadre_status status = cadre_transport_progress(group->transport, deadline);
    if (status != CADRE_OK) {
        return cadre_group_break_by_transport(group, status);
    }
    return move_works(group);
}

cadre_status cadre_group_progress(cadre_group *group)
{
    return step(group, 0);
}

static void append(cadre_group *group, cadre_work *work)
{
    work->state = CADRE_WORK_POSTED;
    work->next = NULL;
    if (group->oldest == NULL) {
        group->oldest = work;
    } else {
        group->newest->next = work;
    }
    group->newest = work;
}

static cadre_status carry_out_alone(cadre_work *work)
{
    if (work->way != CADRE_WAY_EXCHANGE) {
        cadre_direct_alone(&work->direct);
    }
    work->state = CADRE_WORK_DONE;
    return CADRE_OK;
}

cadre_status cadre_work_post(cadre_work *work, cadre_work **out)
{
    cadre_group *group = work->group;
    if (work->way != CADRE_WAY_EXCHANGE && group->world_size > 1) {
        choose_way(work);
        CADRE_TRY(reserve_memory(work));
    }
    work->direct.call.ring = group->order == CADRE_ORDER_RING;
    work->direct.call.sequence = ++group->sequence;

    cadre_status status;
    if (group->world_size == 1) {
        status = carry_out_alone(work);
    } else {
        append(group, work);
        status = move_works(group);
    }
    if (status != CADRE_OK) {
        work->state = CADRE_WORK_FREE;
        return status;
    }
    if (out == NULL) {
        return cadre_work_wait(work, 0);
    }
    *out = work;
    return CADRE_OK;
}

static bool waits_for(const cadre_work *work, int peer)
{
    const cadre_group *group = work->group;
    switch (work->way) {
    case CADRE_WAY_SHARED:
        return peer != group->rank &&
               cadre_shared_waits_for(group->shared, peer);
    case CADRE_WAY_RING:
        return cadre_ring_waits_for(&work->ring, peer);
    case CADRE_WAY_EXCHANGE:
    case CADRE_WAY_DIRECT:
        break;
    }
    return cadre_transfer_set_waits_for(&work->direct.transfers, peer);
}

// "rank 3", "ranks 1, 3", or "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 4 more".
static void name_missing(const cadre_work *work, char *text, size_t nbytes)
{
    enum { MAX_NAMED = 8 };
    const cadre_group *group = work->group;
    char names[MAX_NAMED * 13] = ""; // a comma, a blank and a number each
    size_t used = 0;
    int n_missing = 0;
    for (int peer = 0; peer < group->world_size; peer++) {
        if (!waits_for(work, peer)) {
            continue;
        }
        if (n_missing < MAX_NAMED) {
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%d",
                n_missing > 0 ? ", " : "", peer);
        }
        n_missing++;
    }
    if (n_missing > MAX_NAMED) {
        snprintf(
            text, nbytes, "ranks %s and %d more", names, n_missing - MAX_NAMED);
    } else {
        snprintf(text, nbytes, "rank%s %s", n_missing == 1 ? "" : "s", names);
    }
}

static cadre_status fail_timeout(cadre_group *group, int64_t limit_ms)
{
    // Later works wait for the oldest, so that is the one to name.
    char call[CADRE_CALL_TEXT_BYTES];
    char missing[160];
    char text[CADRE_FAIL_TEXT_BYTES];
    cadre_call_text(&group->oldest->direct.call, call);
    name_missing(group->oldest, missing, sizeof(missing));
    snprintf(text, sizeof(text), "%s: waited %lld ms for %s", call,
        (long long)limit_ms, missing);
    return cadre_group_break(group, CADRE_ERR_TIMEOUT, -1, text);
}

// How long an operation may last, in timeouts (docs/adr/0008).
enum { TIMEOUTS_TO_LAST = 10 };

static int64_t most_ms(const cadre_group *group)
{
    return (int64_t)TIMEOUTS_TO_LAST * group->timeout_ms;
}

cadre_deadline cadre_group_deadline(const cadre_group *group)
{
    return cadre_deadline_in_ms(most_ms(group));
}

cadre_status cadre_work_await(
    cadre_work *work, cadre_deadline deadline, bool *done)
{
    cadre_group *group = work->group;
    // An exchange without parts is over before anything moves.
    bool over =
        work->state == CADRE_WORK_DONE ||
        (work->state == CADRE_WORK_STARTED && work->way == CADRE_WAY_EXCHANGE &&
            cadre_transfer_set_is_done(&work->direct.transfers));
    CADRE_TRY(step(group, over ? 0 : deadline));
    *done = work->state == CADRE_WORK_DONE;
    return *done || cadre_now_ns() < deadline
               ? CADRE_OK
               : fail_timeout(group, most_ms(group));
}

void cadre_group_wake(cadre_group *group)
{
    if (group->transport != NULL) {
        cadre_transport_wake(group->transport);
    }
}

// Nothing would ever end one that has been waited for.
static cadre_status check_posted(const cadre_work *work)
{
    return work->state != CADRE_WORK_FREE
               ? CADRE_OK
               : cadre_fail(CADRE_ERR_STATE,
                     "the work has been waited for already: wait for each "
                     "exactly once");
}

cadre_status cadre_work_wait(cadre_work *work, int timeout_ms)
{
    if (work == NULL) {
        return cadre_fail(CADRE_ERR_INVALID_ARG, "the work is NULL");
    }
    CADRE_TRY(check_posted(work));
    cadre_group *group = work->group;
    int64_t limit_ms = timeout_ms > 0 ? timeout_ms : most_ms(group);
    cadre_deadline deadline = cadre_deadline_in_ms(limit_ms);

    cadre_status status = cadre_group_check(group);
    while (status == CADRE_OK && work->state != CADRE_WORK_DONE) {
        status = step(group, deadline);
        if (status == CADRE_OK && work->state != CADRE_WORK_DONE &&
            cadre_now_ns() >= deadline) {
            status = fail_timeout(group, limit_ms);
        }
    }
    work->state = CADRE_WORK_FREE;
    return status;
}

cadre_status cadre_work_test(cadre_work *work, bool *done)
{
    if (work == NULL || done == NULL) {
        return cadre_fail(CADRE_ERR_INVALID_ARG, "an argument is NULL");
    }
    CADRE_TRY(check_posted(work));
    CADRE_TRY(step(work->group, 0));
    *done = work->state == CADRE_WORK_DONE;
    return CADRE_OK;
}

cadre_status cadre_exchange(cadre_group *group, cadre_call call,
    const cadre_part *sends, int n_sends, const cadre_part *receives,
    int n_receives, cadre_work **out)
{
    CADRE_ASSERT(n_sends >= 0 && n_sends < group->world_size);
    CADRE_ASSERT(n_receives >= 0 && n_receives < group->world_size);
    cadre_work *work = NULL;
    CADRE_TRY(cadre_work_find(group, &work));
    work->way = CADRE_WAY_EXCHANGE;
    work->direct.call = call;
    work->sends = sends;
    work->n_sends = n_sends;
    work->receives = receives;
    work->n_receives = n_receives;
    return cadre_work_post(work, out);
}
