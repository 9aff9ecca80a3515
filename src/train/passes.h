// SPDX-License-Identifier: Apache-2.0
//
// The numbers of samples that passes of a run can have, which a compute thread
// prepares for before the first step.
//
// Threads: any.

#ifndef CADRE_TRAIN_PASSES_H
#define CADRE_TRAIN_PASSES_H

#include "cadre/train.h"

enum { CADRE_MAX_PASS_SIZES = 8 };

typedef struct cadre_pass_sizes {
    int n;
    int64_t sizes[CADRE_MAX_PASS_SIZES];
} cadre_pass_sizes;

/**
 * Every size: leaves of a batch differ by one, are cut into micro-batches, and
 * an epoch may end with a short batch.
 */
cadre_pass_sizes cadre_pass_sizes_of(
    const cadre_train_config *config, int64_t n_samples, int n_leaves);

#endif // CADRE_TRAIN_PASSES_H
