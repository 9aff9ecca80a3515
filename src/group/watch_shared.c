// SPDX-License-Identifier: Apache-2.0
//
// The watch of ranks that are threads of one process: there is nobody to ask,
// since the verdict itself is shared.  Also the calls common to both kinds.
//
// Locks: a verdict's mutex is held while transports are woken, which take their
// own.

#include "group/watch_impl.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

struct cadre_shared_verdict {
    // The cadre_status.  Its release publishes text to whoever acquires it.
    atomic_int status;
    char text[CADRE_FAIL_TEXT_BYTES];

    pthread_mutex_t mu;
    int world_size;
    cadre_transport *transports[]; // to be woken, or NULL; guarded by mu
};

typedef struct shared_watch {
    cadre_watch base;
    cadre_shared_verdict *verdict;
    int rank;
} shared_watch;

cadre_status cadre_watch_check(cadre_watch *watch)
{
    return watch->ops->check(watch);
}

cadre_status cadre_watch_fail(
    cadre_watch *watch, cadre_status status, int suspect, const char *text)
{
    CADRE_ASSERT(status != CADRE_OK);
    return watch->ops->fail(watch, status, suspect, text);
}

void cadre_watch_stop(cadre_watch *watch)
{
    if (watch != NULL) {
        watch->ops->stop(watch);
    }
}

cadre_status cadre_shared_verdict_create(
    int world_size, cadre_shared_verdict **out)
{
    CADRE_ASSERT(world_size > 0);
    cadre_shared_verdict *verdict = cadre_alloc_flex(
        sizeof(*verdict), (size_t)world_size, sizeof(cadre_transport *));
    if (verdict == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    verdict->world_size = world_size;
    pthread_mutex_init(&verdict->mu, NULL);
    *out = verdict;
    return CADRE_OK;
}

void cadre_shared_verdict_destroy(cadre_shared_verdict *verdict)
{
    if (verdict != NULL) {
        pthread_mutex_destroy(&verdict->mu);
        cadre_free(verdict);
    }
}

static shared_watch *as_shared(cadre_watch *watch)
{
    return (shared_watch *)watch;
}

static cadre_status shared_check(cadre_watch *watch)
{
    cadre_shared_verdict *verdict = as_shared(watch)->verdict;
    int status = atomic_load_explicit(&verdict->status, memory_order_acquire);
    if (status == CADRE_OK) {
        return CADRE_OK;
    }
    return cadre_fail((cadre_status)status, "%s", verdict->text);
}

static cadre_status shared_fail(
    cadre_watch *watch, cadre_status status, int suspect, const char *text)
{
    (void)suspect; // is in the text; there is nobody to ask about it
    cadre_shared_verdict *verdict = as_shared(watch)->verdict;

    pthread_mutex_lock(&verdict->mu);
    if (atomic_load_explicit(&verdict->status, memory_order_relaxed) ==
        CADRE_OK) {
        snprintf(verdict->text, sizeof(verdict->text), "%s", text);
        atomic_store_explicit(&verdict->status,
            (int)cadre_verdict_status(status), memory_order_release);
        for (int i = 0; i < verdict->world_size; i++) {
            if (verdict->transports[i] != NULL) {
                cadre_transport_wake(verdict->transports[i]);
            }
        }
    }
    pthread_mutex_unlock(&verdict->mu);
    return shared_check(watch);
}

static void shared_stop(cadre_watch *watch)
{
    shared_watch *w = as_shared(watch);
    pthread_mutex_lock(&w->verdict->mu);
    w->verdict->transports[w->rank] = NULL;
    pthread_mutex_unlock(&w->verdict->mu);
    cadre_free(w);
}

static const cadre_watch_ops shared_ops = {
    .check = shared_check,
    .fail = shared_fail,
    .stop = shared_stop,
};

cadre_status cadre_watch_start_shared(cadre_shared_verdict *verdict, int rank,
    cadre_transport *transport, cadre_watch **out)
{
    CADRE_ASSERT(rank >= 0 && rank < verdict->world_size);
    shared_watch *w = cadre_alloc(sizeof(*w));
    if (w == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    w->base.ops = &shared_ops;
    w->verdict = verdict;
    w->rank = rank;

    pthread_mutex_lock(&verdict->mu);
    verdict->transports[rank] = transport;
    pthread_mutex_unlock(&verdict->mu);
    *out = &w->base;
    return CADRE_OK;
}
