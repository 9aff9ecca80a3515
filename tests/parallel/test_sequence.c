// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "base/alloc.h"
#include "parallel/bucket.h"
#include "parallel/sequence.h"
#include <limits.h>

// --- the sequence of exchanges ---

// Every turn once, a step after the one before it, a gather after its folds.
static void check_sequence(int rounds, int buckets, int steps, bool gather)
{
    cadre_sequence s;
    CHECK_OK(cadre_sequence_init(&s, rounds, buckets, steps, gather));
    assert_int_equal(s.n_turns, (rounds * steps + 1) * buckets);
    int *folded = cadre_alloc_array((size_t)buckets, sizeof(*folded));
    int *spread = cadre_alloc_array((size_t)buckets, sizeof(*spread));
    assert_non_null(folded);
    assert_non_null(spread);
    for (int i = 0; i < s.n_turns; i++) {
        cadre_turn turn = cadre_sequence_at(&s, i);
        assert_in_range(turn.bucket, 0, buckets - 1);
        if (turn.kind == CADRE_TURN_FOLD) {
            assert_true(i < s.n_until_folded);
            assert_int_equal(
                turn.round * steps + turn.step, folded[turn.bucket]);
            folded[turn.bucket]++;
            continue;
        }
        bool published = turn.kind == CADRE_TURN_PUBLISH;
        assert_int_equal(published, !gather);
        assert_true(i < s.n_before_control || published || i == s.n_turns - 1);
        assert_int_equal(folded[turn.bucket], rounds * steps);
        spread[turn.bucket]++;
    }
    for (int b = 0; b < buckets; b++) {
        assert_int_equal(spread[b], 1);
    }
    cadre_free(folded);
    cadre_free(spread);
    cadre_sequence_fini(&s);
}

static void every_bucket_is_folded_and_then_spread(void **state)
{
    (void)state;
    for (int rounds = 1; rounds <= 4; rounds++) {
        for (int buckets = 1; buckets <= 6; buckets++) {
            for (int steps = 1; steps <= 5; steps++) {
                check_sequence(rounds, buckets, steps, true);
                check_sequence(rounds, buckets, steps, false);
            }
        }
    }
}

static void gathers_begin_before_the_last_fold(void **state)
{
    (void)state;
    cadre_sequence s;
    CHECK_OK(cadre_sequence_init(&s, 1, 5, 1, true));
    assert_int_equal(cadre_sequence_at(&s, 1).kind, CADRE_TURN_FOLD);
    assert_int_equal(cadre_sequence_at(&s, 2).kind, CADRE_TURN_GATHER);
    assert_int_equal(cadre_sequence_at(&s, 2).bucket, 0);
    assert_int_equal(cadre_sequence_at(&s, 7).kind, CADRE_TURN_FOLD);
    assert_int_equal(cadre_sequence_at(&s, 9).bucket, 4);
    cadre_sequence_fini(&s);
}

static void one_gather_comes_behind_the_control_exchange(void **state)
{
    (void)state;
    cadre_sequence s;
    CHECK_OK(cadre_sequence_init(&s, 2, 5, 1, true));
    assert_int_equal(s.n_turns, 15);
    assert_int_equal(s.n_before_control, 14);
    assert_int_equal(s.n_until_folded, 13);
    assert_int_equal(cadre_sequence_at(&s, 12).kind, CADRE_TURN_FOLD);
    assert_int_equal(cadre_sequence_at(&s, 14).kind, CADRE_TURN_GATHER);
    cadre_sequence_fini(&s);
    CHECK_OK(cadre_sequence_init(&s, 2, 1, 1, true));
    assert_int_equal(s.n_before_control, 2);
    assert_int_equal(s.n_until_folded, 2);
    cadre_sequence_fini(&s);
    CHECK_OK(cadre_sequence_init(&s, 2, 5, 1, false));
    assert_int_equal(s.n_before_control, 10);
    assert_int_equal(s.n_until_folded, 10);
    cadre_sequence_fini(&s);
}

static void more_exchanges_than_can_be_counted_are_refused(void **state)
{
    (void)state;
    cadre_sequence s;
    CHECK_FAILS(cadre_sequence_init(&s, 65536, 65536, 1, true),
        CADRE_ERR_INVALID_ARG, "more exchanges");
    CHECK_FAILS(cadre_sequence_init(&s, 1, 1 << 20, INT_MAX, true),
        CADRE_ERR_INVALID_ARG, "more exchanges");
}

// --- buckets ---

static void add(cadre_layout *layout, const char *name, const char *unit,
    int64_t count, bool frozen)
{
    CHECK_OK(cadre_layout_add(layout, name, unit, &count, 1, frozen));
}

