// SPDX-License-Identifier: Apache-2.0
//
// What every transport promises.  A new one joins by one line in open_all().
// All ranks are driven by one thread, in turn, unless a case is about sleeping.

#include "support/check.h"
#include "support/ranks.h"

#include "base/alloc.h"
#include "base/thread.h"

enum { MAX_RANKS = 3 };

typedef struct world {
    int n;
    cadre_inproc_world *inproc; // or NULL
    cadre_transport *ranks[MAX_RANKS];
} world;

static world open_all(rank_link link, int n)
{
    world w = {.n = n};
    int sockets[MAX_RANKS * MAX_RANKS];
    if (link == LINK_INPROC) {
        CHECK_OK(cadre_inproc_world_create(n, &w.inproc));
    } else {
        connect_all(link, n, sockets);
    }
    for (int r = 0; r < n; r++) {
        if (link == LINK_INPROC) {
            CHECK_OK(cadre_inproc_open(w.inproc, r, &w.ranks[r]));
        } else {
            CHECK_OK(open_link(link, r, n, 7, &sockets[r * n], &w.ranks[r]));
        }
        assert_int_equal(w.ranks[r]->rank, r);
        assert_int_equal(w.ranks[r]->world_size, n);
        assert_int_equal(w.ranks[r]->failed_peer, -1);
    }
    return w;
}

static void close_rank(world *w, int rank)
{
    cadre_transport_close(w->ranks[rank]);
    w->ranks[rank] = NULL;
}

static void close_all(world *w)
{
    for (int r = 0; r < w->n; r++) {
        close_rank(w, r);
    }
    cadre_inproc_world_destroy(w->inproc);
}

// Lets the ranks make progress in turn until x is done.
static void drive(world *w, const cadre_transfer *x)
{
    while (!x->done) {
        for (int r = 0; r < w->n; r++) {
            if (w->ranks[r] != NULL) {
                CHECK_OK(cadre_transport_progress(w->ranks[r], 0));
            }
        }
    }
}

// Lets one rank make progress until that fails, for a few seconds at most.
static cadre_status drive_to_failure(cadre_transport *t)
{
    cadre_deadline deadline = cadre_deadline_in_ms(5000);
    cadre_status status = CADRE_OK;
    while (status == CADRE_OK && cadre_now_ns() < deadline) {
        status = cadre_transport_progress(t, deadline);
    }
    return status;
}

static const cadre_call call = {
    .operation = CADRE_OP_FOLD,
    .dtype = CADRE_U8,
    .root = -1,
    .sequence = 1,
    .count = 1000,
};

static cadre_transfer one_run(cadre_run *run)
{
    return (cadre_transfer){.call = &call, .runs = run, .n_runs = 1};
}

static void for_each_link(void (*check)(rank_link link))
{
    for (int link = 0; link < N_LINKS; link++) {
        check((rank_link)link);
    }
    check(LINK_CHECKED);
}

// Cuts nbytes of memory into runs of 1, 2, 3 ... bytes, beginning with first,
// with empty ones between.  Returns the number of runs.
static size_t cut(char *memory, size_t nbytes, size_t first, cadre_run *runs)
{
    size_t n = 0;
    size_t at = 0;
    for (size_t length = first; at < nbytes; length++) {
        size_t left = nbytes - at;
        size_t run = length < left ? length : left;
        runs[n++] = (cadre_run){NULL, 0};
        runs[n++] = (cadre_run){memory + at, run};
        at += run;
    }
    return n;
}

static void check_runs(rank_link link)
{
    enum { NBYTES = 100000, MAX_RUNS = 2000 };
    world w = open_all(link, 2);
    char *from = cadre_alloc(NBYTES);
    char *to = cadre_alloc(NBYTES);
    cadre_run *runs = cadre_alloc_array(2 * MAX_RUNS, sizeof(*runs));
    for (size_t i = 0; i < NBYTES; i++) {
        from[i] = (char)(i * 7 % 251);
    }
    cadre_transfer send = {.call = &call, .runs = runs};
    cadre_transfer receive = {.call = &call, .runs = runs + MAX_RUNS};
    send.n_runs = cut(from, NBYTES, 1, send.runs);
    receive.n_runs = cut(to, NBYTES, 50, receive.runs);
    assert_true(send.n_runs > 800 && send.n_runs <= MAX_RUNS);
    CHECK_OK(cadre_transport_receive(w.ranks[1], 0, &receive));
    CHECK_OK(cadre_transport_send(w.ranks[0], 1, &send));
    drive(&w, &receive);
    drive(&w, &send);
    assert_memory_equal(from, to, NBYTES);
    assert_int_equal(w.ranks[0]->sent_payload_bytes, NBYTES);
    assert_int_equal(w.ranks[0]->sent_overhead_bytes,
        w.ranks[0]->ops->header_bytes + (link == LINK_CHECKED ? 4 : 0));
    assert_int_equal(w.ranks[1]->sent_payload_bytes, 0);
    cadre_free(runs);
    cadre_free(from);
    cadre_free(to);
    close_all(&w);
}

