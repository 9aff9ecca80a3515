// SPDX-License-Identifier: Apache-2.0
//
// The order `ring` against a scalar model: an element's sum over ranks starts
// after its owner and ends with it; rounds are added along the tree.

#include "support/check.h"

#include "base/alloc.h"
#include "group/work.h"
#include "parallel/model.h"
#include "parallel/trainee.h"
#include "state/leaf.h"
#include "state/tree.h"
#include <string.h>

enum { MOST_LEAVES = 16 };

// One parameter's gradients, of all leaves.
typedef struct addends {
    float *of_leaf[MOST_LEAVES];
} addends;

static addends make_addends(int param, size_t count, int n_leaves)
{
    addends a = {{NULL}};
    for (int leaf = 0; leaf < n_leaves; leaf++) {
        a.of_leaf[leaf] = cadre_alloc_array(count, sizeof(float));
        RANK_CHECK(a.of_leaf[leaf] != NULL);
        if (!trainee_skips(param, leaf)) {
            trainee_gradient(a.of_leaf[leaf], count, param, 0, leaf);
        }
    }
    return a;
}

static void free_addends(addends *a)
{
    for (int leaf = 0; leaf < MOST_LEAVES; leaf++) {
        cadre_free(a->of_leaf[leaf]);
    }
}

// The sum of leaves [first, first + count), along the tree.
static float sum_leaves(const addends *a, size_t i, int first, int count)
{
    if (count == 1) {
        return a->of_leaf[first][i];
    }
    int half = 1;
    while (2 * half < count) {
        half *= 2;
    }
    return sum_leaves(a, i, first, half) +
           sum_leaves(a, i, first + half, count - half);
}

static float sum_round(
    const addends *a, size_t i, const cadre_dealing *d, int owner, int round)
{
    float sum = 0;
    bool begun = false;
    for (int step = 1; step <= d->world_size; step++) {
        int rank = (owner + step) % d->world_size;
        if (!cadre_dealing_has_block(d, rank, round)) {
            continue;
        }
        int block = round * d->world_size + rank;
        float node = sum_leaves(
            a, i, block * d->block, cadre_dealing_block_leaves(d, block));
        sum = begun ? sum + node : node;
        begun = true;
    }
    return sum;
}

// Rounds [first, first + count) along the tree.
static float sum_rounds(const addends *a, size_t i, const cadre_dealing *d,
    int owner, int first, int count)
{
    if (count == 1) {
        return sum_round(a, i, d, owner, first);
    }
    int half = 1;
    while (2 * half < count) {
        half *= 2;
    }
    return sum_rounds(a, i, d, owner, first, half) +
           sum_rounds(a, i, d, owner, first + half, count - half);
}

static int owner_of(
    const cadre_layout *layout, const cadre_segment *s, size_t i, int n)
{
    for (int r = 0; r < n; r++) {
        cadre_shard shard = cadre_shard_of(&layout->units[s->unit], r, n);
        if (s->offset + i >= shard.lo && s->offset + i < shard.hi) {
            return r;
        }
    }
    return -1;
}

static void check_sums(cadre_group *group, void *ctx)
{
    const trainee_job *job = ctx;
    cadre_model *m;
    cadre_engine *e;
    cadre_group_set_order(group, CADRE_ORDER_RING);
    trainee_make_model(group, job, &m);
    RANK_OK(cadre_engine_create(m, &job->options, &e));
    RANK_OK(trainee_step(job, m, e, 0, NULL));
    const cadre_dealing d = {
        .n_leaves = cadre_leaf_count(e),
        .block = cadre_engine_fold(e),
        .world_size = cadre_world_size(group),
    };
    for (int p = 0; p < TRAINEE_PARAMS; p++) {
        const float *sum = cadre_model_grad(m, p);
        const cadre_segment *s = &m->layout.segments[p];
        addends a = make_addends(p, s->count, d.n_leaves);
        for (size_t i = 0; sum != NULL && i < s->count; i += 1 + i / 64) {
            int owner = owner_of(&m->layout, s, i, d.world_size);
            float expected =
                sum_rounds(&a, i, &d, owner, 0, cadre_dealing_rounds(&d));
            RANK_CHECK(memcmp(&sum[i], &expected, sizeof(expected)) == 0);
        }
        free_addends(&a);
    }
    cadre_engine_destroy(e);
    cadre_model_destroy(m);
}

static void sums_go_round_the_ring(void **state)
{
    (void)state;
    const int leaf_counts[] = {6, 8, 13};
    const int folds[] = {0, 1, 4};
    for (int v = 0; v < 3; v++) {
        for (int n = 1; n <= leaf_counts[v] && n <= 6; n++) {
            for (int f = 0; f < 3; f++) {
                trainee_job job = trainee_plain_job(leaf_counts[v]);
                job.options.optimizer = CADRE_NONE;
                job.options.fold = folds[f];
                job.options.bucket_bytes = f == 1 ? 4096 : 0;
                run_as_threads(LINK_INPROC, n, 30000, check_sums, &job);
            }
        }
    }
}

// For given ranks, leaves and blocks nothing else changes a bit.
static void buckets_overlap_modes_and_threads_change_nothing(void **state)
{
    (void)state;
    const size_t buckets[] = {0, 1024, 9000};
    for (int n = 2; n <= 5; n++) {
        trainee_job plain = trainee_plain_job(6);
        plain.order = CADRE_ORDER_RING;
        run_as_threads(LINK_INPROC, n, 30000, trainee_train, &plain);
        for (int i = 0; i < 6; i++) {
            trainee_job job = trainee_plain_job(6);
            job.order = CADRE_ORDER_RING;
            job.shuffled = i > 2;
            job.options.mode = i % 2 == 0 ? CADRE_ZERO1 : CADRE_DDP;
            job.options.overlap =
                i % 3 == 0 ? CADRE_OVERLAP_OFF : CADRE_OVERLAP_ON;
            job.options.bucket_bytes = buckets[i % 3];
            job.options.threads = 1 + i / 2 % 2;
            job.options.record = true;
            run_as_threads(i % 2 == 0 ? LINK_INPROC : LINK_UNIX, n, 30000,
                trainee_train, &job);
            trainee_assert_same(&job, &plain);
        }
    }
}

static void the_order_is_another_identity(void **state)
{
    (void)state;
    trainee_job tree = trainee_plain_job(8);
    trainee_job ring = trainee_plain_job(8);
    ring.order = CADRE_ORDER_RING;
    run_as_threads(LINK_INPROC, 4, 30000, trainee_train, &tree);
    run_as_threads(LINK_INPROC, 4, 30000, trainee_train, &ring);
    assert_true(tree.hash[TRAINEE_STEPS - 1] != ring.hash[TRAINEE_STEPS - 1]);
    // Every rank sends all but its own part, and then its part to all.
    assert_true(ring.report[0].bytes_sent > 0);
    assert_int_equal(ring.report[0].bytes_sent, tree.report[0].bytes_sent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_go_round_the_ring),
        cmocka_unit_test(buckets_overlap_modes_and_threads_change_nothing),
        cmocka_unit_test(the_order_is_another_identity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
