// SPDX-License-Identifier: Apache-2.0
//
// Learning-rate schedules: pure functions of the update's number.  Threads: any.

#ifndef CADRE_OPTIM_SCHEDULE_H
#define CADRE_OPTIM_SCHEDULE_H

#include <stdint.h>

/**
 * The rate of update t, counted from 1: a linear rise to lr over warmup_steps
 * updates (the last of them has lr), constant from there on.
 */
double cadre_schedule_constant(double lr, int64_t warmup_steps, int64_t t);

#endif // CADRE_OPTIM_SCHEDULE_H
