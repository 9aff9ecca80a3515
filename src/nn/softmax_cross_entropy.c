// SPDX-License-Identifier: Apache-2.0

#include "nn/softmax_cross_entropy.h"

#include "base/check.h"
#include "nn/exp.h"
#include "nn/lanes.h"
#include <math.h>

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

// dz = e^(z - top), top the highest score, so that nothing overflows; and the
// sum of them.
CADRE_VECTOR_BODY void exponentials_body(const float *restrict z, int64_t n,
    float *restrict dz, float *highest_score, double *sum)
{
    enum { LANES = 8 };
    const float top = cadre_lanes_max(z, n);
    *highest_score = top;
    for (int64_t c = 0; c < n; c++) {
        dz[c] = cadre_exp(z[c] - top);
    }
    double lane[LANES] = {0};
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES) {
        for (int j = 0; j < LANES; j++) {
            lane[j] += (double)dz[c + j];
        }
    }
    for (int j = 0; c + j < n; j++) {
        lane[j] += (double)dz[c + j];
    }
    *sum = ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
           ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}
CADRE_VECTOR(exponentials,
    (const float *restrict z, int64_t n, float *restrict dz,
        float *highest_score, double *sum),
    (z, n, dz, highest_score, sum));

CADRE_VECTOR_BODY void divide_body(float *dz, int64_t n, double sum)
{
    for (int64_t c = 0; c < n; c++) {
        dz[c] = (float)((double)dz[c] / sum);
    }
}
CADRE_VECTOR(divide, (float *dz, int64_t n, double sum), (dz, n, sum));

static float sample(const float *z, int64_t n_classes, int32_t label, float *dz)
{
    CADRE_ASSERT(label >= 0 && label < n_classes);
    const cadre_isa isa = cadre_isa_in_use();
    float top;
    double sum;
    exponentials[isa](z, n_classes, dz, &top, &sum);
    double of_label = (double)dz[label] / sum;
    divide[isa](dz, n_classes, sum);
    dz[label] = (float)(of_label - 1.0);
    return (float)(log(sum) - ((double)z[label] - (double)top));
}

void cadre_softmax_cross_entropy(
    cadre_matrix_view z, const int32_t *labels, float *losses, cadre_matrix dz)
{
    for (int64_t n = 0; n < z.rows; n++) {
        losses[n] = sample(cadre_matrix_view_row(z, n), z.columns, labels[n],
            cadre_matrix_row(dz, n));
    }
}

void cadre_highest_class(cadre_matrix_view z, int32_t *classes)
{
    for (int64_t n = 0; n < z.rows; n++) {
        classes[n] = highest(cadre_matrix_view_row(z, n), z.columns);
    }
}
