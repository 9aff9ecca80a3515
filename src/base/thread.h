// SPDX-License-Identifier: Apache-2.0
//
// Threads with names and a known floating-point state, and what is needed to
// wait on a condition until a deadline of the monotonic clock.

#ifndef CADRE_BASE_THREAD_H
#define CADRE_BASE_THREAD_H

#include "base/clock.h"
#include "cadre/status.h"
#include <fenv.h>
#include <pthread.h>
#include <stdbool.h>

typedef struct cadre_thread {
    pthread_t handle;
    bool running; // false: nothing to join
} cadre_thread;

/**
 * Starts body(ctx) in a thread of the given name (shown by debuggers; cut at 15
 * characters).  The thread blocks all signals that a process can be sent, and
 * rounds to nearest with subnormals kept.
 *
 * Errors: CADRE_ERR_NO_MEMORY  the system has no thread left
 */
cadre_status cadre_thread_start(
    cadre_thread *thread, const char *name, void (*body)(void *ctx), void *ctx);

/** Waits for the thread's end, if it was started. */
void cadre_thread_join(cadre_thread *thread);

/**
 * Sets round-to-nearest, no flush-to-zero on the calling thread.  Loading a
 * library that was linked with -ffast-math may have changed it
 * (docs/numerics.md section 7), so whoever computes calls this first.
 */
void cadre_thread_plain_floats(void);

/** The caller's floating-point environment, while ours is in force. */
typedef struct cadre_floats {
    fenv_t caller;
} cadre_floats;

/** Plain floats on a thread of the caller's, until cadre_floats_leave(). */
void cadre_floats_enter(cadre_floats *floats);
void cadre_floats_leave(const cadre_floats *floats);

/** A condition whose timed waits use the monotonic clock. */
void cadre_condition_init(pthread_cond_t *condition);

/** False when the deadline has passed. */
bool cadre_condition_wait(
    pthread_cond_t *condition, pthread_mutex_t *mu, cadre_deadline deadline);

/** Cores this process may run on, at least 1. */
int cadre_cpu_count(void);

#endif // CADRE_BASE_THREAD_H
