// SPDX-License-Identifier: Apache-2.0
//
// What tests of bf16 share: rounding as the definition says, and how far f32
// results are from f64 ones.

#ifndef CADRE_TESTS_NN_BF16_H
#define CADRE_TESTS_NN_BF16_H

#include "base/alloc.h"
#include "nn/layer.h"
#include "support/check.h"
#include "support/reference.h"
#include <math.h>

static inline float *floats(size_t count)
{
    float *values = cadre_alloc_array(count, sizeof(*values));
    assert_non_null(values);
    return values;
}

static inline double rounded(float value)
{
    return reference_widen(CADRE_BF16, reference_narrow(CADRE_BF16, value));
}

// Rounded, with NaN between its rows.
static inline cadre_narrow_matrix narrowed(cadre_matrix_view from)
{
    size_t count = (size_t)(from.rows * from.stride);
    uint16_t *data = cadre_alloc_array(count, sizeof(*data));
    assert_non_null(data);
    for (size_t i = 0; i < count; i++) {
        data[i] = 0x7fc0;
    }
    cadre_narrow_matrix m = {data, from.rows, from.columns, from.stride};
    cadre_matrix_narrow(from, m);
    return m;
}

// Prepares a layer where one allocation after the other fails, and then none: how
// often that was, the last time included.
static inline int prepare_without_memory(const cadre_layer_plan *plan)
{
    cadre_layer_state *made = NULL;
    cadre_status status = CADRE_ERR_NO_MEMORY;
    int n = 0;
    for (; status == CADRE_ERR_NO_MEMORY; n++) {
        cadre_alloc_fail_after(n);
        status = plan->ops->prepare(plan, 2, &made);
        cadre_alloc_fail_after(-1);
    }
    CHECK_OK(status);
    plan->ops->release(made);
    return n;
}

// ||ours - theirs|| / ||theirs||
static inline double distance(
    const float *ours, const double *theirs, size_t count)
{
    double difference = 0.0;
    double norm = 0.0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)ours[i] - theirs[i];
        difference += d * d;
        norm += theirs[i] * theirs[i];
    }
    return sqrt(difference) / sqrt(norm);
}

// What is summed in f32 is off by little, however its factors were rounded.
static inline void assert_close(
    const char *what, const float *ours, const double *theirs, size_t count)
{
    double error = distance(ours, theirs, count);
    if (!(error <= 1e-5)) {
        fail_msg("%s is off by %g", what, error);
    }
}

#endif // CADRE_TESTS_NN_BF16_H
