// SPDX-License-Identifier: Apache-2.0
//
// A tally of a run's steps on one rank: what the summary says about them.
//
// Speeds leave out the first steps, in which memory is touched and clocks rise;
// evaluations are left out by whoever measures a step's time.
//
// Memory:  a window of step times for the median, allocated at the start.
// Threads: one at a time.

#ifndef CADRE_TRAIN_TALLY_H
#define CADRE_TRAIN_TALLY_H

#include "cadre/engine.h"

enum { CADRE_TALLY_LOSSES = 10 };

/** Where a step's time went, on this rank. */
typedef struct cadre_step_times {
    int64_t ns;          // all of it
    int64_t data_ns;     // waiting for samples
    int64_t forward_ns;  // of its compute threads, the mean
    int64_t backward_ns; // likewise
} cadre_step_times;

typedef struct cadre_tally {
    int64_t sample_weight;
    int64_t n_steps;
    int64_t n_before; // of these: made before the run was resumed
    int64_t n_skipped;
    double losses[CADRE_TALLY_LOSSES]; // of the last steps, in a ring
    uint64_t bytes_sent;               // in all steps
    uint64_t overhead_bytes;

    // Of the steps that are measured.
    int64_t n_measured;
    int64_t weight;
    cadre_step_times times;
    int64_t exposed_ns;
    int64_t update_ns;
    float *window; // milliseconds of the last of them, in a ring
    int64_t window_steps;
} cadre_tally;

/**
 * For a run of n_steps, on samples that weigh so much each.
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_tally_init(
    cadre_tally *tally, int64_t n_steps, int64_t sample_weight);
void cadre_tally_fini(cadre_tally *tally);

/** Takes over from before: the losses of the last steps, oldest first. */
void cadre_tally_resume(cadre_tally *tally, int64_t n_steps, int64_t n_skipped,
    const double *losses, int n_losses);

/** Writes the losses of the last steps, oldest first; returns their number. */
int cadre_tally_losses(
    const cadre_tally *tally, double losses[CADRE_TALLY_LOSSES]);

void cadre_tally_add(cadre_tally *tally, const cadre_step_report *report,
    const cadre_step_times *times);

/**
 * Mean loss of the last CADRE_TALLY_LOSSES steps, without those that were
 * skipped; NaN if there is none.
 */
double cadre_tally_loss(const cadre_tally *tally);

/** These two are NaN until a step was measured.  The second sorts the window. */
double cadre_tally_samples_per_second(const cadre_tally *tally);
double cadre_tally_median_ms(cadre_tally *tally);

#endif // CADRE_TRAIN_TALLY_H
