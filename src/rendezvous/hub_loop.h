// SPDX-License-Identifier: Apache-2.0
//
// The hub at work: its state machine (hub.h), the ranks' connections, and, where
// there is no launcher, the door that they come through until all are there.
//
// It never sleeps by itself: whoever runs it waits for its descriptor, together
// with what else there is to wait for, and calls cadre_hub_loop_run().
//
// Under a launcher every rank has one end of a socket pair already.  For every
// two ranks the hub then makes one more pair and hands out the ends, so that a
// job on one host needs no port, no file and no name.
//
// Threads: one at a time.

#ifndef CADRE_RENDEZVOUS_HUB_LOOP_H
#define CADRE_RENDEZVOUS_HUB_LOOP_H

#include "rendezvous/hub.h"
#include "rendezvous/proof.h"

typedef struct cadre_hub_loop cadre_hub_loop;

/**
 * Starts a hub that ranks come to by a listening socket, which it takes, also
 * on an error.  It is closed when all have joined.  credentials is borrowed
 * until the hub is closed.
 */
cadre_status cadre_hub_loop_listen(int world_size, int listener,
    const cadre_credentials *credentials, cadre_hub_loop **out);

/**
 * Starts a launcher's hub.  timeout_ms as in cadre_hub_options.
 */
cadre_status cadre_hub_loop_launch(
    int world_size, int timeout_ms, cadre_hub_loop **out);

/**
 * A launcher starts rank.  *socket is the rank's end of its connection: it is
 * the caller's, to be inherited by the process and then closed.
 */
cadre_status cadre_hub_loop_connect(
    cadre_hub_loop *loop, int rank, int *socket);

/** The process of rank runs. */
void cadre_hub_loop_started(
    cadre_hub_loop *loop, int rank, const char *host, int pid);

/** The process of rank has ended.  As cadre_hub_ended(). */
bool cadre_hub_loop_ended(
    cadre_hub_loop *loop, int rank, const cadre_ending *ending);

/** Readable when there is something to do. */
int cadre_hub_loop_fd(const cadre_hub_loop *loop);

/**
 * Does what there is to do.  Never sleeps.  To be called when the descriptor is
 * readable, and every CADRE_HUB_TICK_MS.
 */
void cadre_hub_loop_run(cadre_hub_loop *loop);

/** The first cause; its status is CADRE_OK while there is none. */
const cadre_verdict *cadre_hub_loop_verdict(const cadre_hub_loop *loop);

/** Every rank that joined has left or is lost. */
bool cadre_hub_loop_is_empty(const cadre_hub_loop *loop);

/** Says goodbye to the ranks that are left.  NULL is allowed. */
void cadre_hub_loop_close(cadre_hub_loop *loop);

#endif // CADRE_RENDEZVOUS_HUB_LOOP_H
