// SPDX-License-Identifier: Apache-2.0
//
// The loader, on a made-up data set that counts who was read.

#include "base/alloc.h"
#include "data/loader.h"
#include "sample_at.h"
#include "state/leaf.h"
#include "support/check.h"
#include <stdatomic.h>
#include <string.h>

enum { ELEMENTS = 3, MOST = 200 };

// Sample i is (i, 2 i, 3 i) with label i mod 7.
typedef struct counting {
    cadre_dataset base;
    atomic_int reads[MOST];
} counting;

static cadre_status read_counting(
    const cadre_dataset *dataset, cadre_place place, float *x, int32_t *label)
{
    const int64_t index = place.sample;
    union {
        const cadre_dataset *given;
        counting *ours;
    } u = {dataset}; // counting is no change that a reader could see
    atomic_fetch_add(&u.ours->reads[index], 1);
    for (int i = 0; i < ELEMENTS; i++) {
        x[i] = (float)(index * (i + 1));
    }
    *label = (int32_t)(index % 7);
    return CADRE_OK;
}

static const cadre_dataset_ops counting_ops = {
    .kind = "counting", .read = read_counting};

static counting counting_of(int64_t n_samples)
{
    return (counting){.base = {
                          .ops = &counting_ops,
                          .n_samples = n_samples,
                          .sample_elements = ELEMENTS,
                          .n_classes = 7,
                      }};
}

// The leaf's samples are those that deal and leaf say, in that order.
static void check_leaf(const cadre_loader_options *o, const cadre_batch *batch,
    int leaf, cadre_leaf_data data)
{
    int64_t lo;
    int64_t hi;
    cadre_leaf_samples(batch->n_samples, o->n_leaves, leaf, &lo, &hi);
    assert_int_equal(data.n_samples, hi - lo);
    for (int64_t i = 0; i < data.n_samples; i++) {
        int64_t sample = sample_at(o->seed, batch->epoch, o->dataset->n_samples,
            batch->first + lo + i);
        for (int e = 0; e < ELEMENTS; e++) {
            assert_true(data.x[i * ELEMENTS + e] == (float)(sample * (e + 1)));
        }
        assert_int_equal(data.labels[i], sample % 7);
    }
}

// Runs a loader through all its steps and checks every leaf of its rank.
static void run_rank(const cadre_loader_options *o)
{
    cadre_loader *loader = NULL;
    CHECK_OK(cadre_loader_create(o, &loader));
    cadre_dealing dealing = {o->n_leaves, o->block, o->world_size};
    for (int64_t step = 0; step < o->n_steps; step++) {
        cadre_batch batch;
        CHECK_OK(cadre_loader_acquire(loader, &batch));
        cadre_batch wanted = cadre_deal_batch(o->dataset->n_samples,
            o->global_batch, o->drop_last, o->first_step + step);
        assert_int_equal(batch.epoch, wanted.epoch);
        assert_int_equal(batch.first, wanted.first);
        assert_int_equal(batch.n_samples, wanted.n_samples);
        int n = cadre_dealing_rank_leaves(&dealing, o->rank);
        for (int i = 0; i < n; i++) {
            int leaf = cadre_dealing_rank_leaf(&dealing, o->rank, i);
            check_leaf(o, &batch, leaf, cadre_loader_leaf(loader, leaf));
        }
        cadre_loader_release(loader);
    }
    cadre_loader_destroy(loader);
}

// Each sample of whole epochs is read once, by one rank: nobody reads what is
// another's.
static void ranks_share_the_samples(void **state)
{
    (void)state;
    const struct {
        int leaves;
        int block;
        int ranks;
    } cases[] = {{1, 1, 1}, {8, 1, 1}, {8, 4, 2}, {8, 1, 3}, {6, 2, 3},
        {13, 1, 4}, {12, 4, 5}, {64, 2, 3}, {1000, 8, 3}, {5, 64, 1}};
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        counting data = counting_of(101); // batches of 25, and one of 1
        for (int rank = 0; rank < cases[c].ranks; rank++) {
            cadre_loader_options o = {
                .dataset = &data.base,
                .seed = 11,
                .global_batch = 25,
                .n_steps = 10,
                .n_leaves = cases[c].leaves,
                .block = cases[c].block,
                .rank = rank,
                .world_size = cases[c].ranks,
                .n_threads = rank % 3 * 2,
            };
            run_rank(&o);
        }
        for (int i = 0; i < 101; i++) {
            assert_int_equal(atomic_load(&data.reads[i]), 2);
        }
    }
}