static void payloads_are_gathered_and_scattered(void **state)
{
    (void)state;
    for_each_link(check_runs);
}

static void check_both_ways(rank_link link)
{
    enum { NBYTES = 9 << 20 }; // more than sockets hold
    world w = open_all(link, 2);
    char *memory[2][2];
    cadre_run runs[2][2];
    cadre_transfer sends[2];
    cadre_transfer receives[2];
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < 2; i++) {
            memory[r][i] = cadre_alloc(NBYTES);
            runs[r][i] = (cadre_run){memory[r][i], NBYTES};
        }
        for (size_t i = 0; i < NBYTES; i++) {
            memory[r][0][i] = (char)(i * (size_t)(r + 3) % 253);
        }
        sends[r] = one_run(&runs[r][0]);
        receives[r] = one_run(&runs[r][1]);
        CHECK_OK(cadre_transport_send(w.ranks[r], 1 - r, &sends[r]));
        assert_false(sends[r].done);
        CHECK_OK(cadre_transport_receive(w.ranks[r], 1 - r, &receives[r]));
    }
    for (int r = 0; r < 2; r++) {
        drive(&w, &receives[r]);
        drive(&w, &sends[r]);
        assert_memory_equal(memory[r][1], memory[1 - r][0], NBYTES);
    }
    for (int r = 0; r < 2; r++) {
        cadre_free(memory[r][0]);
        cadre_free(memory[r][1]);
    }
    close_all(&w);
}

static void large_payloads_pass_each_other(void **state)
{
    (void)state;
    for_each_link(check_both_ways);
}

static void check_order(rank_link link)
{
    enum { N = 50 };
    world w = open_all(link, 3);
    cadre_call calls[N];
    unsigned char out[N];
    unsigned char in[2][N] = {{0}};
    cadre_run out_runs[N];
    cadre_run in_runs[2][N];
    cadre_transfer sends[2][N];
    cadre_transfer receives[2][N];
    for (int i = 0; i < N; i++) {
        calls[i] = call;
        calls[i].sequence = (uint64_t)i;
        out[i] = (unsigned char)i;
        // Every third frame is empty, and is a frame all the same.
        out_runs[i] = (cadre_run){&out[i], i % 3 > 0 ? 1U : 0U};
        for (int r = 0; r < 2; r++) {
            in_runs[r][i] = (cadre_run){&in[r][i], i % 3 > 0 ? 1U : 0U};
            sends[r][i] = one_run(&out_runs[i]);
            receives[r][i] = one_run(&in_runs[r][i]);
            sends[r][i].call = &calls[i];
            receives[r][i].call = &calls[i];
            CHECK_OK(cadre_transport_send(w.ranks[r], 2, &sends[r][i]));
        }
    }
    for (int i = 0; i < N; i++) {
        CHECK_OK(cadre_transport_receive(w.ranks[2], 1, &receives[1][i]));
        CHECK_OK(cadre_transport_receive(w.ranks[2], 0, &receives[0][i]));
    }
    for (int r = 0; r < 2; r++) {
        drive(&w, &receives[r][N - 1]);
        drive(&w, &sends[r][N - 1]);
        for (int i = 0; i < N; i++) {
            assert_true(receives[r][i].done && sends[r][i].done);
            assert_int_equal(in[r][i], i % 3 > 0 ? i : 0);
        }
    }
    close_all(&w);
}

static void frames_arrive_in_the_order_they_were_posted(void **state)
{
    (void)state;
    for_each_link(check_order);
}

static void check_disagreement(rank_link link)
{
    world w = open_all(link, 2);
    char from[8] = "1234567";
    char to[8] = "abcdefg";
    cadre_run out = {from, 8};
    cadre_run in = {to, 8};
    cadre_call other = call;
    other.count++;
    cadre_transfer send = one_run(&out);
    cadre_transfer receive = one_run(&in);
    receive.call = &other;
    CHECK_OK(cadre_transport_send(w.ranks[0], 1, &send));
    CHECK_OK(cadre_transport_receive(w.ranks[1], 0, &receive));
    CHECK_FAILS(drive_to_failure(w.ranks[1]), CADRE_ERR_DESYNC,
        "rank 0 called fold #1 of 1000 u8, rank 1 called fold #1 of 1001 u8");
    assert_int_equal(w.ranks[1]->failed_peer, 0);
    assert_false(receive.done);
    assert_string_equal(to, "abcdefg");

    // The first failure is kept.
    close_rank(&w, 0);
    CHECK_FAILS(cadre_transport_progress(w.ranks[1], 0), CADRE_ERR_DESYNC,
        "rank 0 called fold #1");
    CHECK_FAILS(cadre_transport_send(w.ranks[1], 0, &receive), CADRE_ERR_DESYNC,
        "rank 0 called fold #1");
    CHECK_FAILS(cadre_transport_receive(w.ranks[1], 0, &receive),
        CADRE_ERR_DESYNC, "rank 0 called fold #1");
    close_all(&w);
}

