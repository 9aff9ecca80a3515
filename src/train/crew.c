// SPDX-License-Identifier: Apache-2.0

#include "train/crew.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/thread.h"
#include <stdio.h>

typedef struct seat {
    cadre_crew *crew;
    int thread;
    cadre_net_worker *worker;
    cadre_thread handle; // seat 0 is the caller and has none
    uint64_t jobs_done;
    cadre_status status; // of the last job, with its text
    char text[CADRE_FAIL_TEXT_BYTES];
} seat;

struct cadre_crew {
    pthread_mutex_t mu;
    pthread_cond_t started;
    pthread_cond_t finished;
    uint64_t n_jobs;    // guarded by mu: jobs so far, the present one included
    int n_busy;         // guarded by mu
    bool ending;        // guarded by mu
    cadre_crew_job job; // written before n_jobs goes up, under mu
    void *ctx;
    int n_threads;
    seat seats[];
};

static void run_job(seat *s)
{
    s->status = s->crew->job(s->worker, s->thread, s->crew->ctx);
    if (s->status != CADRE_OK) {
        snprintf(s->text, sizeof(s->text), "%s", cadre_error_text());
    }
}

static bool await_job(seat *s)
{
    cadre_crew *crew = s->crew;
    pthread_mutex_lock(&crew->mu);
    while (!crew->ending && s->jobs_done == crew->n_jobs) {
        pthread_cond_wait(&crew->started, &crew->mu);
    }
    bool more = !crew->ending;
    pthread_mutex_unlock(&crew->mu);
    return more;
}

static void work(void *ctx)
{
    seat *s = ctx;
    cadre_crew *crew = s->crew;
    while (await_job(s)) {
        run_job(s);
        pthread_mutex_lock(&crew->mu);
        s->jobs_done++;
        crew->n_busy--;
        if (crew->n_busy == 0) {
            pthread_cond_signal(&crew->finished);
        }
        pthread_mutex_unlock(&crew->mu);
    }
}

static cadre_status fill_seat(cadre_crew *crew, int thread,
    const cadre_net *net, const int64_t *sizes, int n_sizes)
{
    seat *s = &crew->seats[thread];
    s->crew = crew;
    s->thread = thread;
    CADRE_TRY(cadre_net_worker_create(net, sizes, n_sizes, &s->worker));
    if (thread == 0) {
        return CADRE_OK;
    }
    char name[32];
    snprintf(name, sizeof(name), "cadre/comp %d", thread);
    return cadre_thread_start(&s->handle, name, work, s);
}

cadre_status cadre_crew_create(const cadre_net *net, int n_threads,
    const int64_t *sizes, int n_sizes, cadre_crew **out)
{
    cadre_crew *crew = cadre_alloc_flex(
        sizeof(*crew), (size_t)n_threads, sizeof(crew->seats[0]));
    if (crew == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    pthread_mutex_init(&crew->mu, NULL);
    cadre_condition_init(&crew->started);
    cadre_condition_init(&crew->finished);
    crew->n_threads = n_threads;
    for (int i = 0; i < n_threads; i++) {
        cadre_status status = fill_seat(crew, i, net, sizes, n_sizes);
        if (status != CADRE_OK) {
            cadre_crew_destroy(crew);
            return status;
        }
    }
    *out = crew;
    return CADRE_OK;
}

void cadre_crew_destroy(cadre_crew *crew)
{
    if (crew == NULL) {
        return;
    }
    pthread_mutex_lock(&crew->mu);
    crew->ending = true;
    pthread_cond_broadcast(&crew->started);
    pthread_mutex_unlock(&crew->mu);
    for (int i = 0; i < crew->n_threads; i++) {
        cadre_thread_join(&crew->seats[i].handle);
        cadre_net_worker_destroy(crew->seats[i].worker);
    }
    pthread_cond_destroy(&crew->finished);
    pthread_cond_destroy(&crew->started);
    pthread_mutex_destroy(&crew->mu);
    cadre_free(crew);
}

int cadre_crew_threads(const cadre_crew *crew)
{
    return crew->n_threads;
}

size_t cadre_crew_activation_bytes(const cadre_crew *crew)
{
    size_t nbytes = 0;
    for (int i = 0; i < crew->n_threads; i++) {
        nbytes += cadre_net_worker_bytes(crew->seats[i].worker);
    }
    return nbytes;
}

cadre_pass_times cadre_crew_times(const cadre_crew *crew)
{
    cadre_pass_times mean = {0};
    for (int i = 0; i < crew->n_threads; i++) {
        cadre_pass_times t = cadre_net_worker_times(crew->seats[i].worker);
        mean.forward_ns += t.forward_ns / crew->n_threads;
        mean.backward_ns += t.backward_ns / crew->n_threads;
    }
    return mean;
}

static void start_job(cadre_crew *crew, cadre_crew_job job, void *ctx)
{
    pthread_mutex_lock(&crew->mu);
    crew->job = job;
    crew->ctx = ctx;
    crew->n_jobs++;
    crew->n_busy = crew->n_threads - 1;
    pthread_mutex_unlock(&crew->mu);
    // Unlocked before, so that who wakes does not have to wait again.
    pthread_cond_broadcast(&crew->started);
}

// The job may wait for other ranks; what it waits with has a deadline, so this
// wait ends without one of its own.
static void await_others(cadre_crew *crew)
{
    pthread_mutex_lock(&crew->mu);
    while (crew->n_busy > 0) {
        pthread_cond_wait(&crew->finished, &crew->mu);
    }
    pthread_mutex_unlock(&crew->mu);
}

cadre_status cadre_crew_run(cadre_crew *crew, cadre_crew_job job, void *ctx)
{
    start_job(crew, job, ctx);
    run_job(&crew->seats[0]);
    await_others(crew);
    for (int i = 0; i < crew->n_threads; i++) {
        const seat *s = &crew->seats[i];
        if (s->status != CADRE_OK) {
            return cadre_fail(s->status, "%s", s->text);
        }
    }
    return CADRE_OK;
}
