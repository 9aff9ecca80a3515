// SPDX-License-Identifier: Apache-2.0
//
// What all transports have in common: arguments, byte counts and the first
// failure.

#include "transport/transport.h"

#include "base/check.h"
#include "base/fail.h"
#include <stdio.h>

// Keeps the first failure, so that every later call can return it.
static cadre_status keep_failure(cadre_transport *t, cadre_status status)
{
    if (status != CADRE_OK) {
        t->failed = status;
        snprintf(
            t->failed_text, sizeof(t->failed_text), "%s", cadre_error_text());
    }
    return status;
}

static cadre_status check_failure(const cadre_transport *t)
{
    if (t->failed == CADRE_OK) {
        return CADRE_OK;
    }
    return cadre_fail(t->failed, "%s", t->failed_text);
}

// Makes a transfer ready to be posted; what the caller set must make sense.
static void begin_transfer(
    const cadre_transport *t, int peer, cadre_transfer *x)
{
    CADRE_ASSERT(peer >= 0 && peer < t->world_size && peer != t->rank);
    CADRE_ASSERT(x->call != NULL);
    CADRE_ASSERT(x->n_runs == 0 || x->runs != NULL);

    x->nbytes = 0;
    for (size_t i = 0; i < x->n_runs; i++) {
        x->nbytes += x->runs[i].nbytes;
    }
    x->done = false;
    x->moved = 0;
    x->run = 0;
    x->run_moved = 0;
    x->next = NULL;
}

cadre_status cadre_transport_send(
    cadre_transport *t, int peer, cadre_transfer *x)
{
    CADRE_TRY(check_failure(t));
    begin_transfer(t, peer, x);
    t->sent_payload_bytes += x->nbytes;
    t->sent_overhead_bytes += t->ops->header_bytes;
    return keep_failure(t, t->ops->post_send(t, peer, x));
}

cadre_status cadre_transport_receive(
    cadre_transport *t, int peer, cadre_transfer *x)
{
    CADRE_TRY(check_failure(t));
    begin_transfer(t, peer, x);
    return keep_failure(t, t->ops->post_receive(t, peer, x));
}

cadre_status cadre_transport_progress(
    cadre_transport *t, cadre_deadline deadline)
{
    CADRE_TRY(check_failure(t));
    return keep_failure(t, t->ops->progress(t, deadline));
}

void cadre_transport_wake(cadre_transport *t)
{
    t->ops->wake(t);
}

void cadre_transport_abandon(cadre_transport *t)
{
    t->ops->abandon(t);
}

void cadre_transport_close(cadre_transport *t)
{
    if (t != NULL) {
        t->ops->close(t);
    }
}