// Any batch and number of leaves, so that every leaf fits its place: a short
// batch may have a larger leaf than the full one has at the same number.
static void short_batches_fit(void **state)
{
    (void)state;
    for (int leaves = 1; leaves <= 7; leaves++) {
        for (int batch = 1; batch <= 20; batch++) {
            for (int n = batch; n <= batch + 4; n++) {
                counting data = counting_of(n);
                cadre_loader_options o = {
                    .dataset = &data.base,
                    .seed = 1,
                    .global_batch = batch,
                    .n_steps = 2 * cadre_deal_steps(n, batch, false),
                    .n_leaves = leaves,
                    .block = 1 << batch % 3,
                    .rank = n % 2,
                    .world_size = 1 + n % 2,
                };
                run_rank(&o);
            }
        }
    }
}

static void empty_leaves_take_no_room(void **state)
{
    (void)state;
    counting data = counting_of(101);
    cadre_loader_options o = {
        .dataset = &data.base,
        .global_batch = 25,
        .n_steps = 1,
        .n_leaves = CADRE_MAX_LEAVES,
        .block = CADRE_MAX_LEAVES / 2,
        .rank = 1,
        .world_size = 2,
    };
    uint64_t before = cadre_alloc_bytes();
    cadre_loader *loader = NULL;
    CHECK_OK(cadre_loader_create(&o, &loader));
    assert_true(cadre_alloc_bytes() - before < CADRE_MAX_LEAVES);
    cadre_loader_destroy(loader);
}

static void starts_in_the_middle(void **state)
{
    (void)state;
    counting data = counting_of(50);
    cadre_loader_options o = {
        .dataset = &data.base,
        .seed = 3,
        .global_batch = 16,
        .drop_last = true,
        .first_step = 8,
        .n_steps = 5,
        .n_leaves = 4,
        .block = 2,
        .rank = 1,
        .world_size = 2,
    };
    run_rank(&o);
}

// It reads no further ahead than its memory reaches, and never past the end.
static void stays_two_steps_ahead(void **state)
{
    (void)state;
    counting data = counting_of(100);
    cadre_loader_options o = {
        .dataset = &data.base,
        .seed = 3,
        .global_batch = 10,
        .n_steps = 5,
        .n_leaves = 2,
        .block = 2,
        .world_size = 1,
    };
    cadre_loader *loader = NULL;
    CHECK_OK(cadre_loader_create(&o, &loader));
    for (int step = 0; step < 3; step++) {
        cadre_batch batch;
        CHECK_OK(cadre_loader_acquire(loader, &batch));
        int reads = 0;
        for (int i = 0; i < 100; i++) {
            reads += atomic_load(&data.reads[i]);
        }
        assert_in_range(reads, 10 * (step + 1), 10 * (step + 2));
        check_leaf(&o, &batch, 0, cadre_loader_leaf(loader, 0));
        check_leaf(&o, &batch, 1, cadre_loader_leaf(loader, 1));
        cadre_loader_release(loader);
    }
    cadre_loader_destroy(loader);
}

static void allocates_nothing_after_the_start(void **state)
{
    (void)state;
    counting data = counting_of(100);
    cadre_loader_options o = {
        .dataset = &data.base,
        .global_batch = 30,
        .n_steps = 20,
        .n_leaves = 4,
        .block = 1,
        .world_size = 1,
    };
    cadre_loader *loader = NULL;
    CHECK_OK(cadre_loader_create(&o, &loader));
    uint64_t before = cadre_alloc_calls();
    for (int step = 0; step < 20; step++) {
        cadre_batch batch;
        CHECK_OK(cadre_loader_acquire(loader, &batch));
        cadre_loader_release(loader);
    }
    assert_int_equal(cadre_alloc_calls(), before);
    cadre_loader_destroy(loader);
}

