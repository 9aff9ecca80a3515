// SPDX-License-Identifier: Apache-2.0

#include "optim/running.h"

#include "kernel/vector.h"

CADRE_VECTOR_BODY void enter_body(
    float scale, const float *restrict sum, float *restrict values, size_t n)
{
    const float kept = 0.9f;
    const float share = 0.1f;
    for (size_t i = 0; i < n; i++) {
        values[i] = kept * values[i] + share * (sum[i] * scale);
    }
}
CADRE_VECTOR(enter,
    (float scale, const float *restrict sum, float *restrict values, size_t n),
    (scale, sum, values, n));

void cadre_running_update(
    float scale, const float *sum, float *values, size_t count)
{
    enter[cadre_isa_in_use()](scale, sum, values, count);
}
