// SPDX-License-Identifier: Apache-2.0
//
// A rank's side of the rendezvous: it joins the hub, learns who the others are,
// connects to all of them, and keeps the connection to the hub for signs of
// life and verdicts.
//
// docs/wire-protocol.md has the messages, byte by byte.

#ifndef CADRE_RENDEZVOUS_MEMBER_H
#define CADRE_RENDEZVOUS_MEMBER_H

#include "base/clock.h"
#include "cadre/status.h"
#include "rendezvous/link.h"
#include "rendezvous/place.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct cadre_member cadre_member;

/**
 * Joins the hub and connects to every other rank.  Blocks until all have
 * joined or the deadline has passed.
 *
 * Where the place says so, starts the hub first, in a thread of its own.  *link
 * is what this rank wishes, and then what was chosen: of CADRE_LINK_SHM the
 * sockets are Unix sockets.
 * timeout_ms, how long a rank may be silent, is told to the hub.  sockets has
 * world_size entries: connected stream sockets, non-blocking, -1 at this rank.
 * They are the caller's.
 *
 * Errors: as cadre_init()
 */
cadre_status cadre_member_join(const cadre_place *place, int timeout_ms,
    cadre_deadline deadline, cadre_link *link, int *sockets,
    cadre_member **out);

/** Made by the hub; in every frame of the group; never used twice. */
uint64_t cadre_member_generation(const cadre_member *member);

/** What the hub said: who failed first, and how. */
typedef struct cadre_verdict {
    cadre_status status;
    int rank; // that failed; -1: none in particular
    char text[1024];
} cadre_verdict;

/**
 * The status that a verdict has for who hears it: any but -40 and below would
 * say that the group is whole (docs/errors.md).
 */
static inline cadre_status cadre_verdict_status(cadre_status status)
{
    return status <= CADRE_ERR_TIMEOUT ? status : CADRE_ERR_ABORTED;
}

/**
 * Sleeps for a message of the hub, sending signs of life meanwhile.  True when
 * *verdict was filled in: by the hub, or, when the hub itself is lost without a
 * goodbye, by this call.  False at the deadline or when woken.
 *
 * One thread at a time; the two calls below may come from any thread meanwhile.
 */
bool cadre_member_listen(
    cadre_member *member, cadre_deadline deadline, cadre_verdict *verdict);

/** Tells the hub what this rank saw; suspect is a lost rank or -1. */
void cadre_member_report(
    cadre_member *member, cadre_status status, int suspect, const char *text);

/** Ends a sleeping cadre_member_listen(). */
void cadre_member_wake(cadre_member *member);

/** Says goodbye, waits at most a second, releases.  NULL is allowed. */
void cadre_member_leave(cadre_member *member);

#endif // CADRE_RENDEZVOUS_MEMBER_H
