// SPDX-License-Identifier: Apache-2.0
//
// What a group promises beside its collectives' results: arguments, works,
// arenas, exchanges, counted bytes, a group of one.

#include "support/check.h"
#include "support/ranks.h"

#include "base/alloc.h"

static cadre_group *make_alone(void)
{
    cadre_group *g = NULL;
    CHECK_OK(cadre_group_create(0, 1, 0, NULL, NULL, &g));
    return g;
}

static void a_group_of_one_needs_no_transport(void **state)
{
    (void)state;
    cadre_group *g = make_alone();
    assert_int_equal(cadre_rank(g), 0);
    assert_int_equal(cadre_world_size(g), 1);
    assert_string_equal(cadre_transport_name(g), "none");
    const float in[2] = {1.5F, -2.0F};
    float out[2] = {0};
    const size_t counts[1] = {2};
    CHECK_OK(cadre_allreduce(g, in, out, 2, CADRE_F32, CADRE_SUM, NULL));
    assert_memory_equal(in, out, sizeof(in));
    memset(out, 0, sizeof(out));
    CHECK_OK(
        cadre_reduce_scatter(g, in, out, counts, CADRE_F32, CADRE_SUM, NULL));
    assert_memory_equal(in, out, sizeof(in));
    memset(out, 0, sizeof(out));
    cadre_work *work = NULL;
    bool done = false;
    CHECK_OK(cadre_allgather(g, in, out, counts, CADRE_F32, &work));
    CHECK_OK(cadre_work_test(work, &done));
    assert_true(done);
    CHECK_OK(cadre_work_wait(work, 0));
    assert_memory_equal(in, out, sizeof(in));
    CHECK_OK(cadre_broadcast(g, out, 2, CADRE_F32, 0, NULL));
    CHECK_OK(cadre_barrier(g, NULL));
    CHECK_OK(cadre_group_progress(g));
    uint64_t payload = 1;
    uint64_t overhead = 1;
    cadre_group_sent(g, &payload, &overhead);
    assert_int_equal(payload, 0);
    assert_int_equal(overhead, 0);
    cadre_group_release(g);
    cadre_group_release(NULL);
}

static void senseless_arguments_are_refused(void **state)
{
    (void)state;
    cadre_group *g = make_alone();
    float x[8] = {0};
    const size_t too_many[1] = {SIZE_MAX};
    const size_t two[1] = {2};
    const cadre_dtype no_dtype = (cadre_dtype)9;
    const cadre_reduce_op no_op = (cadre_reduce_op)7;

    CHECK_FAILS(cadre_allreduce(NULL, x, x, 2, CADRE_F32, CADRE_SUM, NULL),
        CADRE_ERR_INVALID_ARG, "the group is NULL");
    CHECK_FAILS(cadre_allreduce(g, x, x, 2, no_dtype, CADRE_SUM, NULL),
        CADRE_ERR_INVALID_ARG, "9 is no element type");
    CHECK_FAILS(cadre_allreduce(g, x, x, 2, CADRE_F32, no_op, NULL),
        CADRE_ERR_INVALID_ARG, "7 is no reduce operation");
    CHECK_FAILS(cadre_allreduce(g, x, x, 2, CADRE_I32, CADRE_MEAN, NULL),
        CADRE_ERR_INVALID_ARG, "a mean of i32 is not defined");
    CHECK_FAILS(cadre_reduce_scatter(g, x, x, two, CADRE_U8, CADRE_MEAN, NULL),
        CADRE_ERR_INVALID_ARG, "a mean of u8 is not defined");
    CHECK_FAILS(cadre_allreduce(g, NULL, x, 2, CADRE_F32, CADRE_SUM, NULL),
        CADRE_ERR_INVALID_ARG, "send is NULL");
    CHECK_FAILS(cadre_allreduce(g, x, NULL, 2, CADRE_F32, CADRE_SUM, NULL),
        CADRE_ERR_INVALID_ARG, "recv is NULL");
    CHECK_FAILS(
        cadre_allreduce(g, x, x, SIZE_MAX / 2, CADRE_F32, CADRE_SUM, NULL),
        CADRE_ERR_INVALID_ARG, "more than memory can hold");
    CHECK_FAILS(cadre_allreduce(g, x, x + 1, 4, CADRE_F32, CADRE_SUM, NULL),
        CADRE_ERR_INVALID_ARG, "overlap");
    CHECK_FAILS(cadre_reduce_scatter(g, x, x, NULL, CADRE_F32, CADRE_SUM, NULL),
        CADRE_ERR_INVALID_ARG, "counts is NULL");
    CHECK_FAILS(
        cadre_reduce_scatter(g, x, x, too_many, CADRE_F32, CADRE_SUM, NULL),
        CADRE_ERR_INVALID_ARG, "more than memory can hold");
    CHECK_FAILS(cadre_allgather(g, x + 1, x, two, CADRE_F32, NULL),
        CADRE_ERR_INVALID_ARG, "overlap");
    CHECK_FAILS(cadre_broadcast(g, x, 2, CADRE_F32, 1, NULL),
        CADRE_ERR_INVALID_ARG, "root is 1, the group has 1 ranks");
    CHECK_FAILS(cadre_broadcast(g, x, 2, CADRE_F32, -1, NULL),
        CADRE_ERR_INVALID_ARG, "root is -1");
    CHECK_FAILS(
        cadre_work_wait(NULL, 0), CADRE_ERR_INVALID_ARG, "work is NULL");
    CHECK_FAILS(cadre_work_test(NULL, NULL), CADRE_ERR_INVALID_ARG, "is NULL");

    // The group is whole after all this.
    CHECK_OK(cadre_allreduce(g, NULL, NULL, 0, CADRE_F32, CADRE_SUM, NULL));
    CHECK_OK(cadre_broadcast(g, NULL, 0, CADRE_F32, 0, NULL));
    cadre_group_release(g);
}

