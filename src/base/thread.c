// SPDX-License-Identifier: Apache-2.0
//
// Linux: thread names and the set of usable cores are not in POSIX.

#define _GNU_SOURCE // pthread_setname_np, sched_getaffinity

#include "base/thread.h"

#include "base/alloc.h"
#include "base/fail.h"
#include <errno.h>
#include <fenv.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>

typedef struct start {
    void (*body)(void *ctx);
    void *ctx;
    char name[16];
} start;

static void *run(void *argument)
{
    start s = *(start *)argument;
    cadre_free(argument);
    pthread_setname_np(pthread_self(), s.name);
    cadre_thread_plain_floats();
    s.body(s.ctx);
    return NULL;
}

cadre_status cadre_thread_start(
    cadre_thread *thread, const char *name, void (*body)(void *ctx), void *ctx)
{
    start *s = cadre_alloc(sizeof(*s));
    if (s == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    s->body = body;
    s->ctx = ctx;
    snprintf(s->name, sizeof(s->name), "%s", name);

    // Signals go to the program's own threads, which know what they mean.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread->handle, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);

    if (error != 0) {
        cadre_free(s);
        return cadre_fail_errno(
            CADRE_ERR_NO_MEMORY, error, "cannot start thread '%s'", name);
    }
    thread->running = true;
    return CADRE_OK;
}

void cadre_thread_join(cadre_thread *thread)
{
    if (thread->running) {
        pthread_join(thread->handle, NULL);
        thread->running = false;
    }
}

void cadre_thread_plain_floats(void)
{
    // The default environment of C: on x86 and Arm also without flush-to-zero.
    (void)fesetenv(FE_DFL_ENV);
}

void cadre_floats_enter(cadre_floats *floats)
{
    (void)fegetenv(&floats->caller);
    cadre_thread_plain_floats();
}

void cadre_floats_leave(const cadre_floats *floats)
{
    (void)fesetenv(&floats->caller);
}

void cadre_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

bool cadre_condition_wait(
    pthread_cond_t *condition, pthread_mutex_t *mu, cadre_deadline deadline)
{
    if (deadline == CADRE_NO_DEADLINE) {
        pthread_cond_wait(condition, mu);
        return true;
    }
    struct timespec t = {
        .tv_sec = deadline / 1000000000,
        .tv_nsec = (long)(deadline % 1000000000),
    };
    return pthread_cond_timedwait(condition, mu, &t) != ETIMEDOUT;
}

int cadre_cpu_count(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) < 1) {
        return 1;
    }
    return CPU_COUNT(&set);
}