static void destroy_after(
    const cadre_loader_options *o, int steps, bool while_acquired)
{
    cadre_loader *loader = NULL;
    cadre_batch batch;
    CHECK_OK(cadre_loader_create(o, &loader));
    for (int step = 0; step < steps; step++) {
        CHECK_OK(cadre_loader_acquire(loader, &batch));
        cadre_loader_release(loader);
    }
    if (while_acquired) {
        CHECK_OK(cadre_loader_acquire(loader, &batch));
    }
    cadre_loader_destroy(loader);
}

static void may_be_destroyed_at_any_time(void **state)
{
    (void)state;
    counting data = counting_of(100);
    cadre_loader_options o = {
        .dataset = &data.base,
        .global_batch = 10,
        .n_steps = 1000000,
        .n_leaves = 4,
        .block = 4,
        .world_size = 1,
    };
    for (int steps = 0; steps < 6; steps++) {
        destroy_after(&o, steps, false);
        destroy_after(&o, steps, true);
    }
    cadre_loader_destroy(NULL);
}

// A rank without leaves has nothing to read, and goes through the steps.
static void a_rank_may_have_no_leaves(void **state)
{
    (void)state;
    counting data = counting_of(20);
    cadre_loader_options o = {
        .dataset = &data.base,
        .global_batch = 10,
        .n_steps = 4,
        .n_leaves = 4,
        .block = 4,
        .rank = 1,
        .world_size = 2,
    };
    run_rank(&o);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(atomic_load(&data.reads[i]), 0);
    }
}

static void refuses_what_makes_no_sense(void **state)
{
    (void)state;
    counting data = counting_of(20);
    const cadre_loader_options sound = {
        .dataset = &data.base,
        .global_batch = 10,
        .n_steps = 4,
        .n_leaves = 4,
        .block = 1,
        .world_size = 2,
    };
    cadre_loader *loader = NULL;
    cadre_loader_options o = sound;
    o.global_batch = 21;
    CHECK_FAILS(cadre_loader_create(&o, &loader), CADRE_ERR_INVALID_ARG,
        "21 samples, of 20 in the data set");
    o.global_batch = 0;
    CHECK_FAILS(
        cadre_loader_create(&o, &loader), CADRE_ERR_INVALID_ARG, "0 samples");
    o = sound;
    o.rank = 2;
    CHECK_FAILS(
        cadre_loader_create(&o, &loader), CADRE_ERR_INVALID_ARG, "rank 2 of 2");
    o = sound;
    o.n_leaves = CADRE_MAX_LEAVES + 1;
    CHECK_FAILS(cadre_loader_create(&o, &loader), CADRE_ERR_INVALID_ARG,
        "65537 leaves");
    assert_null(loader);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    counting data = counting_of(20);
    cadre_loader_options o = {
        .dataset = &data.base,
        .global_batch = 10,
        .n_steps = 4,
        .n_leaves = 4,
        .block = 1,
        .world_size = 1,
    };
    cadre_loader *loader = NULL;
    cadre_status status = CADRE_ERR_NO_MEMORY;
    int failures = 0;
    for (; status != CADRE_OK; failures++) {
        cadre_alloc_fail_after(failures);
        status = cadre_loader_create(&o, &loader);
        cadre_alloc_fail_after(-1);
        assert_true(status == CADRE_OK || status == CADRE_ERR_NO_MEMORY);
        assert_in_range(failures, 0, 100);
    }
    assert_true(failures > 4);
    cadre_loader_destroy(loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_the_samples),
        cmocka_unit_test(short_batches_fit),
        cmocka_unit_test(empty_leaves_take_no_room),
        cmocka_unit_test(starts_in_the_middle),
        cmocka_unit_test(stays_two_steps_ahead),
        cmocka_unit_test(allocates_nothing_after_the_start),
        cmocka_unit_test(may_be_destroyed_at_any_time),
        cmocka_unit_test(a_rank_may_have_no_leaves),
        cmocka_unit_test(refuses_what_makes_no_sense),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
