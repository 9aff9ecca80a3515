// SPDX-License-Identifier: Apache-2.0
//
// metrics.jsonl: a line of JSON per logged step, whole as soon as it is
// written, so that others can follow a run (docs/cli.md has the fields).
//
// Threads: one at a time.

#ifndef CADRE_TRAIN_METRICS_H
#define CADRE_TRAIN_METRICS_H

#include "cadre/train.h"
#include "train/watch.h"

typedef struct cadre_metrics cadre_metrics;

typedef struct cadre_new_identity {
    uint64_t hash;
    int leaves;
} cadre_new_identity;

typedef struct cadre_metrics_line {
    const cadre_step_report *report;
    double step_ms;
    double samples_per_second;
    double tokens_per_second; // NaN where there are none
    const cadre_watch_facts *ranks;
    const cadre_eval_result *eval; // of this step's parameters; or NULL
    const uint64_t *params_hash;   // or NULL
    // Where a new identity begins, else NULL.
    const cadre_new_identity *new_identity;
} cadre_metrics_line;

/**
 * Makes the folder and an empty file in it.
 *
 * Errors: CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_metrics_open(const char *folder, cadre_metrics **out);

/**
 * Goes on with the file of a run of which n_steps count: lines of later steps,
 * and what is no line, are left out.  *lacks_eval becomes whether the last of
 * these steps has a line, but no evaluation.
 *
 * Errors: as above
 */
cadre_status cadre_metrics_resume(
    const char *folder, int64_t n_steps, bool *lacks_eval, cadre_metrics **out);
void cadre_metrics_close(cadre_metrics *metrics); // NULL is allowed

/** Errors: CADRE_ERR_IO, CADRE_ERR_NO_MEMORY */
cadre_status cadre_metrics_write(
    cadre_metrics *metrics, const cadre_metrics_line *line);

/**
 * Adds an evaluation to the line of step, the last one, if there is such a line.
 *
 * Errors: CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_metrics_amend(
    cadre_metrics *metrics, int64_t step, const cadre_eval_result *eval);

#endif // CADRE_TRAIN_METRICS_H
