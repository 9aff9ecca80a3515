// SPDX-License-Identifier: Apache-2.0
//
// A rank's way to the hub.

#ifndef CADRE_RENDEZVOUS_REACH_H
#define CADRE_RENDEZVOUS_REACH_H

#include "base/clock.h"
#include "rendezvous/place.h"

/**
 * Connects to the hub at the place, or takes the socket that was inherited.
 *
 * Rank 0 may come later than the others, so they try until the deadline.
 *
 * Errors: CADRE_ERR_INVALID_ARG  what CADRE_STORE names was not inherited
 *         CADRE_ERR_IO           the address cannot be resolved
 *         CADRE_ERR_TIMEOUT      nobody listens there
 */
cadre_status cadre_reach_hub(
    const cadre_place *place, cadre_deadline deadline, int *socket);

/** What gave the hub's address: "MASTER_ADDR and MASTER_PORT". */
const char *cadre_hub_named_by(const cadre_place *place);

#endif // CADRE_RENDEZVOUS_REACH_H
