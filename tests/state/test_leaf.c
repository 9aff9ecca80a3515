// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "state/leaf.h"
#include "state/shard.h"

static void leaves_cut_a_batch_into_even_parts(void **state)
{
    (void)state;
    for (int64_t batch = 0; batch < 70; batch++) {
        for (int v = 1; v < 20; v++) {
            int64_t expected = 0;
            for (int l = 0; l < v; l++) {
                int64_t lo;
                int64_t hi;
                cadre_leaf_samples(batch, v, l, &lo, &hi);
                assert_int_equal(lo, batch * l / v);
                assert_int_equal(hi, batch * (l + 1) / v);
                assert_int_equal(lo, expected);
                expected = hi;
            }
            assert_int_equal(expected, batch);
        }
    }
}

static void deferred_folds_are_whole_nodes(void **state)
{
    (void)state;
    assert_int_equal(cadre_fold_deferred(8, 1), 8);
    assert_int_equal(cadre_fold_deferred(8, 2), 4);
    assert_int_equal(cadre_fold_deferred(8, 3), 1);
    assert_int_equal(cadre_fold_deferred(12, 2), 2);
    assert_int_equal(cadre_fold_deferred(12, 3), 4);
    assert_int_equal(cadre_fold_deferred(13, 13), 1);
    assert_int_equal(cadre_fold_eager(1), 1);
    assert_int_equal(cadre_fold_eager(3), 2);
    assert_int_equal(cadre_fold_eager(4), 4);
}

// Every leaf belongs to exactly one rank, in the order of its blocks, for all
// V, n and k.
static void every_leaf_is_dealt_once(void **state)
{
    (void)state;
    for (int v = 1; v <= 48; v++) {
        for (int n = 1; n <= v; n++) {
            for (int k = 1; k <= 64; k *= 2) {
                cadre_dealing d = {.n_leaves = v, .block = k, .world_size = n};
                int owner[48];
                memset(owner, -1, sizeof(owner));
                for (int r = 0; r < n; r++) {
                    int own = cadre_dealing_rank_leaves(&d, r);
                    for (int i = 0; i < own; i++) {
                        int leaf = cadre_dealing_rank_leaf(&d, r, i);
                        assert_in_range(leaf, 0, v - 1);
                        assert_int_equal(owner[leaf], -1);
                        owner[leaf] = r;
                        assert_int_equal(cadre_dealing_leaf_index(&d, leaf), i);
                        int round = i / k;
                        assert_true(cadre_dealing_has_block(&d, r, round));
                    }
                }
                for (int l = 0; l < v; l++) {
                    assert_int_equal(owner[l], l / k % n);
                }
                assert_int_equal(
                    cadre_dealing_rounds(&d), (v + k * n - 1) / (k * n));
            }
        }
    }
}

static void shards_and_chunks_tile_a_unit_in_quanta(void **state)
{
    (void)state;
    const size_t lengths[] = {1, 255, 256, 257, 1000, 4096, 131072 + 17};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        cadre_unit unit = {.lo = 512, .hi = 512 + lengths[i]};
        for (int n = 1; n <= 13; n++) {
            size_t at = unit.lo;
            size_t quanta_least = SIZE_MAX;
            size_t quanta_most = 0;
            for (int r = 0; r < n; r++) {
                cadre_shard s = cadre_shard_of(&unit, r, n);
                assert_int_equal(s.lo, at);
                assert_true(s.hi >= s.lo);
                assert_true(s.lo % 256 == 0 || s.lo == unit.hi);
                size_t quanta = (s.hi - s.lo + 255) / 256;
                quanta_least = quanta < quanta_least ? quanta : quanta_least;
                quanta_most = quanta > quanta_most ? quanta : quanta_most;
                at = s.hi;

                size_t inner = s.lo;
                for (int c = 0; c < 5; c++) {
                    cadre_shard chunk = cadre_shard_chunk(s, c, 5);
                    assert_int_equal(chunk.lo, inner);
                    assert_true(chunk.lo % 256 == 0 || chunk.lo == s.hi);
                    inner = chunk.hi;
                }
                assert_int_equal(inner, s.hi);
            }
            assert_int_equal(at, unit.hi);
            assert_true(quanta_most - quanta_least <= 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaves_cut_a_batch_into_even_parts),
        cmocka_unit_test(deferred_folds_are_whole_nodes),
        cmocka_unit_test(every_leaf_is_dealt_once),
        cmocka_unit_test(shards_and_chunks_tile_a_unit_in_quanta),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
