// SPDX-License-Identifier: Apache-2.0
//
// The watch of ranks that are processes: a thread that sleeps on the connection
// to the hub, gives signs of life, and keeps the verdict.
//
// Locks: mu guards the verdict while it is made; nothing is called under it.

#include "group/watch_impl.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/thread.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { ANSWER_MS = 500 }; // how long a rank's report waits for the verdict

typedef struct process_watch {
    cadre_watch base;
    cadre_member *member;
    cadre_transport *transport; // borrowed
    cadre_thread thread;
    atomic_bool stopping;

    pthread_mutex_t mu;
    pthread_cond_t decided;
    // The verdict's.  Its release publishes text to whoever acquires it; set
    // once, under mu.
    atomic_int status;
    char text[CADRE_FAIL_TEXT_BYTES];
} process_watch;

static process_watch *as_process(cadre_watch *watch)
{
    return (process_watch *)watch;
}

// Keeps the verdict, unless there is one.
static void decide(process_watch *w, cadre_status status, const char *text)
{
    pthread_mutex_lock(&w->mu);
    if (atomic_load_explicit(&w->status, memory_order_relaxed) == CADRE_OK) {
        snprintf(w->text, sizeof(w->text), "%s", text);
        atomic_store_explicit(&w->status, (int)cadre_verdict_status(status),
            memory_order_release);
    }
    pthread_cond_broadcast(&w->decided);
    pthread_mutex_unlock(&w->mu);
    cadre_transport_wake(w->transport);
}

static void listen_to_hub(void *ctx)
{
    process_watch *w = ctx;
    cadre_verdict verdict;
    while (!atomic_load_explicit(&w->stopping, memory_order_acquire)) {
        if (cadre_member_listen(w->member, CADRE_NO_DEADLINE, &verdict)) {
            decide(w, verdict.status, verdict.text);
        }
    }
}

static cadre_status process_check(cadre_watch *watch)
{
    process_watch *w = as_process(watch);
    int status = atomic_load_explicit(&w->status, memory_order_acquire);
    if (status == CADRE_OK) {
        return CADRE_OK;
    }
    return cadre_fail((cadre_status)status, "%s", w->text);
}

static cadre_status process_fail(
    cadre_watch *watch, cadre_status status, int suspect, const char *text)
{
    process_watch *w = as_process(watch);
    cadre_deadline deadline = cadre_deadline_in_ms(ANSWER_MS);
    cadre_member_report(w->member, status, suspect, text);
    pthread_mutex_lock(&w->mu);
    while (atomic_load_explicit(&w->status, memory_order_relaxed) == CADRE_OK &&
           cadre_condition_wait(&w->decided, &w->mu, deadline)) {
    }
    pthread_mutex_unlock(&w->mu);
    decide(w, status, text); // if the hub did not
    return process_check(watch);
}

static void process_stop(cadre_watch *watch)
{
    process_watch *w = as_process(watch);
    atomic_store_explicit(&w->stopping, true, memory_order_release);
    cadre_member_wake(w->member);
    cadre_thread_join(&w->thread);
    cadre_member_leave(w->member);
    pthread_cond_destroy(&w->decided);
    pthread_mutex_destroy(&w->mu);
    cadre_free(w);
}

static const cadre_watch_ops process_ops = {
    .check = process_check,
    .fail = process_fail,
    .stop = process_stop,
};

cadre_status cadre_watch_start(
    cadre_member *member, cadre_transport *transport, cadre_watch **out)
{
    process_watch *w = cadre_alloc(sizeof(*w));
    if (w == NULL) {
        cadre_member_leave(member);
        return CADRE_ERR_NO_MEMORY;
    }
    w->base.ops = &process_ops;
    w->member = member;
    w->transport = transport;
    pthread_mutex_init(&w->mu, NULL);
    cadre_condition_init(&w->decided);
    cadre_status status =
        cadre_thread_start(&w->thread, "cadre/control", listen_to_hub, w);
    if (status != CADRE_OK) {
        process_stop(&w->base);
        return status;
    }
    *out = &w->base;
    return CADRE_OK;
}
