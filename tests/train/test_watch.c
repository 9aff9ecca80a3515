// SPDX-License-Identifier: Apache-2.0
//
// The watch: what ranks tell of their steps, as every rank sees it.

#include "train/watch.h"

#include "support/check.h"
#include "support/ranks.h"
#include <math.h>

enum { N_RANKS = 3, MS = 1000000 };

static bool about(double value, double wanted)
{
    return fabs(value - wanted) < 1e-6;
}

// Rank r makes two steps of 10 + r and 14 + r ms, of which it waits 4 - r.
static void make_steps(cadre_watch *w, int rank)
{
    const cadre_step_report report = {.exposed_ms = 4 - rank};
    cadre_watch_add(w, &report, (int64_t)(10 + rank) * MS);
    cadre_watch_add(w, &report, (int64_t)(14 + rank) * MS);
}

static void watch_ranks(cadre_group *group, void *ctx)
{
    (void)ctx;
    cadre_watch *w;
    RANK_OK(cadre_watch_create(group, &w));
    make_steps(w, cadre_rank(group));
    cadre_watch_facts f;
    RANK_OK(cadre_watch_gather(w, &f));
    RANK_CHECK(f.n_ranks == N_RANKS);
    for (int r = 0; r < N_RANKS; r++) {
        RANK_CHECK(about(f.step_ms[r], 12 + r));
        RANK_CHECK(about(f.busy_ms[r], 8 + 2 * r));
    }
    RANK_CHECK(about(f.fastest_ms, 10) && about(f.slowest_ms, 16));
    RANK_CHECK(f.slowest_rank == 2);
    RANK_CHECK(about(f.slowest_excess, 12.0 / 10 - 1));
    RANK_CHECK(f.rss_bytes > 0 && f.rss_rank >= 0 && f.rss_rank < N_RANKS);

    // The next ones begin anew.
    const cadre_step_report idle = {.exposed_ms = 9};
    cadre_watch_add(w, &idle, 3 * MS);
    RANK_OK(cadre_watch_gather(w, &f));
    RANK_CHECK(about(f.fastest_ms, 3) && about(f.slowest_ms, 3));
    RANK_CHECK(f.busy_ms[0] == 0 && f.slowest_rank == 0);
    RANK_CHECK(f.slowest_excess == 0);
    cadre_watch_destroy(w);
}

static void every_rank_knows_the_slowest(void **state)
{
    (void)state;
    run_as_threads(LINK_INPROC, N_RANKS, 10000, watch_ranks, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_knows_the_slowest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
