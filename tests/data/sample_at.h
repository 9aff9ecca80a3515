// SPDX-License-Identifier: Apache-2.0
//
// One sample of an order, for tests that look at one at a time.

#ifndef CADRE_TESTS_DATA_SAMPLE_AT_H
#define CADRE_TESTS_DATA_SAMPLE_AT_H

#include "data/deal.h"

static inline int64_t sample_at(
    uint64_t seed, int64_t epoch, int64_t n_samples, int64_t position)
{
    int64_t sample;
    cadre_deal_samples(seed, epoch, n_samples, position, 1, &sample);
    return sample;
}

#endif // CADRE_TESTS_DATA_SAMPLE_AT_H
