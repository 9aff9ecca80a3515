// SPDX-License-Identifier: Apache-2.0
//
// The protocol of collectives in shared memory, step by step: ranks driven in
// turn by one thread, and boards with what no rank of ours would write.

#include "support/check.h"

#include "base/alloc.h"
#include "collective/board.h"
#include "collective/shared.h"

enum { N = 2, COUNT = 100 };

typedef struct pair {
    cadre_inproc_world *world;
    cadre_transport *t[N];
    cadre_shared *s[N];
    float *arenas[N];
} pair;

static pair open_pair(void)
{
    pair p = {0};
    CHECK_OK(cadre_inproc_world_create(N, &p.world));
    for (int r = 0; r < N; r++) {
        void *memory = NULL;
        CHECK_OK(cadre_inproc_open(p.world, r, &p.t[r]));
        CHECK_OK(cadre_shared_open(p.t[r], &p.s[r]));
        CHECK_OK(
            p.t[r]->ops->shared->alloc(p.t[r], COUNT * sizeof(float), &memory));
        p.arenas[r] = memory;
        for (int i = 0; i < COUNT; i++) {
            p.arenas[r][i] = (float)(r + 1);
        }
    }
    return p;
}

static void close_pair(pair *p)
{
    for (int r = 0; r < N; r++) {
        cadre_transport_close(p->t[r]);
        cadre_shared_close(p->s[r]);
    }
    cadre_inproc_world_destroy(p->world);
}

static cadre_call sum_call(uint64_t sequence)
{
    return (cadre_call){
        .operation = CADRE_OP_ALLREDUCE,
        .dtype = CADRE_F32,
        .reduce_op = CADRE_SUM,
        .root = -1,
        .sequence = sequence,
        .count = COUNT,
    };
}

static void begin(pair *p, int r, const cadre_call *call)
{
    static const size_t offsets[N + 1] = {0, COUNT / 2, COUNT};
    cadre_shared_what what = {
        .call = call,
        .send = p->arenas[r],
        .recv = p->arenas[r],
        .offsets = offsets,
    };
    CHECK_OK(cadre_shared_reserve(p->s[r], &what));
    cadre_shared_begin(p->s[r], &what);
}

static bool advance(pair *p, int r)
{
    bool done = false;
    CHECK_OK(cadre_shared_advance(p->s[r], &done));
    return done;
}

static cadre_board *board_of(pair *p, int r)
{
    return p->t[0]->ops->shared->board(p->t[0], r);
}

static void nobody_is_done_before_all_have_worked(void **state)
{
    (void)state;
    pair p = open_pair();
    for (uint64_t k = 1; k <= 5; k++) {
        cadre_call call = sum_call(k);
        begin(&p, 0, &call);
        assert_false(advance(&p, 0));
        assert_true(cadre_shared_waits_for(p.s[0], 1));
        begin(&p, 1, &call);
        assert_false(advance(&p, 1));
        assert_true(cadre_shared_waits_for(p.s[1], 0));
        assert_true(advance(&p, 0));
        assert_true(advance(&p, 1));
        assert_true(p.arenas[0][0] == p.arenas[1][COUNT - 1]);
    }
    assert_true(p.arenas[0][0] == 3 * 16); // 3, and doubled four times
    close_pair(&p);
}

// Rank 1 alone does something; rank 0 is in a sum, and finds out.
static void check_found_out(
    pair *p, cadre_status wanted, const char *words, const char *more_words)
{
    bool done = false;
    cadre_call call = sum_call(1);
    begin(p, 0, &call);
    CHECK_FAILS(cadre_shared_advance(p->s[0], &done), wanted, words);
    CHECK_FAILS(cadre_shared_advance(p->s[0], &done), wanted, more_words);
    assert_false(done);
    close_pair(p);
}

static void an_exchange_instead_is_told(void **state)
{
    (void)state;
    pair p = open_pair();
    cadre_call fold = {
        .operation = CADRE_OP_FOLD, .root = -1, .sequence = 1, .count = 7};
    cadre_shared_note_exchange(p.s[1], &fold);
    check_found_out(&p, CADRE_ERR_DESYNC,
        "rank 0 called allreduce #1 of 100 f32 (sum), rank 1 called fold #1",
        "ranks disagree");
}

