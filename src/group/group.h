// SPDX-License-Identifier: Apache-2.0
//
// The inside of a group: what <cadre/group.h> shows, and exchanges, which the
// engine builds its own collectives from.
//
// Threads: one at a time per group.

#ifndef CADRE_GROUP_GROUP_H
#define CADRE_GROUP_GROUP_H

#include "cadre/group.h"
#include "group/watch.h"
#include "transport/transport.h"

/**
 * Makes a group of an open transport and its watch; takes both, also on an
 * error.  For a group of one both may be NULL.
 */
cadre_status cadre_group_create(int rank, int world_size, int timeout_ms,
    cadre_transport *transport, cadre_watch *watch, cadre_group **out);

/** The order in which a group reduces (docs/numerics.md section 4). */
typedef enum cadre_order {
    CADRE_ORDER_CANONICAL = 0,
    CADRE_ORDER_RING,
} cadre_order;

/**
 * The order by its name; NULL is canonical.
 *
 * Errors: CADRE_ERR_INVALID_ARG  there is no such order; the text lists them
 */
cadre_status cadre_order_from_name(const char *name, cadre_order *out);

/** Before anything is posted; a new group is canonical. */
void cadre_group_set_order(cadre_group *group, cadre_order order);
cadre_order cadre_group_order(const cadre_group *group);

/** Says goodbye, closes the transport, releases; see cadre_finalize(). */
void cadre_group_release(cadre_group *group);

/** One side of one message of an exchange. */
typedef struct cadre_part {
    int peer;
    cadre_run *runs; // gap-free payload is the runs one after another
    size_t n_runs;
} cadre_part;

/**
 * Posts any number of sends and receives, as one work.
 *
 * Exchanges that follow one another move at the same time, so their memory must
 * not overlap.  Collectives wait for what was posted before them.
 *
 * Every rank posts its side under the same call, whose sequence number the
 * group fills in.  At most one send and one receive per peer; parts and runs
 * are borrowed until the work has been waited for.  A part of 0 bytes still
 * carries its header, and so compares the calls.
 *
 * Errors: as the collectives of <cadre/group.h>
 */
cadre_status cadre_exchange(cadre_group *group, cadre_call call,
    const cadre_part *sends, int n_sends, const cadre_part *receives,
    int n_receives, cadre_work **out);

/**
 * Gives every rank the n_words words of 64 bits that each has, in rank order; as
 * cadre_allgather(), waited for.  In place means that mine is this rank's of all.
 */
cadre_status cadre_gather_words(
    cadre_group *group, const void *mine, size_t n_words, void *all);

/** When an operation that is waited for from now on has lasted too long. */
cadre_deadline cadre_group_deadline(const cadre_group *group);

/**
 * As cadre_work_test(), but sleeps until something moves or wakes it.  Passing
 * the deadline is a failure, as in cadre_work_wait().
 */
cadre_status cadre_work_await(
    cadre_work *work, cadre_deadline deadline, bool *done);

/** Ends a sleep of another thread in cadre_work_await().  Any thread. */
void cadre_group_wake(cadre_group *group);

/** Moves data without sleeping.  CADRE_OK while the group is whole. */
cadre_status cadre_group_progress(cadre_group *group);

/**
 * Breaks the group on every rank, with this sentence; returns the first cause.
 * For what ranks found out together, give all the same text.
 */
cadre_status cadre_group_fail(
    cadre_group *group, cadre_status status, const char *text);

/** Counts a payload that peers get without a frame (group/reach.h). */
void cadre_group_count_sent(cadre_group *group, uint64_t nbytes);

/** Bytes that left this rank so far: payloads, and headers beside them. */
void cadre_group_sent(
    const cadre_group *group, uint64_t *payload, uint64_t *overhead);

#endif // CADRE_GROUP_GROUP_H