static void frames_of_other_calls_are_never_written_to_memory(void **state)
{
    (void)state;
    for_each_link(check_disagreement);
}

static void check_leaving(rank_link link)
{
    world w = open_all(link, 3);
    char bytes[2] = {0};
    cadre_run run = {bytes, 1};
    cadre_run other_run = {bytes + 1, 1};
    cadre_transfer send = one_run(&run);
    cadre_transfer receive = one_run(&other_run);
    cadre_transfer none = one_run(&other_run);

    // Rank 1 leaves; nobody waits for it, so ranks 0 and 2 go on.
    close_rank(&w, 1);
    CHECK_OK(cadre_transport_send(w.ranks[0], 2, &send));
    CHECK_OK(cadre_transport_receive(w.ranks[2], 0, &receive));
    drive(&w, &receive);
    drive(&w, &send);

    CHECK_OK(cadre_transport_receive(w.ranks[0], 1, &none));
    CHECK_FAILS(
        drive_to_failure(w.ranks[0]), CADRE_ERR_PEER_LOST, "rank 1 has ");
    assert_int_equal(w.ranks[0]->failed_peer, 1);
    close_all(&w);
}

static void a_peer_that_has_left_is_lost_once_waited_for(void **state)
{
    (void)state;
    for_each_link(check_leaving);
}

static void check_send_to_nobody(rank_link link)
{
    enum { NBYTES = 9 << 20 };
    world w = open_all(link, 2);
    char *memory = cadre_alloc(NBYTES);
    cadre_run run = {memory, NBYTES};
    cadre_transfer send = one_run(&run);
    CHECK_OK(cadre_transport_send(w.ranks[0], 1, &send));
    close_rank(&w, 1);
    CHECK_FAILS(drive_to_failure(w.ranks[0]), CADRE_ERR_PEER_LOST, "rank 1 ");
    assert_int_equal(w.ranks[0]->failed_peer, 1);
    close_all(&w);
    cadre_free(memory);
}

static void a_peer_that_leaves_before_it_took_all_is_lost(void **state)
{
    (void)state;
    for_each_link(check_send_to_nobody);
}

static void check_deadline(rank_link link)
{
    world w = open_all(link, 2);
    char byte;
    cadre_run run = {&byte, 1};
    cadre_transfer receive = one_run(&run);
    CHECK_OK(cadre_transport_receive(w.ranks[0], 1, &receive));
    CHECK_OK(cadre_transport_progress(w.ranks[0], 0));
    cadre_deadline deadline = cadre_deadline_in_ms(5);
    CHECK_OK(cadre_transport_progress(w.ranks[0], deadline));
    assert_true(cadre_now_ns() >= deadline);
    assert_false(receive.done);
    close_all(&w);
}

static void a_deadline_is_no_error(void **state)
{
    (void)state;
    for_each_link(check_deadline);
}

static void wake(void *ctx)
{
    cadre_transport_wake(ctx);
}

static void check_wake(rank_link link)
{
    world w = open_all(link, 2);
    // Before and while it sleeps: each ends one wait.
    cadre_deadline deadline = cadre_deadline_in_ms(20000);
    for (int i = 0; i < 10; i++) {
        cadre_thread thread = {0};
        CHECK_OK(cadre_thread_start(&thread, "waker", wake, w.ranks[0]));
        CHECK_OK(cadre_transport_progress(w.ranks[0], deadline));
        cadre_thread_join(&thread);
    }
    assert_true(cadre_now_ns() < deadline);
    close_all(&w);
}

static void a_sleeping_rank_can_be_woken(void **state)
{
    (void)state;
    for_each_link(check_wake);
}

