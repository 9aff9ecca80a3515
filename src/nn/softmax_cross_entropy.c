// SPDX-License-Identifier: Apache-2.0

#include "nn/softmax_cross_entropy.h"

#include "base/check.h"
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

// The highest score is taken off all of them, so that nothing overflows.
static float sample(const float *z, int64_t n_classes, int32_t label, float *dz)
{
    CADRE_ASSERT(label >= 0 && label < n_classes);
    float top = z[highest(z, n_classes)];
    double sum = 0.0;
    for (int64_t c = 0; c < n_classes; c++) {
        dz[c] = expf(z[c] - top);
        sum += (double)dz[c];
    }
    for (int64_t c = 0; c < n_classes; c++) {
        double one = c == label ? 1.0 : 0.0;
        dz[c] = (float)((double)dz[c] / sum - one);
    }
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
