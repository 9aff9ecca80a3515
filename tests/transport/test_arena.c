// SPDX-License-Identifier: Apache-2.0
//
// Memory that ranks share: arenas, their names, boards and ringing.  A transport
// that offers it joins by one line in open_all().

#include "support/check.h"

#include "base/alloc.h"
#include "base/thread.h"
#include "transport/transport.h"
#include <stdatomic.h>

enum { N = 3 };

typedef struct world {
    cadre_inproc_world *inproc;
    cadre_transport *t[N];
    const cadre_shared_ops *ops;
} world;

static world open_all(void)
{
    world w = {0};
    CHECK_OK(cadre_inproc_world_create(N, &w.inproc));
    for (int r = 0; r < N; r++) {
        CHECK_OK(cadre_inproc_open(w.inproc, r, &w.t[r]));
    }
    w.ops = w.t[0]->ops->shared;
    assert_non_null(w.ops);
    return w;
}

static void close_all(world *w)
{
    for (int r = 0; r < N; r++) {
        cadre_transport_close(w->t[r]);
    }
    cadre_inproc_world_destroy(w->inproc);
}

static char *make_arena(world *w, int rank, size_t nbytes)
{
    void *memory = NULL;
    CHECK_OK(w->ops->alloc(w->t[rank], nbytes, &memory));
    assert_int_equal((uintptr_t)memory % CADRE_CACHE_LINE, 0);
    return memory;
}

static void peers_write_where_a_name_says(void **state)
{
    (void)state;
    world w = open_all();
    char *first = make_arena(&w, 0, 100);
    char *second = make_arena(&w, 0, 5000);
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(second[i], 0);
    }
    cadre_shared_name name = {0};
    void *theirs = NULL;
    assert_true(w.ops->name(w.t[0], second + 1000, 4000, &name));
    assert_int_equal(name.offset, 1000);
    CHECK_OK(w.ops->reach(w.t[2], 0, name, 4000, &theirs));
    memset(theirs, 7, 4000);
    assert_int_equal(second[999], 0);
    assert_int_equal(second[1000], 7);
    assert_int_equal(second[4999], 7);

    assert_true(w.ops->name(w.t[0], first, 100, &name));
    w.ops->free(w.t[0], first);
    CHECK_FAILS(w.ops->reach(w.t[1], 0, name, 100, &theirs), CADRE_ERR_CORRUPT,
        "rank 0 has no 100 bytes at 0 in an arena ");
    cadre_shared_name new_name = {0};
    assert_true(w.ops->name(w.t[0], make_arena(&w, 0, 100), 100, &new_name));
    assert_true(new_name.arena > name.arena);
    close_all(&w);
}

static void memory_outside_has_no_name(void **state)
{
    (void)state;
    world w = open_all();
    char *mine = make_arena(&w, 0, 128);
    char *theirs = make_arena(&w, 1, 128);
    char elsewhere[16];
    cadre_shared_name name = {0};
    assert_true(w.ops->name(w.t[0], mine, 128, &name));
    assert_true(w.ops->name(w.t[0], mine + 127, 1, &name));
    assert_false(w.ops->name(w.t[0], mine, 129, &name));
    assert_false(w.ops->name(w.t[0], mine + 1, SIZE_MAX, &name));
    assert_false(w.ops->name(w.t[0], theirs, 1, &name));
    assert_false(w.ops->name(w.t[0], elsewhere, 1, &name));
    close_all(&w);
}

static void boards_are_one_page_each_and_empty(void **state)
{
    (void)state;
    world w = open_all();
    for (int r = 0; r < N; r++) {
        char *board = w.ops->board(w.t[0], r);
        assert_int_equal((uintptr_t)board % 4096, 0);
        for (int i = 0; i < CADRE_BOARD_BYTES; i++) {
            assert_int_equal(board[i], 0);
        }
        memset(board, r + 1, CADRE_BOARD_BYTES);
    }
    for (int r = 0; r < N; r++) {
        const char *board = w.ops->board(w.t[1], r);
        assert_int_equal(board[0], r + 1);
        assert_int_equal(board[CADRE_BOARD_BYTES - 1], r + 1);
    }
    close_all(&w);
}

