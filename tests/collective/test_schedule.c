// SPDX-License-Identifier: Apache-2.0
//
// Proofs by enumeration, for 1 to 33 ranks and parts that include empty ones.

#include "support/check.h"

#include "collective/schedule.h"

enum { MAX_RANKS = 33, MAX_COUNT = 100 };

static void even_splits_cover_and_differ_by_one(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n++) {
        for (size_t count = 0; count <= MAX_COUNT; count++) {
            size_t offsets[MAX_RANKS + 1];
            cadre_split_evenly(count, n, offsets);
            assert_int_equal(offsets[0], 0);
            assert_int_equal(offsets[n], count);
            for (int r = 0; r < n; r++) {
                size_t part = offsets[r + 1] - offsets[r];
                assert_true(part == count / (size_t)n ||
                            part == (count - 1) / (size_t)n + 1);
            }
        }
    }
    size_t offsets[3];
    cadre_split_evenly(SIZE_MAX, 2, offsets);
    assert_true(offsets[1] == SIZE_MAX / 2 + 1 && offsets[2] == SIZE_MAX);
}

// Parts of sizes 0 to 4.
static void lay_out(int n, size_t offsets[])
{
    offsets[0] = 0;
    for (int r = 0; r < n; r++) {
        offsets[r + 1] = offsets[r] + (size_t)((r * 7 + n) % 5);
    }
}

// What one rank sends is what the other receives, for both directions.
static void check_meeting(
    cadre_phase phase, const size_t offsets[], int n, int root, int a, int b)
{
    cadre_move of_a = cadre_schedule_move(phase, offsets, n, root, a, b);
    cadre_move of_b = cadre_schedule_move(phase, offsets, n, root, b, a);
    assert_int_equal(of_a.send_count, of_b.receive_count);
    assert_int_equal(of_b.send_count, of_a.receive_count);
    if (of_a.send_count > 0) {
        assert_int_equal(of_a.send_offset, of_b.receive_offset);
    }
    if (of_b.send_count > 0) {
        assert_int_equal(of_b.send_offset, of_a.receive_offset);
    }
}

static void sends_meet_receives(void **state)
{
    (void)state;
    const cadre_phase phases[] = {CADRE_PHASE_SCATTER, CADRE_PHASE_GATHER,
        CADRE_PHASE_ROOT, CADRE_PHASE_MEET};
    for (int n = 1; n <= MAX_RANKS; n++) {
        size_t offsets[MAX_RANKS + 1];
        lay_out(n, offsets);
        for (int p = 0; p < 4; p++) {
            for (int a = 0; a < n; a++) {
                for (int b = 0; b < n; b++) {
                    check_meeting(phases[p], offsets, n, n / 2, a, b);
                }
            }
        }
    }
}

// Marks [offset, offset + count) of got; nothing may come twice.
static void mark(char got[], size_t offset, size_t count)
{
    for (size_t i = offset; i < offset + count; i++) {
        assert_int_equal(got[i], 0);
        got[i] = 1;
    }
}

static void check_all(const char got[], size_t lo, size_t hi)
{
    for (size_t i = lo; i < hi; i++) {
        assert_int_equal(got[i], 1);
    }
}

static void an_owner_gets_its_part_from_everybody(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n++) {
        size_t offsets[MAX_RANKS + 1];
        lay_out(n, offsets);
        for (int rank = 0; rank < n; rank++) {
            for (int peer = 0; peer < n; peer++) {
                char got[5 * MAX_RANKS] = {0};
                cadre_move move = cadre_schedule_move(
                    CADRE_PHASE_SCATTER, offsets, n, -1, rank, peer);
                mark(got, move.receive_offset, move.receive_count);
                check_all(got, offsets[rank], offsets[rank + 1]);
                assert_int_equal(
                    move.receive_count, offsets[rank + 1] - offsets[rank]);
            }
        }
    }
}

static void gathering_brings_every_element_once(void **state)
{
    (void)state;
    for (int n = 1; n <= MAX_RANKS; n++) {
        size_t offsets[MAX_RANKS + 1];
        lay_out(n, offsets);
        for (int rank = 0; rank < n; rank++) {
            char got[5 * MAX_RANKS] = {0};
            mark(got, offsets[rank], offsets[rank + 1] - offsets[rank]);
            for (int peer = 0; peer < n; peer++) {
                if (peer != rank) {
                    cadre_move move = cadre_schedule_move(
                        CADRE_PHASE_GATHER, offsets, n, -1, rank, peer);
                    mark(got, move.receive_offset, move.receive_count);
                }
            }
            check_all(got, 0, offsets[n]);
        }
    }
}

static void only_the_root_sends(void **state)
{
    (void)state;
    for (int n = 2; n <= MAX_RANKS; n++) {
        size_t offsets[MAX_RANKS + 1];
        cadre_split_evenly(10, n, offsets);
        for (int root = 0; root < n; root++) {
            for (int rank = 0; rank < n; rank++) {
                size_t received = 0;
                for (int peer = 0; peer < n; peer++) {
                    cadre_move move = cadre_schedule_move(
                        CADRE_PHASE_ROOT, offsets, n, root, rank, peer);
                    assert_int_equal(move.send_count, rank == root ? 10 : 0);
                    received += peer == rank ? 0 : move.receive_count;
                }
                assert_int_equal(received, rank == root ? 0 : 10);
            }
        }
    }
}

static void an_allreduce_is_a_scatter_and_a_gather(void **state)
{
    (void)state;
    cadre_phase all[CADRE_MAX_PHASES];
    cadre_phase phase[CADRE_MAX_PHASES];
    assert_int_equal(cadre_schedule_phases(CADRE_OP_ALLREDUCE, all), 2);
    assert_int_equal(cadre_schedule_phases(CADRE_OP_REDUCE_SCATTER, phase), 1);
    assert_int_equal(phase[0], all[0]);
    assert_int_equal(cadre_schedule_phases(CADRE_OP_ALLGATHER, phase), 1);
    assert_int_equal(phase[0], all[1]);
    assert_int_equal(cadre_schedule_phases(CADRE_OP_BROADCAST, phase), 1);
    assert_int_equal(phase[0], CADRE_PHASE_ROOT);
    assert_int_equal(cadre_schedule_phases(CADRE_OP_BARRIER, phase), 1);
    assert_int_equal(phase[0], CADRE_PHASE_MEET);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_splits_cover_and_differ_by_one),
        cmocka_unit_test(sends_meet_receives),
        cmocka_unit_test(an_owner_gets_its_part_from_everybody),
        cmocka_unit_test(gathering_brings_every_element_once),
        cmocka_unit_test(only_the_root_sends),
        cmocka_unit_test(an_allreduce_is_a_scatter_and_a_gather),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
