// SPDX-License-Identifier: Apache-2.0

#include "nn/softmax_cross_entropy.h"

#include "base/check.h"
#include "nn/exp.h"
#include "nn/lanes.h"
#include "nn/net.h"
#include <math.h>
#include <string.h>

static int32_t highest(const float *z, int64_t count)
{
    int32_t at = 0;
    for (int32_t c = 1; c < count; c++) {
        if (z[c] > z[at]) {
            at = c;
        }
    }
    return at;
}

// The sum of 8 lanes, by the element's place mod 8.
enum { LANES = 8 };

CADRE_VECTOR_BODY double join(const double lane[LANES])
{
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
           ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

// z becomes e^(z - top), top the highest score, so that nothing overflows; and
// the sum of them.
CADRE_VECTOR_BODY void exponentials_body(
    float *z, int64_t n, float top, double *sum)
{
    for (int64_t c = 0; c < n; c++) {
        z[c] = cadre_exp(z[c] - top);
    }
    double lane[LANES] = {0};
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES) {
        for (int j = 0; j < LANES; j++) {
            lane[j] += (double)z[c + j];
        }
    }
    for (int j = 0; c + j < n; j++) {
        lane[j] += (double)z[c + j];
    }
    *sum = join(lane);
}
CADRE_VECTOR(exponentials, (float *z, int64_t n, float top, double *sum),
    (z, n, top, sum));

CADRE_VECTOR_BODY void find_top_body(const float *z, int64_t n, float *top)
{
    *top = cadre_lanes_max(z, n);
}
CADRE_VECTOR(find_top, (const float *z, int64_t n, float *top), (z, n, top));

// The sum of z - top.
CADRE_VECTOR_BODY void sum_below_body(
    const float *z, int64_t n, float top, double *sum)
{
    double lane[LANES] = {0};
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES) {
        for (int j = 0; j < LANES; j++) {
            lane[j] += (double)z[c + j] - (double)top;
        }
    }
    for (int j = 0; c + j < n; j++) {
        lane[j] += (double)z[c + j] - (double)top;
    }
    *sum = join(lane);
}
CADRE_VECTOR(sum_below, (const float *z, int64_t n, float top, double *sum),
    (z, n, top, sum));

// Exponentials become probabilities less what the label gives to each class.
CADRE_VECTOR_BODY void divide_body(
    float *z, int64_t n, double sum, double given)
{
    for (int64_t c = 0; c < n; c++) {
        z[c] = (float)((double)z[c] / sum - given);
    }
}
CADRE_VECTOR(divide, (float *z, int64_t n, double sum, double given),
    (z, n, sum, given));

// A label that is smoothed: what is left to it, and what all classes get.
typedef struct target {
    int32_t label;
    double own;
    double shared; // by each class
} target;

static float sample(float *z, int64_t n_classes, const target *t)
{
    CADRE_ASSERT(t->label >= 0 && t->label < n_classes);
    const cadre_isa isa = cadre_isa_in_use();
    float top;
    find_top[isa](z, n_classes, &top);
    double hit = (double)z[t->label] - (double)top;
    if (t->shared > 0) {
        double all;
        sum_below[isa](z, n_classes, top, &all);
        hit = t->own * hit + t->shared * all;
    }
    double sum;
    exponentials[isa](z, n_classes, top, &sum);
    double of_label = (double)z[t->label] / sum - t->shared;
    divide[isa](z, n_classes, sum, t->shared);
    z[t->label] = (float)(of_label - t->own);
    return (float)(log(sum) - hit);
}

void cadre_softmax_cross_entropy(cadre_matrix_view z, const int32_t *labels,
    float smoothing, float *losses, cadre_matrix dz)
{
    const double part = (double)smoothing;
    const size_t row_bytes = (size_t)z.columns * sizeof(*dz.data);
    for (int64_t n = 0; n < z.rows; n++) {
        float *row = cadre_matrix_row(dz, n);
        const target t = {labels[n], 1.0 - part, part / (double)z.columns};
        if (t.label == CADRE_NO_LABEL) {
            losses[n] = 0.0f;
            memset(row, 0, row_bytes);
            continue;
        }
        if (dz.data != z.data) {
            memcpy(row, cadre_matrix_view_row(z, n), row_bytes);
        }
        losses[n] = sample(row, z.columns, &t);
    }
}

void cadre_highest_class(cadre_matrix_view z, int32_t *classes)
{
    for (int64_t n = 0; n < z.rows; n++) {
        classes[n] = highest(cadre_matrix_view_row(z, n), z.columns);
    }
}
