// SPDX-License-Identifier: Apache-2.0
//
// A small model to train in tests of the engine, with parameters that are frozen,
// the caller's own, and unused by some leaves, and with a buffer.  A leaf's
// gradient is a function of (step, leaf), so it is the same wherever it is
// computed; the order in which a leaf marks its gradients, and when, is as random
// as the job says.

#ifndef CADRE_TESTS_PARALLEL_TRAINEE_H
#define CADRE_TESTS_PARALLEL_TRAINEE_H

#include "cadre/cadre.h"
#include "support/ranks.h"

enum { TRAINEE_PARAMS = 9, TRAINEE_STEPS = 3, TRAINEE_EVENTS = 4096 };

/** Elements of the model that are not frozen. */
enum {
    TRAINEE_ELEMENTS = 37 * 53 + 37 + 9 * 1000 + 9 + 40 * 260 + 40 + 3 + 71
};

typedef struct trainee_job {
    cadre_engine_options options;
    cadre_order order;
    bool shuffled; // leaves mark gradients in any order, with pauses
    int poison;    // leaf of step 1 with an infinite gradient; or -1
    bool no_own;   // no parameter is the caller's own: all lie in the arena
    bool one_own;  // one is, and that of rank 0 only
    // Of rank 0, after every step.
    uint64_t hash[TRAINEE_STEPS];
    cadre_step_report report[TRAINEE_STEPS];
    // Of rank 0, in the last step.
    cadre_event events[TRAINEE_EVENTS];
    int n_events;
} trainee_job;

/** AdamW with clipping on so many leaves. */
trainee_job trainee_plain_job(int leaves);

/** Fills in the gradient of a parameter in a leaf. */
void trainee_gradient(float *grad, size_t count, int param, int step, int leaf);

/** Makes the job's model, with its first values. */
void trainee_make_model(
    cadre_group *group, const trainee_job *job, cadre_model **out);

/** True if the leaf does not use the parameter, or nobody does. */
bool trainee_skips(int param, int leaf);

/** Computes leaves until there are none left, as one thread. */
void trainee_compute(
    const trainee_job *job, cadre_model *m, cadre_engine *e, int step);

/** One step with the job's threads; step counts from 0. */
cadre_status trainee_step(const trainee_job *job, cadre_model *m,
    cadre_engine *e, int step, cadre_step_report *report);

/** What a rank does to fill in the job; ctx is it. */
void trainee_train(cadre_group *group, void *ctx);

/** The same numbers in every step. */
void trainee_assert_same(const trainee_job *a, const trainee_job *b);

/** What two ranks or runs report of the same step. */
void assert_same_report(const cadre_step_report *a, const cadre_step_report *b);

#endif // CADRE_TESTS_PARALLEL_TRAINEE_H
