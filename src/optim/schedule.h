// SPDX-License-Identifier: Apache-2.0
//
// Learning-rate schedules: pure functions of the update's number.  Sums,
// products and quotients in f64 alone, so that every host has the same bits
// (docs/numerics.md section 7).
//
// Threads: any.

#ifndef CADRE_OPTIM_SCHEDULE_H
#define CADRE_OPTIM_SCHEDULE_H

#include <stdint.h>

typedef enum cadre_rate_shape {
    CADRE_RATE_CONSTANT = 0,
    CADRE_RATE_COSINE = 1, // half a wave (Loshchilov, Hutter, "SGDR", 2017)
    CADRE_RATE_LINEAR = 2,
    CADRE_RATE_STEP = 3,
} cadre_rate_shape;

/** A rise to lr over warmup_steps updates, and then the shape. */
typedef struct cadre_rate_plan {
    cadre_rate_shape shape;
    double lr;
    int64_t warmup_steps;
    int64_t total_steps;  // cosine, linear: warm-up and fall together
    double min_lr_factor; // cosine, linear: of lr, after total_steps
    int64_t step_every;   // step: updates between two falls, at least 1
    double step_factor;   // step: what a fall multiplies by
} cadre_rate_plan;

/**
 * The rate of update t, counted from 1: lr t / W in the W updates of the
 * warm-up; from there on the rate falls from lr, as PyTorch's schedulers of
 * these names have it.
 */
double cadre_rate(const cadre_rate_plan *plan, int64_t t);

/** (1 + cos(pi p)) / 2 with a relative error below 2^-50; p from 0 to 1. */
double cadre_cosine_fall(double p);

#endif // CADRE_OPTIM_SCHEDULE_H