static void wait_twice(cadre_group *world, void *ctx)
{
    (void)ctx;
    cadre_work *work = NULL;
    RANK_OK(cadre_barrier(world, &work));
    RANK_OK(cadre_work_wait(work, 0));
    bool done = false;
    RANK_CHECK(cadre_work_test(work, &done) == CADRE_ERR_STATE);
    RANK_CHECK(cadre_work_wait(work, 0) == CADRE_ERR_STATE);
    RANK_CHECK(strstr(cadre_error_text(), "exactly once") != NULL);
    RANK_OK(cadre_barrier(world, NULL)); // the group is whole
}

static void a_work_is_waited_for_once(void **state)
{
    (void)state;
    cadre_group *g = make_alone();
    wait_twice(g, NULL);
    cadre_group_release(g);
    run_as_threads(LINK_INPROC, 2, 0, wait_twice, NULL);
}

static void sixty_four_works_may_be_posted(void **state)
{
    (void)state;
    cadre_group *g = make_alone();
    cadre_work *works[64];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 64; i++) {
            CHECK_OK(cadre_barrier(g, &works[i]));
        }
        cadre_work *more = NULL;
        CHECK_FAILS(cadre_barrier(g, &more), CADRE_ERR_STATE, "64 works");
        CHECK_OK(cadre_work_wait(works[40], 0));
        CHECK_OK(cadre_barrier(g, &works[40]));
        for (int i = 0; i < 64; i++) {
            CHECK_OK(cadre_work_wait(works[i], 0));
        }
    }
    cadre_group_release(g);
}

static void arenas_are_zeroed_aligned_and_freed_with_the_group(void **state)
{
    (void)state;
    cadre_group *g = make_alone();
    void *arenas[4];
    for (size_t i = 0; i < 4; i++) {
        CHECK_OK(cadre_arena_alloc(g, 100 * i, &arenas[i]));
        assert_int_equal((uintptr_t)arenas[i] % 64, 0);
        for (size_t j = 0; j < 100 * i; j++) {
            assert_int_equal(((char *)arenas[i])[j], 0);
        }
        memset(arenas[i], 1, 100 * i);
    }
    cadre_arena_free(g, arenas[2]);
    cadre_arena_free(g, arenas[3]);
    cadre_arena_free(g, NULL);
    void *none = NULL;
    CHECK_FAILS(cadre_arena_alloc(g, SIZE_MAX, &none), CADRE_ERR_NO_MEMORY,
        "out of memory");
    CHECK_FAILS(
        cadre_arena_alloc(NULL, 1, &none), CADRE_ERR_INVALID_ARG, "NULL");
    cadre_group_release(g);
}

static void a_broken_group_of_one_stays_broken(void **state)
{
    (void)state;
    cadre_group *g = make_alone();
    CHECK_FAILS(cadre_group_fail(g, CADRE_ERR_DESYNC, "we differ"),
        CADRE_ERR_DESYNC, "we differ");
    CHECK_FAILS(cadre_group_fail(g, CADRE_ERR_ABORTED, "second thought"),
        CADRE_ERR_DESYNC, "we differ");
    CHECK_FAILS(cadre_barrier(g, NULL), CADRE_ERR_DESYNC, "we differ");
    CHECK_FAILS(cadre_group_progress(g), CADRE_ERR_DESYNC, "we differ");
    cadre_group_release(g);
}

