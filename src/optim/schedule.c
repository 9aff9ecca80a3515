// SPDX-License-Identifier: Apache-2.0

#include "optim/schedule.h"

double cadre_schedule_constant(double lr, int64_t warmup_steps, int64_t t)
{
    return t >= warmup_steps ? lr : lr * ((double)t / (double)warmup_steps);
}
