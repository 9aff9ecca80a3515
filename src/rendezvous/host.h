// SPDX-License-Identifier: Apache-2.0
//
// The hub of a job that has no launcher: rank 0 runs it, in a thread of its own
// that sleeps most of the time.

#ifndef CADRE_RENDEZVOUS_HOST_H
#define CADRE_RENDEZVOUS_HOST_H

#include "base/clock.h"
#include "rendezvous/proof.h"

typedef struct cadre_host cadre_host;

/**
 * Listens where the place says and starts the hub's thread.  credentials is
 * borrowed until the hub is stopped.
 *
 * Errors: CADRE_ERR_IO  the address cannot be resolved or listened at; the text
 *                       names the variable that gave it
 *         CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_host_start(const cadre_place *place,
    const cadre_credentials *credentials, cadre_host **out);

/**
 * Ends the hub when the last rank has left it, and at the deadline in any case.
 * NULL is allowed.
 */
void cadre_host_stop(cadre_host *host, cadre_deadline deadline);

#endif // CADRE_RENDEZVOUS_HOST_H