static void creation_survives_lack_of_memory(void **state)
{
    (void)state;
    for (int n = 0; n < 20; n++) {
        cadre_group *g = NULL;
        cadre_alloc_fail_after(n);
        cadre_status status = cadre_group_create(0, 1, 0, NULL, NULL, &g);
        cadre_alloc_fail_after(-1);
        if (status == CADRE_OK) {
            cadre_group_release(g);
            assert_true(n > 0);
            return;
        }
        assert_int_equal(status, CADRE_ERR_NO_MEMORY);
        assert_null(g);
    }
    fail_msg("a group needs more than 20 allocations");
}

// Rank r sends r + 1 bytes of its number to each higher rank, in runs of odd
// lengths, and nothing to lower ones.
static void exchange_bytes(cadre_group *g, void *ctx)
{
    (void)ctx;
    enum { MAX = 8, N_ROUNDS = 5 };
    int n = cadre_world_size(g);
    int me = cadre_rank(g);
    char out[N_ROUNDS][MAX + 1];
    char in[N_ROUNDS][MAX][MAX + 1];
    cadre_run out_runs[N_ROUNDS][3];
    cadre_run in_runs[N_ROUNDS][MAX][2];
    cadre_part sends[N_ROUNDS][MAX];
    cadre_part receives[N_ROUNDS][MAX];
    cadre_work *works[N_ROUNDS];
    memset(in, -1, sizeof(in));
    for (int k = 0; k < N_ROUNDS; k++) {
        size_t nbytes = (size_t)me + 1;
        memset(out[k], me + 10 * k, nbytes);
        out_runs[k][0] = (cadre_run){out[k], 1};
        out_runs[k][1] = (cadre_run){NULL, 0};
        out_runs[k][2] = (cadre_run){out[k] + 1, nbytes - 1};
        int i = 0;
        for (int peer = 0; peer < n; peer++) {
            if (peer == me) {
                continue;
            }
            size_t theirs = peer < me ? (size_t)peer + 1 : 0;
            in_runs[k][peer][0] = (cadre_run){in[k][peer], theirs / 2};
            in_runs[k][peer][1] =
                (cadre_run){in[k][peer] + theirs / 2, theirs - theirs / 2};
            sends[k][i] = (cadre_part){peer, out_runs[k], peer > me ? 3U : 0U};
            receives[k][i] = (cadre_part){peer, in_runs[k][peer], 2};
            i++;
        }
        cadre_call call = {
            .operation = CADRE_OP_FOLD,
            .dtype = CADRE_U8,
            .root = -1,
            .count = 100,
            .detail = (uint64_t)k + 1,
        };
        RANK_OK(
            cadre_exchange(g, call, sends[k], i, receives[k], i, &works[k]));
    }
    // A collective behind them waits its turn.
    RANK_OK(cadre_barrier(g, NULL));
    for (int k = 0; k < N_ROUNDS; k++) {
        RANK_OK(cadre_work_wait(works[k], 0));
        for (int peer = 0; peer < me; peer++) {
            for (int b = 0; b <= peer; b++) {
                RANK_CHECK(in[k][peer][b] == peer + 10 * k);
            }
            RANK_CHECK(in[k][peer][peer + 1] == -1);
        }
    }

    // Counted: payload, and a header per frame where there are any.
    uint64_t payload;
    uint64_t overhead;
    cadre_group_sent(g, &payload, &overhead);
    bool direct = strcmp(cadre_algorithm_name(g), "direct") == 0;
    uint64_t n_frames = (uint64_t)(n - 1) * (N_ROUNDS + (direct ? 1U : 0U));
    bool inproc = strcmp(cadre_transport_name(g), "inproc") == 0;
    RANK_CHECK(payload == (uint64_t)N_ROUNDS * (uint64_t)(me + 1) *
                              (uint64_t)(n - 1 - me));
    RANK_CHECK(overhead == (inproc ? 0 : 64 * n_frames));
}

static void exchanges_move_runs_and_count_bytes(void **state)
{
    (void)state;
    for (int link = 0; link < N_LINKS; link++) {
        for (int n = 2; n <= 6; n++) {
            run_as_threads((rank_link)link, n, 0, exchange_bytes, NULL);
        }
    }
}