static void a_ring_is_not_lost(void **state)
{
    (void)state;
    world w = open_all();
    cadre_deadline far = cadre_deadline_in_ms(60000);
    w.ops->ring(w.t[1]);
    CHECK_OK(cadre_transport_progress(w.t[0], far));
    CHECK_OK(cadre_transport_progress(w.t[2], far));
    assert_true(cadre_now_ns() < far);
    // And is over then: the others were not rung, nor the one who rang.
    int64_t begin = cadre_now_ns();
    CHECK_OK(cadre_transport_progress(w.t[0], cadre_deadline_in_ms(2)));
    CHECK_OK(cadre_transport_progress(w.t[1], cadre_deadline_in_ms(2)));
    assert_true(cadre_now_ns() - begin >= 4000000);
    close_all(&w);
}

typedef struct ringing {
    world *w;
    atomic_int n_turns;
} ringing;

// Waits for its turn, and rings for the next one.
static void take_turns(void *ctx, int rank)
{
    enum { N_TURNS = 3000 };
    ringing *s = ctx;
    cadre_deadline far = cadre_deadline_in_ms(60000);
    int turn = atomic_load(&s->n_turns);
    while (turn < N_TURNS && cadre_now_ns() < far) {
        if (turn % N == rank) {
            atomic_store(&s->n_turns, turn + 1);
            s->w->ops->ring(s->w->t[rank]);
        } else if (cadre_transport_progress(s->w->t[rank], far) != CADRE_OK) {
            return;
        }
        turn = atomic_load(&s->n_turns);
    }
}

static void be_first(void *ctx)
{
    take_turns(ctx, 1);
}

static void be_second(void *ctx)
{
    take_turns(ctx, 2);
}

static void rings_wake_who_sleeps(void **state)
{
    (void)state;
    world w = open_all();
    ringing s = {.w = &w};
    cadre_thread first = {0};
    cadre_thread second = {0};
    CHECK_OK(cadre_thread_start(&first, "rank", be_first, &s));
    CHECK_OK(cadre_thread_start(&second, "rank", be_second, &s));
    take_turns(&s, 0);
    cadre_thread_join(&first);
    cadre_thread_join(&second);
    assert_int_equal(atomic_load(&s.n_turns), 3000);
    close_all(&w);
}

// A peer may still be at work in it.
static void arenas_outlive_a_rank_that_failed(void **state)
{
    (void)state;
    world w = open_all();
    char *memory = make_arena(&w, 0, 64);
    cadre_shared_name name = {0};
    void *theirs = NULL;
    assert_true(w.ops->name(w.t[0], memory, 64, &name));
    CHECK_OK(w.ops->reach(w.t[1], 0, name, 64, &theirs));
    cadre_transport_abandon(w.t[0]);
    w.ops->free(w.t[0], memory);
    memset(theirs, 1, 64);
    cadre_transport_close(w.t[0]);
    w.t[0] = NULL;
    memset(theirs, 2, 64);
    close_all(&w);
}

static void lack_of_memory_is_told(void **state)
{
    (void)state;
    world w = open_all();
    void *memory = NULL;
    for (int n = 0; n < 2; n++) {
        cadre_alloc_fail_after(n);
        CHECK_FAILS(w.ops->alloc(w.t[0], 10, &memory), CADRE_ERR_NO_MEMORY, "");
        cadre_alloc_fail_after(-1);
        assert_null(memory);
    }
    close_all(&w);
    for (int n = 0; n < 3; n++) {
        cadre_alloc_fail_after(n);
        CHECK_FAILS(
            cadre_inproc_world_create(N, &w.inproc), CADRE_ERR_NO_MEMORY, "");
        cadre_alloc_fail_after(-1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_write_where_a_name_says),
        cmocka_unit_test(memory_outside_has_no_name),
        cmocka_unit_test(boards_are_one_page_each_and_empty),
        cmocka_unit_test(a_ring_is_not_lost),
        cmocka_unit_test(rings_wake_who_sleeps),
        cmocka_unit_test(arenas_outlive_a_rank_that_failed),
        cmocka_unit_test(lack_of_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
