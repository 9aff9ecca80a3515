// SPDX-License-Identifier: Apache-2.0

#include "train/tally.h"

#include "base/alloc.h"
#include <math.h>
#include <stdlib.h>

enum {
    WARM_UP_STEPS = 5,
    // The median of a longer run is that of its last million steps: 4 MB.
    MAX_WINDOW = 1000000,
};

cadre_status cadre_tally_init(
    cadre_tally *tally, int64_t n_steps, int64_t sample_weight)
{
    int64_t window = n_steps < MAX_WINDOW ? n_steps : MAX_WINDOW;
    float *memory = cadre_alloc_array((size_t)window, sizeof(*memory));
    if (memory == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    *tally = (cadre_tally){.sample_weight = sample_weight,
        .window = memory,
        .window_steps = window};
    return CADRE_OK;
}

void cadre_tally_fini(cadre_tally *tally)
{
    cadre_free(tally->window);
    *tally = (cadre_tally){0};
}

void cadre_tally_resume(cadre_tally *tally, int64_t n_steps, int64_t n_skipped,
    const double *losses, int n_losses)
{
    tally->n_steps = n_steps;
    tally->n_before = n_steps;
    tally->n_skipped = n_skipped;
    for (int i = 0; i < n_losses; i++) {
        tally->losses[(n_steps - n_losses + i) % CADRE_TALLY_LOSSES] =
            losses[i];
    }
}

int cadre_tally_losses(
    const cadre_tally *tally, double losses[CADRE_TALLY_LOSSES])
{
    int n = tally->n_steps < CADRE_TALLY_LOSSES ? (int)tally->n_steps
                                                : (int)CADRE_TALLY_LOSSES;
    for (int i = 0; i < n; i++) {
        losses[i] =
            tally->losses[(tally->n_steps - n + i) % CADRE_TALLY_LOSSES];
    }
    return n;
}

void cadre_tally_add(cadre_tally *tally, const cadre_step_report *report,
    const cadre_step_times *times)
{
    tally->losses[tally->n_steps % CADRE_TALLY_LOSSES] = report->loss;
    tally->n_steps++;
    tally->n_skipped += report->skipped;
    tally->bytes_sent += report->bytes_sent;
    tally->overhead_bytes += report->overhead_bytes;
    if (tally->n_steps - tally->n_before <= WARM_UP_STEPS) {
        return;
    }
    tally->window[tally->n_measured % tally->window_steps] =
        (float)times->ns * 1e-6f;
    tally->n_measured++;
    tally->weight += report->weight;
    tally->times.ns += times->ns;
    tally->times.data_ns += times->data_ns;
    tally->times.forward_ns += times->forward_ns;
    tally->times.backward_ns += times->backward_ns;
    tally->exposed_ns += (int64_t)(report->exposed_ms * 1e6);
    tally->update_ns += (int64_t)(report->update_ms * 1e6);
}

double cadre_tally_loss(const cadre_tally *tally)
{
    double losses[CADRE_TALLY_LOSSES];
    int n = cadre_tally_losses(tally, losses);
    double sum = 0;
    int n_finite = 0;
    for (int i = 0; i < n; i++) {
        if (isfinite(losses[i])) {
            sum += losses[i];
            n_finite++;
        }
    }
    return n_finite == 0 ? (double)NAN : sum / n_finite;
}

double cadre_tally_samples_per_second(const cadre_tally *tally)
{
    if (tally->n_measured == 0) {
        return (double)NAN;
    }
    double n_samples = (double)tally->weight / (double)tally->sample_weight;
    return n_samples * 1e9 / (double)tally->times.ns;
}

static int compare(const void *left, const void *right)
{
    float a = *(const float *)left;
    float b = *(const float *)right;
    return (a > b) - (a < b);
}

double cadre_tally_median_ms(cadre_tally *tally)
{
    int64_t n = tally->n_measured < tally->window_steps ? tally->n_measured
                                                        : tally->window_steps;
    if (n == 0) {
        return (double)NAN;
    }
    qsort(tally->window, (size_t)n, sizeof(tally->window[0]), compare);
    return ((double)tally->window[(n - 1) / 2] + (double)tally->window[n / 2]) /
           2;
}
