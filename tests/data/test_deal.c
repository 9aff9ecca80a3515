// SPDX-License-Identifier: Apache-2.0
//
// The order of samples and the cutting of epochs into batches.

#include "base/alloc.h"
#include "data/deal.h"
#include "sample_at.h"
#include "support/isa.h"
#include <string.h>

// Every position once, every sample once.
static void check_permutation(uint64_t seed, int64_t epoch, int64_t n)
{
    uint8_t *seen = cadre_alloc_array((size_t)n, 1);
    assert_non_null(seen);
    for (int64_t p = 0; p < n; p++) {
        int64_t sample = sample_at(seed, epoch, n, p);
        assert_true(sample >= 0 && sample < n);
        assert_int_equal(seen[sample], 0);
        seen[sample] = 1;
    }
    cadre_free(seen);
}

static void every_order_is_a_permutation(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 70; n++) {
        for (int64_t epoch = 0; epoch < 4; epoch++) {
            check_permutation(1, epoch, n);
        }
    }
    // Around powers of four, where the walk is longest and shortest.
    const int64_t sizes[] = {255, 256, 257, 1023, 1024, 1025, 10000, 60000};
    for (int i = 0; i < 8; i++) {
        check_permutation(UINT64_MAX, 3, sizes[i]);
    }
}

// The last positions of sets too large to be listed.
static void large_sets_stay_in_range(void **state)
{
    (void)state;
    const int64_t sizes[] = {INT64_C(1) << 40, (INT64_C(1) << 40) + 1,
        INT64_C(1) << 61, INT64_MAX / 2};
    for (int i = 0; i < 4; i++) {
        for (int64_t back = 1; back <= 20; back++) {
            int64_t sample = sample_at(9, 0, sizes[i], sizes[i] - back);
            assert_true(sample >= 0 && sample < sizes[i]);
        }
    }
}

// A run's models rest on them.
static void some_samples_are_known(void **state)
{
    use_isa(state);
    static const struct {
        uint64_t seed;
        int64_t epoch;
        int64_t n_samples;
        int64_t position;
        int64_t sample;
    } known[] = {
        {1, 0, 60000, 0, 24659},
        {1, 0, 60000, 59999, 48350},
        {1, 1, 60000, 0, 1035},
        {UINT64_MAX, 7, 65537, 65536, 60996},
        {9, 0, 5, 3, 3},
        {9, 0, INT64_C(1) << 40, 12345, INT64_C(149272543025)},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        assert_int_equal(sample_at(known[i].seed, known[i].epoch,
                             known[i].n_samples, known[i].position),
            known[i].sample);
    }
}

// From every position of a run, as many as are left of it and fewer.
static void check_dealt_together(int64_t n_samples, int64_t first, int64_t n)
{
    enum { MOST = 150 };
    int64_t alone[MOST];
    for (int64_t i = 0; i < n; i++) {
        alone[i] = sample_at(3, 4, n_samples, first + i);
    }
    for (int64_t from = 0; from < n; from++) {
        for (int64_t count = 0; count <= n - from; count += 1 + count / 9) {
            int64_t together[MOST + 1];
            together[count] = -7;
            cadre_deal_samples(3, 4, n_samples, first + from, count, together);
            assert_memory_equal(
                together, alone + from, (size_t)count * sizeof(*together));
            assert_int_equal(together[count], -7);
        }
    }
}

static void samples_are_dealt_together_as_alone(void **state)
{
    use_isa(state);
    const int64_t small[] = {1, 2, 5};
    for (int i = 0; i < 3; i++) {
        check_dealt_together(small[i], 0, small[i]);
    }
    const int64_t large[] = {60000, 65536, 65537};
    for (int i = 0; i < 3; i++) {
        check_dealt_together(large[i], 0, 150);
        check_dealt_together(large[i], large[i] - 131, 131);
    }
}

