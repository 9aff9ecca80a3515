// SPDX-License-Identifier: Apache-2.0
//
// Running means: what a step's samples showed on average enters with a tenth,
// PyTorch's momentum of a batch norm.  Pure, as optimizers are: runs may be cut
// anywhere.
//
// Threads: any, for different runs.

#ifndef CADRE_OPTIM_RUNNING_H
#define CADRE_OPTIM_RUNNING_H

#include <stddef.h>

/**
 * values = 0.9 values + 0.1 (sum scale), one rounding per operation, both
 * factors rounded once to f32.
 */
void cadre_running_update(
    float scale, const float *sum, float *values, size_t count);

#endif // CADRE_OPTIM_RUNNING_H
