// SPDX-License-Identifier: Apache-2.0
//
// cadre_launch_threads: ranks that are threads of this process.

#include "cadre/launch.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/thread.h"
#include "group/group.h"
#include "rendezvous/place.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct crew crew;

typedef struct rank_thread {
    crew *crew;
    int rank;
    cadre_group *world; // NULL: not open
    cadre_thread thread;
} rank_thread;

struct crew {
    cadre_rank_main body;
    void *ctx;
    cadre_inproc_world *world;     // what they share; NULL for one rank
    cadre_shared_verdict *verdict; // likewise

    pthread_mutex_t mu;
    cadre_status status;              // of the first that failed; guarded by mu
    int failed_rank;                  // guarded by mu
    char text[CADRE_FAIL_TEXT_BYTES]; // guarded by mu

    cadre_order order; // of every rank's group
    int n;
    rank_thread ranks[]; // n of them
};

static cadre_status check(int n_ranks, const cadre_init_options *options,
    cadre_rank_main body, cadre_order *order)
{
    if (body == NULL || n_ranks < 1 || n_ranks > CADRE_MAX_RANKS) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "cadre_launch_threads: from 1 to %d ranks and a body are needed, "
            "not %d ranks",
            CADRE_MAX_RANKS, n_ranks);
    }
    const char *name = options == NULL ? NULL : options->transport;
    if (name != NULL && strcmp(name, "auto") != 0 &&
        strcmp(name, "inproc") != 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "ranks that are threads are connected by transport 'inproc', not "
            "'%s'",
            name);
    }
    if (options != NULL && options->timeout_ms < 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "timeout_ms is %d: it must not be negative", options->timeout_ms);
    }
    return cadre_order_from_name(
        options == NULL ? NULL : options->order, order);
}

static cadre_status open_rank(crew *c, int rank, int timeout_ms)
{
    cadre_transport *transport = NULL;
    cadre_watch *watch = NULL;
    rank_thread *r = &c->ranks[rank];
    r->crew = c;
    r->rank = rank;
    if (c->n > 1) {
        CADRE_TRY(cadre_inproc_open(c->world, rank, &transport));
        cadre_status status =
            cadre_watch_start_shared(c->verdict, rank, transport, &watch);
        if (status != CADRE_OK) {
            cadre_transport_close(transport);
            return status;
        }
    }
    CADRE_TRY(cadre_group_create(
        rank, c->n, timeout_ms, transport, watch, &r->world));
    cadre_group_set_order(r->world, c->order);
    return CADRE_OK;
}

// The first failure by time is the cause, the others its consequences.
static void keep_failure(crew *c, int rank, cadre_status status)
{
    pthread_mutex_lock(&c->mu);
    if (c->status == CADRE_OK) {
        c->status = status;
        c->failed_rank = rank;
        snprintf(c->text, sizeof(c->text), "%s", cadre_error_text());
    }
    pthread_mutex_unlock(&c->mu);
}

static void run_rank(void *ctx)
{
    rank_thread *r = ctx;
    cadre_status status = r->crew->body(r->world, r->crew->ctx);
    if (status != CADRE_OK) {
        keep_failure(r->crew, r->rank, status);
    }
    cadre_group_release(r->world);
    r->world = NULL;
}

// All ends are open before the first rank runs, so that none finds another
// missing.
static cadre_status open_all(crew *c, int timeout_ms)
{
    if (c->n > 1) {
        CADRE_TRY(cadre_inproc_world_create(c->n, &c->world));
        CADRE_TRY(cadre_shared_verdict_create(c->n, &c->verdict));
    }
    for (int r = 0; r < c->n; r++) {
        CADRE_TRY(open_rank(c, r, timeout_ms));
    }
    return CADRE_OK;
}

static void run_all(crew *c)
{
    for (int r = 0; r < c->n; r++) {
        char name[24];
        snprintf(name, sizeof(name), "cadre/rank %d", r);
        cadre_status status = cadre_thread_start(
            &c->ranks[r].thread, name, run_rank, &c->ranks[r]);
        if (status != CADRE_OK) {
            // Those that run would wait for it: its world is closed below.
            keep_failure(c, r, status);
            break;
        }
    }
    for (int r = 0; r < c->n; r++) {
        if (!c->ranks[r].thread.running) {
            cadre_group_release(c->ranks[r].world);
            c->ranks[r].world = NULL;
        }
    }
    for (int r = 0; r < c->n; r++) {
        cadre_thread_join(&c->ranks[r].thread);
    }
}

static void destroy(crew *c)
{
    for (int r = 0; r < c->n; r++) {
        cadre_group_release(c->ranks[r].world);
    }
    cadre_shared_verdict_destroy(c->verdict);
    cadre_inproc_world_destroy(c->world);
    pthread_mutex_destroy(&c->mu);
    cadre_free(c);
}

cadre_status cadre_launch_threads(int n_ranks,
    const cadre_init_options *options, cadre_rank_main body, void *ctx,
    int *failed_rank)
{
    cadre_order order;
    CADRE_TRY(check(n_ranks, options, body, &order));
    crew *c =
        cadre_alloc_flex(sizeof(*c), (size_t)n_ranks, sizeof(c->ranks[0]));
    if (c == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    c->body = body;
    c->ctx = ctx;
    c->order = order;
    c->n = n_ranks;
    c->failed_rank = -1;
    pthread_mutex_init(&c->mu, NULL);

    cadre_status status =
        open_all(c, options == NULL ? 0 : options->timeout_ms);
    if (status == CADRE_OK) {
        run_all(c);
        status = c->status;
        if (status != CADRE_OK) {
            (void)cadre_fail(status, "%s", c->text);
        }
    }
    if (failed_rank != NULL) {
        *failed_rank = c->failed_rank;
    }
    destroy(c);
    return status;
}