static int64_t fixed_points(uint64_t seed_a, int64_t epoch_a, uint64_t seed_b,
    int64_t epoch_b, int64_t n)
{
    int64_t same = 0;
    for (int64_t p = 0; p < n; p++) {
        same += sample_at(seed_a, epoch_a, n, p) ==
                sample_at(seed_b, epoch_b, n, p);
    }
    return same;
}

static void seed_and_epoch_change_the_order(void **state)
{
    (void)state;
    enum { N = 1000 };
    assert_int_equal(fixed_points(1, 0, 1, 0, N), N);
    // Two random orders agree in one place on average; 12 never happens.
    assert_true(fixed_points(1, 0, 1, 1, N) < 12);
    assert_true(fixed_points(1, 0, 2, 0, N) < 12);
    assert_true(fixed_points(1, 0, UINT64_C(1) << 32 | 1, 0, N) < 12);

    int64_t in_place = 0;
    int64_t neighbours = 0;
    for (int64_t p = 0; p < N; p++) {
        int64_t sample = sample_at(1, 0, N, p);
        in_place += sample == p;
        neighbours += p > 0 && sample == sample_at(1, 0, N, p - 1) + 1;
    }
    assert_true(in_place < 12);
    assert_true(neighbours < 12);
}

// Where samples land is spread evenly: each tenth of the data in each tenth of
// the order about equally often.
static void orders_are_well_mixed(void **state)
{
    (void)state;
    enum { N = 60000, PARTS = 10, PART = N / PARTS };
    int counts[PARTS][PARTS] = {{0}};
    for (int64_t p = 0; p < N; p++) {
        counts[p / PART][sample_at(5, 2, N, p) / PART]++;
    }
    double chi = 0.0;
    for (int i = 0; i < PARTS; i++) {
        for (int j = 0; j < PARTS; j++) {
            double d = counts[i][j] - (double)PART / PARTS;
            chi += d * d / ((double)PART / PARTS);
        }
    }
    // 81 degrees of freedom; 140 is exceeded once in 20 000 random orders, and
    // an order that is not mixed lies far above.
    assert_true(chi < 140.0);
}

static void batches_tile_an_epoch(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 2, 7, 60, 100};
    for (int i = 0; i < 5; i++) {
        int64_t n = sizes[i];
        for (int64_t batch = 1; batch <= n; batch++) {
            int64_t steps = cadre_deal_steps(n, batch, false);
            assert_int_equal(steps, (n + batch - 1) / batch);
            for (int64_t step = 0; step < 3 * steps; step++) {
                cadre_batch b = cadre_deal_batch(n, batch, false, step);
                assert_int_equal(b.epoch, step / steps);
                assert_int_equal(b.first, step % steps * batch);
                bool last = step % steps == steps - 1;
                assert_int_equal(b.n_samples, last ? n - b.first : batch);
            }
        }
    }
}

static void a_short_batch_can_be_dropped(void **state)
{
    (void)state;
    assert_int_equal(cadre_deal_steps(60000, 1024, true), 58);
    assert_int_equal(cadre_deal_steps(60000, 1024, false), 59);
    assert_int_equal(cadre_deal_steps(60000, 60000, true), 1);
    assert_int_equal(cadre_deal_steps(64, 64, false), 1);
    for (int64_t step = 0; step < 200; step++) {
        cadre_batch b = cadre_deal_batch(60000, 1024, true, step);
        assert_int_equal(b.epoch, step / 58);
        assert_int_equal(b.first, step % 58 * 1024);
        assert_int_equal(b.n_samples, 1024);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_is_a_permutation),
        cmocka_unit_test(large_sets_stay_in_range),
        ON_EVERY_ISA(some_samples_are_known),
        ON_EVERY_ISA(samples_are_dealt_together_as_alone),
        cmocka_unit_test(seed_and_epoch_change_the_order),
        cmocka_unit_test(orders_are_well_mixed),
        cmocka_unit_test(batches_tile_an_epoch),
        cmocka_unit_test(a_short_batch_can_be_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