// What a rank did after the collective says nothing about it.
static void an_exchange_after_it_is_none_of_its_business(void **state)
{
    (void)state;
    pair p = open_pair();
    cadre_call call = sum_call(1);
    cadre_call fold = {.operation = CADRE_OP_FOLD, .root = -1, .sequence = 2};
    begin(&p, 0, &call);
    begin(&p, 1, &call);
    assert_false(advance(&p, 0));
    assert_true(advance(&p, 1));
    cadre_shared_note_exchange(p.s[1], &fold);
    cadre_shared_leave(p.s[1]);
    assert_true(advance(&p, 0));
    close_pair(&p);
}

static void a_rank_that_left_is_told(void **state)
{
    (void)state;
    pair p = open_pair();
    cadre_shared_leave(p.s[1]);
    check_found_out(&p, CADRE_ERR_PEER_LOST, "rank 1 has left", "left");
}

// Writes an entry of rank 1 by hand.
static void forge(pair *p, cadre_shared_name in, cadre_shared_name out,
    bool windowed, uint64_t ready)
{
    cadre_board *board = board_of(p, 1);
    cadre_board_call entry = {
        .call = sum_call(1), .windowed = windowed, .in = in, .out = out};
    cadre_board_write(&board->entries[0], &entry);
    atomic_store(&board->counters[CADRE_BOARD_READY].turns, ready);
}

static void names_of_nothing_are_refused(void **state)
{
    (void)state;
    const cadre_shared_name good = {1, 0};
    const cadre_shared_name bad[] = {{0, 0}, {7, 0}, {1, 4},
        {1, UINT64_MAX - 3}, {1, COUNT * sizeof(float)}, {UINT64_MAX, 0}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        pair p = open_pair();
        forge(&p, bad[i], good, false, 1);
        check_found_out(&p, CADRE_ERR_PEER_LOST,
            "rank 1 shares is unusable: rank 1 has no", "in an arena");
        p = open_pair();
        forge(&p, good, bad[i], false, 1);
        check_found_out(&p, CADRE_ERR_PEER_LOST,
            "rank 1 shares is unusable: rank 1 has no", "in an arena");
    }
    // An arena that is there, but is too small for a window.
    pair p = open_pair();
    forge(&p, good, good, true, 1);
    check_found_out(&p, CADRE_ERR_PEER_LOST,
        "rank 1 shares is unusable: rank 1 has no", "in an arena");
    p = open_pair();
    forge(&p, (cadre_shared_name){1, 2}, good, false, 1);
    check_found_out(&p, CADRE_ERR_PEER_LOST, "not aligned", "rank 1 names");
}

static void senseless_counters_do_no_harm(void **state)
{
    (void)state;
    static const uint64_t counters[] = {2, 1000, UINT64_MAX / 2, UINT64_MAX};
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        pair p = open_pair();
        cadre_call call = sum_call(1);
        const cadre_shared_name name = {1, 0};
        forge(&p, name, name, false, counters[i]);
        atomic_store(
            &board_of(&p, 1)->counters[CADRE_BOARD_DONE].turns, counters[i]);
        begin(&p, 0, &call);
        // As if it had done its part, or as if it had not begun.
        assert_int_equal(advance(&p, 0), counters[i] != UINT64_MAX);
        close_pair(&p);
    }
}

static void a_window_that_is_not_to_be_had_is_told_at_once(void **state)
{
    (void)state;
    pair p = open_pair();
    float elsewhere[COUNT] = {0};
    const size_t offsets[N + 1] = {0, COUNT / 2, COUNT};
    cadre_call call = sum_call(1);
    cadre_shared_what what = {&call, elsewhere, elsewhere, offsets};
    cadre_alloc_fail_after(0);
    CHECK_FAILS(cadre_shared_reserve(p.s[0], &what), CADRE_ERR_NO_MEMORY, "");
    cadre_alloc_fail_after(-1);
    CHECK_OK(cadre_shared_reserve(p.s[0], &what));
    uint64_t before = cadre_alloc_calls();
    CHECK_OK(cadre_shared_reserve(p.s[0], &what));
    assert_int_equal(cadre_alloc_calls(), before);
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_is_done_before_all_have_worked),
        cmocka_unit_test(an_exchange_instead_is_told),
        cmocka_unit_test(an_exchange_after_it_is_none_of_its_business),
        cmocka_unit_test(a_rank_that_left_is_told),
        cmocka_unit_test(names_of_nothing_are_refused),
        cmocka_unit_test(senseless_counters_do_no_harm),
        cmocka_unit_test(a_window_that_is_not_to_be_had_is_told_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
