// SPDX-License-Identifier: Apache-2.0
//
// A crew: a rank's compute threads, each with a worker of its own.  They live
// as long as the run, sleep between jobs, and the caller is the first of them,
// so that a crew of one costs no hand-over.
//
// Memory:  everything at creation; a job allocates nothing.
// Threads: one thread at a time calls; the job runs on all of the crew.

#ifndef CADRE_TRAIN_CREW_H
#define CADRE_TRAIN_CREW_H

#include "nn/net.h"

typedef struct cadre_crew cadre_crew;

/**
 * Starts n_threads - 1 threads and makes a worker for each, for passes of the
 * given sizes; net is borrowed for the crew's life.
 *
 * Errors: CADRE_ERR_NO_MEMORY, and those of cadre_net_worker_create()
 */
cadre_status cadre_crew_create(const cadre_net *net, int n_threads,
    const int64_t *sizes, int n_sizes, cadre_crew **out);
void cadre_crew_destroy(cadre_crew *crew); // NULL is allowed

int cadre_crew_threads(const cadre_crew *crew);

/** Bytes that all its workers hold for activations and their gradients. */
size_t cadre_crew_activation_bytes(const cadre_crew *crew);

/** What its workers' passes have taken, the mean over threads. */
cadre_pass_times cadre_crew_times(const cadre_crew *crew);

/** What one thread of the crew does; thread counts from 0. */
typedef cadre_status (*cadre_crew_job)(
    cadre_net_worker *worker, int thread, void *ctx);

/**
 * Runs the job once on every thread and returns when all have returned.
 *
 * Returns the status and the text of the lowest thread that failed.
 */
cadre_status cadre_crew_run(cadre_crew *crew, cadre_crew_job job, void *ctx);

#endif // CADRE_TRAIN_CREW_H
