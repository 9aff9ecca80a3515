// SPDX-License-Identifier: Apache-2.0

#include "transport/transfer_set.h"

void cadre_transfer_set_empty(cadre_transfer_set *set)
{
    set->n_items = 0;
    set->n_done = 0;
}

static cadre_transfer *add(cadre_transfer_set *set, int peer,
    const cadre_call *call, cadre_run *runs, size_t n_runs)
{
    cadre_transfer *x = &set->items[set->n_items];
    set->peers[set->n_items] = peer;
    set->n_items++;
    *x = (cadre_transfer){.call = call, .runs = runs, .n_runs = n_runs};
    return x;
}

cadre_status cadre_transfer_set_send(cadre_transfer_set *set,
    cadre_transport *t, int peer, const cadre_call *call, cadre_run *runs,
    size_t n_runs)
{
    return cadre_transport_send(t, peer, add(set, peer, call, runs, n_runs));
}

cadre_status cadre_transfer_set_receive(cadre_transfer_set *set,
    cadre_transport *t, int peer, const cadre_call *call, cadre_run *runs,
    size_t n_runs)
{
    return cadre_transport_receive(t, peer, add(set, peer, call, runs, n_runs));
}

bool cadre_transfer_set_is_done(cadre_transfer_set *set)
{
    while (set->n_done < set->n_items && set->items[set->n_done].done) {
        set->n_done++;
    }
    return set->n_done == set->n_items;
}

bool cadre_transfer_set_waits_for(const cadre_transfer_set *set, int peer)
{
    for (size_t i = set->n_done; i < set->n_items; i++) {
        if (set->peers[i] == peer && !set->items[i].done) {
            return true;
        }
    }
    return false;
}