// Every trainable element is in one bucket, in its owner's part; the lists of
// segments are what the slices say.
static void check_buckets(
    const cadre_layout *layout, int n_owners, size_t nbytes, cadre_buckets *b)
{
    CHECK_OK(cadre_buckets_init(b, layout, n_owners, nbytes));
    uint8_t *seen = cadre_alloc(layout->n_elements);
    assert_non_null(seen);
    for (int k = 0; k < b->n_buckets; k++) {
        size_t count = 0;
        for (int r = 0; r < n_owners; r++) {
            const cadre_bucket_part *part = &b->buckets[k].parts[r];
            assert_true(part->count <= b->buckets[k].most);
            count += part->count;
            for (int i = 0; i < part->n_slices; i++) {
                const cadre_slice *s = &part->slices[i];
                const cadre_segment *segment = &layout->segments[s->segment];
                assert_false(segment->frozen);
                cadre_shard shard =
                    cadre_shard_of(&layout->units[segment->unit], r, n_owners);
                assert_true(
                    s->offset >= shard.lo && s->offset + s->count <= shard.hi);
                for (size_t j = 0; j < s->count; j++) {
                    assert_int_equal(seen[s->offset + j]++, 0);
                }
                bool listed = false;
                for (int l = b->first_of[s->segment];
                     l < b->first_of[s->segment + 1]; l++) {
                    listed = listed || b->of[l] == k;
                }
                assert_true(listed);
            }
        }
        assert_int_equal(count, b->buckets[k].count);
    }
    int n_listed = b->first_of[layout->n_segments];
    for (int k = 0; k < b->n_buckets; k++) {
        n_listed -= b->buckets[k].n_segments;
    }
    assert_int_equal(n_listed, 0);
    for (int i = 0; i < layout->n_segments; i++) {
        const cadre_segment *s = &layout->segments[i];
        for (size_t j = 0; j < s->count; j++) {
            assert_int_equal(seen[s->offset + j], s->frozen ? 0 : 1);
        }
    }
    cadre_free(seen);
}

static cadre_layout layers(void)
{
    cadre_layout layout = {0};
    add(&layout, "0.frozen", "0", 500, true);
    add(&layout, "1.weight", "1", 7000, false);
    add(&layout, "1.bias", "1", 13, false);
    add(&layout, "2.weight", "2", 300, false);
    add(&layout, "3.weight", "3", 100000, false);
    add(&layout, "3.frozen", "3", 3000, true);
    add(&layout, "4.weight", "4", 250, false);
    add(&layout, "5.weight", "5", 260, false);
    return layout;
}

static void buckets_hold_every_element_once(void **state)
{
    (void)state;
    cadre_layout layout = layers();
    const size_t sizes[] = {1, 1024, 5000, 100000, (size_t)25 << 20};
    for (int n = 1; n <= 7; n++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            cadre_buckets b;
            check_buckets(&layout, n, sizes[i], &b);
            cadre_buckets_fini(&b);
        }
    }
    cadre_layout_fini(&layout);
}

// From the end of the layout to its start; the first layer travels alone.
static void buckets_come_as_backward_completes_them(void **state)
{
    (void)state;
    cadre_layout layout = layers();
    cadre_buckets b;
    check_buckets(&layout, 2, (size_t)25 << 20, &b);
    assert_int_equal(b.n_buckets, 2);
    assert_int_equal(b.buckets[0].count, 260 + 250 + 100000 + 300);
    assert_int_equal(b.buckets[1].count, 7013);
    cadre_buckets_fini(&b);
    check_buckets(&layout, 2, 4096, &b);
    assert_int_equal(b.buckets[0].count, 260 + 250);
    cadre_buckets_fini(&b);
    cadre_layout_fini(&layout);
}

static void a_large_model_is_cut_however_large_buckets_may_be(void **state)
{
    (void)state;
    enum { MIB = 1 << 20, LAYER = 8 * MIB / 4 };
    const char *units[] = {"1", "2", "3", "4"};
    cadre_layout layout = {0};
    for (int i = 0; i < 4; i++) {
        add(&layout, units[i], units[i], LAYER, false);
    }
    cadre_buckets b;
    CHECK_OK(cadre_buckets_init(&b, &layout, 3, (size_t)1 << 40));
    // 1 MiB at the ends, else a sixteenth of all.
    assert_int_equal(b.n_buckets, 8 + 4 + 4 + 8);
    assert_in_range(b.buckets[0].count, 1, MIB / 4 + 3 * 256);
    assert_in_range(b.buckets[b.n_buckets - 1].count, 1, MIB / 4 + 3 * 256);
    assert_in_range(b.buckets[10].count, MIB / 4 + 1, 2 * MIB / 4 + 3 * 256);
    cadre_buckets_fini(&b);
    cadre_layout_fini(&layout);
}

static void a_model_without_gradients_has_one_empty_bucket(void **state)
{
    (void)state;
    cadre_layout layout = {0};
    add(&layout, "a", "a", 500, true);
    add(&layout, "b", "b", 10, true);
    cadre_buckets b;
    check_buckets(&layout, 3, 1024, &b);
    assert_int_equal(b.n_buckets, 1);
    assert_int_equal(b.buckets[0].count, 0);
    cadre_buckets_fini(&b);
    cadre_layout_fini(&layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bucket_is_folded_and_then_spread),
        cmocka_unit_test(gathers_begin_before_the_last_fold),
        cmocka_unit_test(one_gather_comes_behind_the_control_exchange),
        cmocka_unit_test(more_exchanges_than_can_be_counted_are_refused),
        cmocka_unit_test(buckets_hold_every_element_once),
        cmocka_unit_test(buckets_come_as_backward_completes_them),
        cmocka_unit_test(a_large_model_is_cut_however_large_buckets_may_be),
        cmocka_unit_test(a_model_without_gradients_has_one_empty_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