static void check_abandon(rank_link link)
{
    world w = open_all(link, 2);
    char *gone = cadre_alloc(100);
    char byte;
    cadre_run gone_run = {gone, 100};
    cadre_run run = {&byte, 1};
    cadre_transfer *sends = cadre_alloc_array(2, sizeof(*sends));
    cadre_transfer receive = one_run(&run);
    sends[0] = one_run(&gone_run);
    sends[1] = one_run(&gone_run);
    CHECK_OK(cadre_transport_receive(w.ranks[0], 1, &sends[1]));
    CHECK_OK(cadre_transport_send(w.ranks[0], 1, &sends[0]));
    cadre_transport_abandon(w.ranks[0]);
    cadre_free(sends);
    cadre_free(gone);

    // Rank 1 gets what had left before, or learns that rank 0 is gone; it never
    // reads the memory that was given back.
    receive.runs = &run;
    CHECK_OK(cadre_transport_receive(w.ranks[1], 0, &receive));
    assert_int_not_equal(drive_to_failure(w.ranks[1]), CADRE_OK);
    cadre_transport_wake(w.ranks[0]);
    close_all(&w);
}

static void abandoned_transfers_are_touched_by_nobody(void **state)
{
    (void)state;
    for_each_link(check_abandon);
}

static void take_or_lose(void *ctx)
{
    // Ends with the first frame, or with the loss of its sender.
    (void)cadre_transport_progress(ctx, cadre_deadline_in_ms(5000));
}

// Abandons a send while the other rank may be taking it; the memory is the
// sender's again at once, so what arrives is all old bytes or nothing.
static void abandoning_waits_for_a_copy_under_way(void **state)
{
    (void)state;
    enum { NBYTES = 4 << 20, N_ROUNDS = 30, STEP_NS = 50000 };
    char *from = cadre_alloc(NBYTES);
    char *to = cadre_alloc(NBYTES);
    cadre_run out = {from, NBYTES};
    cadre_run in = {to, NBYTES};
    for (int round = 0; round < N_ROUNDS; round++) {
        world w = open_all(LINK_INPROC, 2);
        cadre_thread thread = {0};
        cadre_transfer send = one_run(&out);
        cadre_transfer receive = one_run(&in);
        memset(from, 'a', NBYTES);
        CHECK_OK(cadre_transport_receive(w.ranks[1], 0, &receive));
        CHECK_OK(
            cadre_thread_start(&thread, "taker", take_or_lose, w.ranks[1]));
        CHECK_OK(cadre_transport_send(w.ranks[0], 1, &send));
        cadre_deadline moment = cadre_now_ns() + (int64_t)round * STEP_NS;
        while (cadre_now_ns() < moment) {
        }
        cadre_transport_abandon(w.ranks[0]);
        memset(from, 'b', NBYTES);
        cadre_transport_wake(w.ranks[1]);
        cadre_thread_join(&thread);
        assert_true(!receive.done || memchr(to, 'b', NBYTES) == NULL);
        close_all(&w);
    }
    cadre_free(from);
    cadre_free(to);
}

static void check_memory(rank_link link)
{
    for (int n = 0; n < 10; n++) {
        cadre_inproc_world *inproc = NULL;
        cadre_transport *t = NULL;
        int sockets[2 * 2];
        if (link != LINK_INPROC) {
            connect_all(link, 2, sockets);
        }
        cadre_alloc_fail_after(n);
        cadre_status status;
        if (link == LINK_INPROC) {
            status = cadre_inproc_world_create(2, &inproc);
            if (status == CADRE_OK) {
                status = cadre_inproc_open(inproc, 0, &t);
            }
        } else {
            status = open_link(link, 0, 2, 1, sockets, &t);
        }
        cadre_alloc_fail_after(-1);
        if (link != LINK_INPROC) {
            // The end of the other: closed sockets on this side are seen there.
            cadre_transport *peer = NULL;
            CHECK_OK(open_link(link, 1, 2, 1, &sockets[2], &peer));
            cadre_transport_close(peer);
        }
        cadre_transport_close(t);
        cadre_inproc_world_destroy(inproc);
        if (status == CADRE_OK) {
            assert_true(n > 0);
            return;
        }
        assert_int_equal(status, CADRE_ERR_NO_MEMORY);
    }
    fail_msg("it takes more than 10 allocations");
}

static void opening_survives_lack_of_memory(void **state)
{
    (void)state;
    for_each_link(check_memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(payloads_are_gathered_and_scattered),
        cmocka_unit_test(large_payloads_pass_each_other),
        cmocka_unit_test(frames_arrive_in_the_order_they_were_posted),
        cmocka_unit_test(frames_of_other_calls_are_never_written_to_memory),
        cmocka_unit_test(a_peer_that_has_left_is_lost_once_waited_for),
        cmocka_unit_test(a_peer_that_leaves_before_it_took_all_is_lost),
        cmocka_unit_test(a_deadline_is_no_error),
        cmocka_unit_test(a_sleeping_rank_can_be_woken),
        cmocka_unit_test(abandoned_transfers_are_touched_by_nobody),
        cmocka_unit_test(abandoning_waits_for_a_copy_under_way),
        cmocka_unit_test(opening_survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
