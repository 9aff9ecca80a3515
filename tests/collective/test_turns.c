// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "base/alloc.h"
#include "collective/schedule.h"
#include "collective/turns.h"

enum { MAX_RANKS = 13 };

static const cadre_operation operations[] = {CADRE_OP_ALLREDUCE,
    CADRE_OP_REDUCE_SCATTER, CADRE_OP_ALLGATHER, CADRE_OP_BROADCAST,
    CADRE_OP_BARRIER};
enum { N_OPERATIONS = sizeof(operations) / sizeof(operations[0]) };

// The runs of all turns, one after another, are the parts; the parts, one after
// another, are the whole.
static void check_cover(const cadre_turns *turns, int n, size_t count)
{
    size_t at = 0;
    for (int part = 0; part < n; part++) {
        assert_int_equal(turns->offsets[part], at);
        for (uint64_t turn = 0; turn < turns->n_turns; turn++) {
            cadre_turn_run run = cadre_turns_run(turns, part, turn);
            assert_true(run.count <= turns->run_count);
            assert_int_equal(run.first, at);
            at += run.count;
        }
        assert_int_equal(turns->offsets[part + 1], at);
    }
    assert_int_equal(at, count);
}

// No two runs that are in a window at once overlap, none leaves it, and all
// begin with a cache line.
static void check_window(const cadre_turns *turns, int n)
{
    size_t most = turns->run_count * turns->element_bytes;
    size_t end = 0;
    for (uint64_t turn = 0; turn < CADRE_WINDOW_TURNS; turn++) {
        for (int part = 0; part < (turns->reduces ? n : 1); part++) {
            size_t at = cadre_turns_in_window(turns, n, part, turn);
            assert_int_equal(at % CADRE_CACHE_LINE, 0);
            assert_true(at >= end);
            end = at + most;
        }
    }
    assert_true(end <= cadre_turns_window_bytes(n));
    assert_int_equal(cadre_turns_in_window(turns, n, 0, CADRE_WINDOW_TURNS + 1),
        cadre_turns_in_window(turns, n, 0, 1));
}

static void turns_cover_every_part_once(void **state)
{
    (void)state;
    static const cadre_dtype dtypes[] = {CADRE_U8, CADRE_BF16, CADRE_F64};
    static const size_t counts[] = {
        0, 1, 7, 63, 64, 65, 4096, 262143, 262144, 262145, 3000000};
    for (int i = 0; i < N_OPERATIONS; i++) {
        for (int d = 0; d < 3; d++) {
            for (int n = 2; n <= MAX_RANKS; n++) {
                for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]);
                     k++) {
                    size_t given[MAX_RANKS + 1];
                    size_t offsets[MAX_RANKS + 1];
                    cadre_call call = {.operation = operations[i],
                        .dtype = dtypes[d],
                        .root = n / 2};
                    cadre_split_evenly(counts[k], n, given);
                    cadre_turns turns =
                        cadre_turns_lay_out(&call, n, given, offsets);
                    assert_true(turns.n_turns >= 1);
                    check_cover(&turns, n, counts[k]);
                    check_window(&turns, n);
                }
            }
        }
    }
}

static void given_parts_are_kept_but_where_nobody_sees_them(void **state)
{
    (void)state;
    const size_t given[] = {0, 5, 5, 100};
    size_t offsets[4];
    cadre_call call = {.operation = CADRE_OP_REDUCE_SCATTER};
    (void)cadre_turns_lay_out(&call, 3, given, offsets);
    assert_memory_equal(offsets, given, sizeof(given));
    call.operation = CADRE_OP_ALLGATHER;
    (void)cadre_turns_lay_out(&call, 3, given, offsets);
    assert_memory_equal(offsets, given, sizeof(given));

    // f32: 16 in a line, seven lines in all.
    const size_t by_lines[] = {0, 48, 80, 100};
    call.operation = CADRE_OP_ALLREDUCE;
    (void)cadre_turns_lay_out(&call, 3, given, offsets);
    assert_memory_equal(offsets, by_lines, sizeof(by_lines));

    const size_t of_root[] = {0, 0, 100, 100};
    call.operation = CADRE_OP_BROADCAST;
    call.root = 1;
    (void)cadre_turns_lay_out(&call, 3, given, offsets);
    assert_memory_equal(offsets, of_root, sizeof(of_root));
}

// Far more ranks than a turn has cache lines.
static void many_ranks_have_a_window_all_the_same(void **state)
{
    (void)state;
    enum { MANY = 5000 };
    static size_t given[MANY + 1];
    static size_t offsets[MANY + 1];
    cadre_call call = {.operation = CADRE_OP_ALLREDUCE, .dtype = CADRE_F32};
    cadre_split_evenly(100000, MANY, given);
    cadre_turns turns = cadre_turns_lay_out(&call, MANY, given, offsets);
    check_cover(&turns, MANY, 100000);
    check_window(&turns, MANY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_cover_every_part_once),
        cmocka_unit_test(given_parts_are_kept_but_where_nobody_sees_them),
        cmocka_unit_test(many_ranks_have_a_window_all_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
