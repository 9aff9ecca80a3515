// SPDX-License-Identifier: Apache-2.0
//
// A watch over the ranks: what each of them measures of its steps, gathered on
// all ranks when a line is logged, so that the slow one and the large one have
// a number.  Facts about time, which change no bit of a result.
//
// Memory:  all of it at creation.
// Threads: one at a time.

#ifndef CADRE_TRAIN_WATCH_H
#define CADRE_TRAIN_WATCH_H

#include "cadre/engine.h"

typedef struct cadre_watch cadre_watch;

/** About the steps since the gathering before. */
typedef struct cadre_watch_facts {
    int n_ranks;           // 0: nothing was gathered yet
    const double *step_ms; // per rank: its mean step
    const double *busy_ms; // per rank: what of that it computed
    double fastest_ms;     // one step, of any rank
    double slowest_ms;
    int slowest_rank;      // by busy_ms, the lowest of equals
    double slowest_excess; // over the median, as a fraction of it
    int64_t rss_bytes;     // the largest peak
    int rss_rank;          // whose it is
} cadre_watch_facts;

/** Errors: CADRE_ERR_NO_MEMORY */
cadre_status cadre_watch_create(cadre_group *world, cadre_watch **out);
void cadre_watch_destroy(cadre_watch *watch); // NULL is allowed

/** Counts a step of this rank. */
void cadre_watch_add(
    cadre_watch *watch, const cadre_step_report *report, int64_t step_ns);

/**
 * Gathers, after at least one step.  Collective.
 *
 * The arrays in *out belong to the watch and change with the next gathering.
 *
 * Errors: those of a collective
 */
cadre_status cadre_watch_gather(cadre_watch *watch, cadre_watch_facts *out);

/** The largest memory that this process had so far. */
int64_t cadre_peak_rss_bytes(void);

#endif // CADRE_TRAIN_WATCH_H
