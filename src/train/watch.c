// SPDX-License-Identifier: Apache-2.0

#include "train/watch.h"

#include "base/alloc.h"
#include "base/fail.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

// What a rank tells, in whole numbers.
enum { N_STEPS, STEPS_NS, EXPOSED_NS, FASTEST_NS, SLOWEST_NS, RSS, N_WORDS };

struct cadre_watch {
    cadre_group *world; // borrowed
    int n_ranks;
    int64_t mine[N_WORDS]; // since the gathering before
    int64_t *all;          // N_WORDS per rank
    size_t *counts;
    double *step_ms;
    double *busy_ms;
    double *sorted;
};

int64_t cadre_peak_rss_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss * 1024 : 0;
}

cadre_status cadre_watch_create(cadre_group *world, cadre_watch **out)
{
    cadre_watch *w = cadre_alloc(sizeof(*w));
    if (w == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    size_t n = (size_t)cadre_world_size(world);
    w->world = world;
    w->n_ranks = (int)n;
    w->all = cadre_alloc_array(n, sizeof(w->mine));
    w->counts = cadre_alloc_array(n, sizeof(*w->counts));
    w->step_ms = cadre_alloc_array(n, sizeof(*w->step_ms));
    w->busy_ms = cadre_alloc_array(n, sizeof(*w->busy_ms));
    w->sorted = cadre_alloc_array(n, sizeof(*w->sorted));
    if (w->all == NULL || w->counts == NULL || w->step_ms == NULL ||
        w->busy_ms == NULL || w->sorted == NULL) {
        cadre_watch_destroy(w);
        return CADRE_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        w->counts[i] = N_WORDS;
    }
    *out = w;
    return CADRE_OK;
}

void cadre_watch_destroy(cadre_watch *watch)
{
    if (watch == NULL) {
        return;
    }
    cadre_free(watch->all);
    cadre_free(watch->counts);
    cadre_free(watch->step_ms);
    cadre_free(watch->busy_ms);
    cadre_free(watch->sorted);
    cadre_free(watch);
}

void cadre_watch_add(
    cadre_watch *watch, const cadre_step_report *report, int64_t step_ns)
{
    int64_t *m = watch->mine;
    bool first = m[N_STEPS] == 0;
    m[N_STEPS]++;
    m[STEPS_NS] += step_ns;
    m[EXPOSED_NS] += (int64_t)(report->exposed_ms * 1e6);
    if (first || step_ns < m[FASTEST_NS]) {
        m[FASTEST_NS] = step_ns;
    }
    if (first || step_ns > m[SLOWEST_NS]) {
        m[SLOWEST_NS] = step_ns;
    }
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(cadre_watch *w)
{
    size_t n = (size_t)w->n_ranks;
    memcpy(w->sorted, w->busy_ms, n * sizeof(*w->sorted));
    qsort(w->sorted, n, sizeof(*w->sorted), compare);
    return (w->sorted[(n - 1) / 2] + w->sorted[n / 2]) / 2;
}

static void take_rank(cadre_watch *w, int rank, cadre_watch_facts *f)
{
    const int64_t *words = w->all + (size_t)rank * N_WORDS;
    double n_steps = words[N_STEPS] > 0 ? (double)words[N_STEPS] : 1;
    double step_ms = (double)words[STEPS_NS] * 1e-6 / n_steps;
    double busy_ms = step_ms - (double)words[EXPOSED_NS] * 1e-6 / n_steps;
    w->step_ms[rank] = step_ms;
    w->busy_ms[rank] = busy_ms > 0 ? busy_ms : 0;
    double fastest_ms = (double)words[FASTEST_NS] * 1e-6;
    double slowest_ms = (double)words[SLOWEST_NS] * 1e-6;
    if (rank == 0 || fastest_ms < f->fastest_ms) {
        f->fastest_ms = fastest_ms;
    }
    if (rank == 0 || slowest_ms > f->slowest_ms) {
        f->slowest_ms = slowest_ms;
    }
    if (w->busy_ms[rank] > w->busy_ms[f->slowest_rank]) {
        f->slowest_rank = rank;
    }
    if (rank == 0 || words[RSS] > f->rss_bytes) {
        f->rss_bytes = words[RSS];
        f->rss_rank = rank;
    }
}

cadre_status cadre_watch_gather(cadre_watch *watch, cadre_watch_facts *out)
{
    watch->mine[RSS] = cadre_peak_rss_bytes();
    CADRE_TRY(cadre_allgather(
        watch->world, watch->mine, watch->all, watch->counts, CADRE_I64, NULL));
    memset(watch->mine, 0, sizeof(watch->mine));
    cadre_watch_facts f = {.n_ranks = watch->n_ranks,
        .step_ms = watch->step_ms,
        .busy_ms = watch->busy_ms};
    for (int r = 0; r < watch->n_ranks; r++) {
        take_rank(watch, r, &f);
    }
    double middle = median(watch);
    f.slowest_excess =
        middle > 0 ? watch->busy_ms[f.slowest_rank] / middle - 1 : 0;
    *out = f;
    return CADRE_OK;
}
