// SPDX-License-Identifier: Apache-2.0
//
// The hub: where the ranks of a job meet, and who decides which of them failed
// first.  This is its state alone: events in, actions out, no input or output
// (that is hub_loop.h), no clock but the one it is told.
//
// There is one verdict per job, the first cause, and every rank gets the same
// text.  Causes are told from consequences: a rank that others cannot reach is
// only suspected; if a launcher watches the processes, the hub waits a moment
// for the news of how one of them ended before it pronounces.
//
// Memory:  all of it is allocated when the hub is created.
// Threads: one at a time.

#ifndef CADRE_RENDEZVOUS_HUB_H
#define CADRE_RENDEZVOUS_HUB_H

#include "base/socket.h"
#include "rendezvous/link.h"
#include "rendezvous/member.h"
#include <stddef.h>

enum {
    CADRE_HUB_TICK_MS = 50,         // how often it wants cadre_hub_tick()
    CADRE_HUB_EXIT_NOTICE_MS = 100, // how long a process's end may go unnoticed
    CADRE_HOST_BYTES = 64,
};

typedef struct cadre_hub cadre_hub;

typedef struct cadre_hub_options {
    int world_size;
    bool launched;  // the processes' ends will be told: cadre_hub_ended()
    int timeout_ms; // a rank silent that long is lost; 0: what it says itself
} cadre_hub_options;

cadre_status cadre_hub_create(
    const cadre_hub_options *options, cadre_hub **out);
void cadre_hub_destroy(cadre_hub *hub); // NULL is allowed

/** What a rank says when it comes. */
typedef struct cadre_hub_join {
    int rank;
    int world_size;
    int timeout_ms;  // how long it may be silent
    int patience_ms; // how long it will wait for the others
    int pid;
    char host[CADRE_HOST_BYTES];
    char address[CADRE_ADDRESS_BYTES]; // where its peers reach it; or ""
    cadre_link_offer offer;
} cadre_hub_join;

/** How a process ended. */
typedef struct cadre_ending {
    int exit_status; // if no signal killed it
    int signal;      // or 0
    bool asked;      // it was asked to end, and this is how it obeys
} cadre_ending;

/**
 * A rank joins.
 *
 * Errors: it is refused, and the text says why.  It came with a proof, so it
 *         may be one who is missing: the others wait for their timeout_ms from
 *         the last that came, not for all of their patience.
 *         CADRE_ERR_DESYNC  another world size, no such rank, or it is taken
 *         else the verdict
 */
cadre_status cadre_hub_join_rank(
    cadre_hub *hub, const cadre_hub_join *join, int64_t now_ms);

/** The launcher has started a process for rank. */
void cadre_hub_started(cadre_hub *hub, int rank, const char *host, int pid);

/**
 * The launcher has seen how rank's process ended.  False if that alone is a
 * failure, whether or not others need it.
 */
bool cadre_hub_ended(cadre_hub *hub, int rank, const cadre_ending *ending);

/** A sign of life. */
void cadre_hub_alive(cadre_hub *hub, int rank);

/** rank could not go on.  suspect is the rank that it lost, or -1. */
void cadre_hub_report(cadre_hub *hub, int rank, cadre_status status,
    int suspect, const char *text, int64_t now_ms);

/** rank needs the others no more. */
void cadre_hub_goodbye(cadre_hub *hub, int rank, int64_t now_ms);

/** rank's connection ended without a goodbye. */
void cadre_hub_hangup(cadre_hub *hub, int rank, int64_t now_ms);

/**
 * Time passes.  To be called after all that is there to read has been told, so
 * that a hub that was not scheduled itself accuses nobody.
 */
void cadre_hub_tick(cadre_hub *hub, int64_t now_ms);

typedef enum cadre_hub_action {
    CADRE_HUB_NOTHING,
    CADRE_HUB_WELCOME, // all have joined: tell all, connect all
    CADRE_HUB_VERDICT, // tell all who have joined
    CADRE_HUB_RELEASE, // close the connection of *rank
} cadre_hub_action;

/** The next thing to do, in order; *rank for CADRE_HUB_RELEASE. */
cadre_hub_action cadre_hub_next(cadre_hub *hub, int *rank);

/** The first cause; its status is CADRE_OK while there is none. */
const cadre_verdict *cadre_hub_verdict(const cadre_hub *hub);

/** Every rank that joined has left or is lost. */
bool cadre_hub_is_empty(const cadre_hub *hub);

/** What connects the ranks; once all have joined. */
cadre_link cadre_hub_link(const cadre_hub *hub);

/** Where rank's peers reach it, over what was chosen. */
const char *cadre_hub_address(const cadre_hub *hub, int rank);

/** How long any rank may be silent, or 0: what it says itself. */
int cadre_hub_job_timeout_ms(const cadre_hub *hub);

#endif // CADRE_RENDEZVOUS_HUB_H
