// SPDX-License-Identifier: Apache-2.0
//
// A rank's way to the hub.

#ifndef CADRE_RENDEZVOUS_REACH_H
#define CADRE_RENDEZVOUS_REACH_H

#include "base/clock.h"
#include "rendezvous/proof.h"

/**
 * Connects to the hub at the place, and both sides prove that they belong to
 * the job; or takes the socket that was inherited from a process of this user,
 * which proves as much.
 *
 * Rank 0 may come later than the others, so they try until the deadline.
 * *generation is the job's, or 0 where it was inherited.
 *
 * Errors: CADRE_ERR_INVALID_ARG  what CADRE_STORE names was not inherited, or
 *                                the hub is on another host and there is no
 *                                secret
 *         CADRE_ERR_STATE        it was taken before, by this process
 *         CADRE_ERR_IO           the address cannot be resolved
 *         CADRE_ERR_TIMEOUT      nobody listens there, or nobody answers
 *         CADRE_ERR_DESYNC       who answers cannot prove
 *         CADRE_ERR_PEER_LOST    this rank is refused
 */
cadre_status cadre_reach_hub(const cadre_place *place,
    const cadre_credentials *credentials, cadre_deadline deadline, int *socket,
    uint64_t *generation);

/** What gave the hub's address: "MASTER_ADDR and MASTER_PORT". */
const char *cadre_hub_named_by(const cadre_place *place);

#endif // CADRE_RENDEZVOUS_REACH_H
