// SPDX-License-Identifier: Apache-2.0
//
// Who of the group is alive, and the first cause of its end.
//
// Ranks that are processes have one sleeping control thread each, connected to
// the job's hub (rendezvous/hub.h), which the launcher or rank 0 runs.  The
// thread sends signs of life and takes the hub's verdict: who failed first, and
// how.  Ranks that are threads share the verdict itself.  Either way every
// rank of a broken group returns the same status and the same text.
//
// Threads: any, but for start and stop.

#ifndef CADRE_GROUP_WATCH_H
#define CADRE_GROUP_WATCH_H

#include "rendezvous/member.h"
#include "transport/transport.h"

typedef struct cadre_watch cadre_watch;

/** The verdict that ranks of one process share. */
typedef struct cadre_shared_verdict cadre_shared_verdict;
cadre_status cadre_shared_verdict_create(
    int world_size, cadre_shared_verdict **out);
void cadre_shared_verdict_destroy(cadre_shared_verdict *verdict);

/**
 * Watches over a group whose ranks are processes.
 *
 * Takes the member, also on an error.  A verdict wakes transport (borrowed
 * until stop).
 */
cadre_status cadre_watch_start(
    cadre_member *member, cadre_transport *transport, cadre_watch **out);

/** Watches over a group whose ranks are threads; verdict is borrowed. */
cadre_status cadre_watch_start_shared(cadre_shared_verdict *verdict, int rank,
    cadre_transport *transport, cadre_watch **out);

/** CADRE_OK while the group is whole; else the first cause, with its text. */
cadre_status cadre_watch_check(cadre_watch *watch);

/**
 * Says what went wrong on this rank and returns the first cause, with its
 * text: the hub's, if it comes within half a second, else what was said.  What
 * only this rank has met, as a lack of memory, is CADRE_ERR_ABORTED for all.
 *
 * suspect is the rank that seems lost (CADRE_ERR_PEER_LOST), else -1.
 */
cadre_status cadre_watch_fail(
    cadre_watch *watch, cadre_status status, int suspect, const char *text);

/** Says goodbye and ends the thread; at most a second.  NULL is allowed. */
void cadre_watch_stop(cadre_watch *watch);

#endif // CADRE_GROUP_WATCH_H
