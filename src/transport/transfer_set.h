// SPDX-License-Identifier: Apache-2.0
//
// Transfers that are waited for together.
//
// Memory:  the items are the caller's, as many as will be posted before the set
//          is emptied.
// Threads: that of the transport.

#ifndef CADRE_TRANSPORT_TRANSFER_SET_H
#define CADRE_TRANSPORT_TRANSFER_SET_H

#include "transport/transport.h"

typedef struct cadre_transfer_set {
    cadre_transfer *items;
    int *peers; // the peer of each item
    size_t n_items;
    size_t n_done; // all before this one are done
} cadre_transfer_set;

/** Forgets all items, which must be done. */
void cadre_transfer_set_empty(cadre_transfer_set *set);

/** Posts one more; call and runs are borrowed until it is done. */
cadre_status cadre_transfer_set_send(cadre_transfer_set *set,
    cadre_transport *t, int peer, const cadre_call *call, cadre_run *runs,
    size_t n_runs);
cadre_status cadre_transfer_set_receive(cadre_transfer_set *set,
    cadre_transport *t, int peer, const cadre_call *call, cadre_run *runs,
    size_t n_runs);

/** True when all items are done. */
bool cadre_transfer_set_is_done(cadre_transfer_set *set);

/** True if some item that is not done is with this peer. */
bool cadre_transfer_set_waits_for(const cadre_transfer_set *set, int peer);

#endif // CADRE_TRANSPORT_TRANSFER_SET_H