// Posted at once: a gather of what an exchange before it brings.
static void gather_what_came(cadre_group *g, void *ctx)
{
    (void)ctx;
    enum { COUNT = 20000 };
    int me = cadre_rank(g);
    int64_t *all = cadre_alloc_array(2 * COUNT, sizeof(*all));
    int64_t *mine = cadre_alloc_array(COUNT, sizeof(*mine));
    int64_t *came = cadre_alloc_array(COUNT, sizeof(*came));
    RANK_CHECK(all != NULL && mine != NULL && came != NULL);
    for (int i = 0; i < COUNT; i++) {
        mine[i] = 100 * me + i;
    }
    cadre_run out = {mine, COUNT * sizeof(*mine)};
    cadre_run in = {came, COUNT * sizeof(*came)};
    cadre_part send = {1 - me, &out, 1};
    cadre_part receive = {1 - me, &in, 1};
    cadre_call call = {.operation = CADRE_OP_FOLD, .root = -1};
    const size_t counts[] = {COUNT, COUNT};
    cadre_work *works[2];
    RANK_OK(cadre_exchange(g, call, &send, 1, &receive, 1, &works[0]));
    RANK_OK(cadre_allgather(g, came, all, counts, CADRE_I64, &works[1]));
    RANK_OK(cadre_work_wait(works[1], 0));
    RANK_OK(cadre_work_wait(works[0], 0));
    for (int i = 0; i < COUNT; i++) {
        RANK_CHECK(all[i] == 100 + i && all[COUNT + i] == i);
    }
    cadre_free(all);
    cadre_free(mine);
    cadre_free(came);
}

static void a_collective_waits_for_exchanges_before_it(void **state)
{
    (void)state;
    for (int link = 0; link < N_LINKS; link++) {
        run_as_threads((rank_link)link, 2, 0, gather_what_came, NULL);
    }
}

static void exchange_otherwise(cadre_group *g, void *ctx)
{
    (void)ctx;
    int peer = 1 - cadre_rank(g);
    char byte = 0;
    cadre_run run = {&byte, 1};
    cadre_part send = {peer, &run, 1};
    cadre_part receive = {peer, &run, 0};
    cadre_call call = {
        .operation = CADRE_OP_GATHER,
        .dtype = CADRE_F32,
        .root = -1,
        .count = 5,
    };
    RANK_CHECK(cadre_exchange(g, call, &send, 1, &receive, 1, NULL) ==
               CADRE_ERR_DESYNC);
    RANK_CHECK(strstr(cadre_error_text(), "ranks disagree: in gather #1") &&
               strstr(cadre_error_text(), "sends 1 bytes where rank"));
}

static void payloads_of_other_sizes_are_told(void **state)
{
    (void)state;
    for (int link = 0; link < N_LINKS; link++) {
        run_as_threads((rank_link)link, 2, 0, exchange_otherwise, NULL);
    }
}

static void move_some(cadre_group *g, void *ctx)
{
    (void)ctx;
    enum { COUNT = 5000 };
    float *x = cadre_alloc_array(COUNT, sizeof(*x));
    RANK_CHECK(x != NULL);
    cadre_work *works[8];
    uint64_t before = 0;
    for (int step = 0; step < 4; step++) {
        for (size_t i = 0; i < 8; i++) {
            // Growing needs, while earlier works hold what they began with.
            RANK_OK(cadre_allreduce(g, x, x, (step == 0 ? i : 8) * COUNT / 8,
                CADRE_F32, CADRE_SUM, &works[i]));
        }
        for (int i = 0; i < 8; i++) {
            RANK_OK(cadre_work_wait(works[i], 0));
        }
        RANK_OK(cadre_barrier(g, NULL));
        RANK_CHECK(step < 2 || cadre_alloc_calls() == before);
        before = cadre_alloc_calls();
        RANK_OK(cadre_barrier(g, NULL));
    }
    cadre_free(x);
}

static void nothing_is_allocated_after_the_first_step(void **state)
{
    (void)state;
    for (int link = 0; link < N_LINKS; link++) {
        run_as_threads((rank_link)link, 3, 0, move_some, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_of_one_needs_no_transport),
        cmocka_unit_test(senseless_arguments_are_refused),
        cmocka_unit_test(a_work_is_waited_for_once),
        cmocka_unit_test(sixty_four_works_may_be_posted),
        cmocka_unit_test(arenas_are_zeroed_aligned_and_freed_with_the_group),
        cmocka_unit_test(a_broken_group_of_one_stays_broken),
        cmocka_unit_test(creation_survives_lack_of_memory),
        cmocka_unit_test(exchanges_move_runs_and_count_bytes),
        cmocka_unit_test(a_collective_waits_for_exchanges_before_it),
        cmocka_unit_test(payloads_of_other_sizes_are_told),
        cmocka_unit_test(nothing_is_allocated_after_the_first_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
