// SPDX-License-Identifier: Apache-2.0
//
// Works: what has been posted to a group, and how it is carried out.
//
// Works start in the order they were posted.  A collective runs alone, so that
// the next one may use the same memory.  Exchanges that follow one another move
// together, since the engine never lets them share memory.
//
// Posting allocates nothing but memory for received parts, which the group
// keeps for the next time.
//
// Threads: one at a time per group.

#ifndef CADRE_GROUP_WORK_H
#define CADRE_GROUP_WORK_H

#include "base/fail.h"
#include "collective/direct.h"
#include "collective/ring.h"
#include "collective/shared.h"
#include "group/group.h"

enum { CADRE_MAX_WORKS = 64 };

typedef enum cadre_work_state {
    CADRE_WORK_FREE = 0,
    CADRE_WORK_POSTED,
    CADRE_WORK_STARTED,
    CADRE_WORK_DONE,
} cadre_work_state;

/** How a work is carried out. */
typedef enum cadre_work_way {
    CADRE_WAY_EXCHANGE = 0, // frames that the caller has laid out
    CADRE_WAY_DIRECT,       // a collective by frames from each to each
    CADRE_WAY_RING,         // by frames to the next rank
    CADRE_WAY_SHARED,       // in memory that all ranks reach
} cadre_work_way;

struct cadre_work {
    cadre_group *group;
    cadre_work_state state;
    cadre_work *next; // posted after this one

    // What it moves is in direct: an exchange uses its call and transfers, a
    // collective its call and buffers.
    cadre_work_way way;
    cadre_direct direct;
    cadre_ring ring;
    void *memory; // for received parts, the group's when it started; or NULL

    const cadre_part *sends;
    const cadre_part *receives;
    int n_sends;
    int n_receives;
};

typedef struct cadre_arena cadre_arena;

struct cadre_group {
    int rank;
    int world_size;
    int timeout_ms;
    cadre_order order;
    cadre_transport *transport; // NULL for a group of one
    cadre_watch *watch;         // as well
    cadre_shared *shared;       // collectives in shared memory; NULL: direct

    cadre_status failed; // the first cause, or CADRE_OK
    char failed_text[CADRE_FAIL_TEXT_BYTES];

    uint64_t sequence;  // of the last call
    cadre_work *oldest; // not done, in the order they were posted
    cadre_work *newest;
    void *memory; // for received parts
    size_t memory_bytes;
    cadre_arena *arenas; // not freed yet

    // What the works' pointers point to.
    cadre_transfer *transfers;
    int *peers;
    cadre_run *runs;
    size_t *offsets;
    cadre_work works[CADRE_MAX_WORKS];
};

/** CADRE_OK while the group is whole; else the first cause. */
cadre_status cadre_group_check(cadre_group *group);

/** Breaks the group; suspect as in cadre_watch_fail(). */
cadre_status cadre_group_break(
    cadre_group *group, cadre_status status, int suspect, const char *text);

/** Breaks the group by a failure of its transport's, whose text is told. */
cadre_status cadre_group_break_by_transport(
    cadre_group *group, cadre_status status);

/** Gives a group's slots the memory they need; cadre_works_free() undoes it. */
cadre_status cadre_works_allocate(cadre_group *group);
void cadre_works_free(cadre_group *group);

/**
 * Finds a free work.  Nothing is taken yet: it is by cadre_work_post().
 *
 * Errors: CADRE_ERR_STATE  there are too many, or the first cause
 */
cadre_status cadre_work_find(cadre_group *group, cadre_work **out);

/**
 * Posts a work whose call and buffers have been filled in; starts it if it may.
 * With out == NULL waits for it.
 */
cadre_status cadre_work_post(cadre_work *work, cadre_work **out);

#endif // CADRE_GROUP_WORK_H
