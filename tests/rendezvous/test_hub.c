// SPDX-License-Identifier: Apache-2.0
//
// The hub's decisions, event by event, on a clock that the test moves.

#include "support/check.h"

#include "base/fail.h"
#include "rendezvous/hub.h"
#include <signal.h>
#include <stdio.h>

enum { TIMEOUT_MS = 2000, PATIENCE_MS = 20000 };

static int64_t now;
static int n_ranks; // of the present hub

static cadre_hub *new_hub(int world_size, bool launched)
{
    cadre_hub *hub;
    now = 1000;
    n_ranks = world_size;
    CHECK_OK(cadre_hub_create(
        &(cadre_hub_options){.world_size = world_size, .launched = launched},
        &hub));
    for (int r = 0; launched && r < world_size; r++) {
        cadre_hub_started(hub, r, "a", 800 + r);
    }
    return hub;
}

// Of the ranks that join next, by rank; the rest is as rank 3.
static const char *machines[4] = {"", "", "", ""};
static cadre_link wishes[4];

static cadre_status join_as(cadre_hub *hub, int rank, int world_size, int pid)
{
    cadre_hub_join join = {.rank = rank,
        .world_size = world_size,
        .timeout_ms = TIMEOUT_MS,
        .patience_ms = PATIENCE_MS,
        .pid = pid,
        .host = "b"};
    snprintf(join.address, sizeof(join.address), "10.0.0.%d:1", rank);
    join.offer.wish = wishes[rank < 3 ? rank : 3];
    snprintf(join.offer.machine, CADRE_MACHINE_BYTES, "%s",
        machines[rank < 3 ? rank : 3]);
    snprintf(join.offer.local, CADRE_ADDRESS_BYTES, "unix:%d", rank);
    return cadre_hub_join_rank(hub, &join, now);
}

// The next action must be this one.
static void expect(cadre_hub *hub, cadre_hub_action wanted, int wanted_rank)
{
    int rank = -1;
    assert_int_equal(cadre_hub_next(hub, &rank), wanted);
    if (wanted == CADRE_HUB_RELEASE) {
        assert_int_equal(rank, wanted_rank);
    }
}

static cadre_hub *gathered_hub(int world_size, bool launched)
{
    cadre_hub *hub = new_hub(world_size, launched);
    for (int r = 0; r < world_size; r++) {
        expect(hub, CADRE_HUB_NOTHING, -1);
        CHECK_OK(join_as(hub, r, world_size, 700 + r));
    }
    expect(hub, CADRE_HUB_WELCOME, -1);
    expect(hub, CADRE_HUB_NOTHING, -1);
    return hub;
}

// Time passes in ticks; those whose bit is set give signs of life.
static void pass(cadre_hub *hub, int64_t ms, unsigned alive)
{
    for (int64_t end = now + ms; now < end;) {
        now += CADRE_HUB_TICK_MS;
        for (int r = 0; r < n_ranks && r < 8; r++) {
            if ((alive >> r & 1) != 0) {
                cadre_hub_alive(hub, r);
            }
        }
        cadre_hub_tick(hub, now);
    }
}

enum { ALL = 0xf };

static void expect_verdict(
    cadre_hub *hub, cadre_status status, int rank, const char *text)
{
    expect(hub, CADRE_HUB_VERDICT, -1);
    const cadre_verdict *v = cadre_hub_verdict(hub);
    assert_int_equal(v->status, status);
    assert_int_equal(v->rank, rank);
    assert_string_equal(v->text, text);
}

static void expect_no_verdict(cadre_hub *hub)
{
    expect(hub, CADRE_HUB_NOTHING, -1);
    assert_int_equal(cadre_hub_verdict(hub)->status, CADRE_OK);
}

static void end_with(cadre_hub *hub, int rank, int exit_status, int signal)
{
    (void)cadre_hub_ended(hub, rank,
        &(cadre_ending){.exit_status = exit_status, .signal = signal});
}

static void welcomes_when_all_have_joined(void **state)
{
    (void)state;
    cadre_hub *hub = new_hub(3, false);
    CHECK_OK(join_as(hub, 2, 3, 7));
    CHECK_OK(join_as(hub, 0, 3, 8));
    expect(hub, CADRE_HUB_NOTHING, -1);
    CHECK_OK(join_as(hub, 1, 3, 9));
    expect(hub, CADRE_HUB_WELCOME, -1);
    assert_string_equal(cadre_hub_address(hub, 2), "10.0.0.2:1");
    expect_no_verdict(hub);
    cadre_hub_destroy(hub);
}

// All four join; *hub has decided.
static cadre_hub *join_four(bool launched, const char *names, const char *want)
{
    static char texts[4][2];
    cadre_hub *hub = new_hub(4, launched);
    for (int r = 0; r < 4; r++) {
        texts[r][0] = names[r];
        if (names[r] == '-') {
            texts[r][0] = '\0';
        }
        machines[r] = texts[r];
        wishes[r] = want[r] == 's'   ? CADRE_LINK_SHM
                    : want[r] == 't' ? CADRE_LINK_TCP
                                     : CADRE_LINK_AUTO;
        CHECK_OK(join_as(hub, r, 4, 700 + r));
    }
    for (int r = 0; r < 4; r++) {
        machines[r] = "";
        wishes[r] = CADRE_LINK_AUTO;
    }
    return hub;
}

static void expect_link(
    bool launched, const char *names, const char *want, cadre_link link)
{
    cadre_hub *hub = join_four(launched, names, want);
    expect(hub, CADRE_HUB_WELCOME, -1);
    assert_int_equal(cadre_hub_link(hub), link);
    assert_string_equal(cadre_hub_address(hub, 2),
        link == CADRE_LINK_SHM ? "unix:2" : "10.0.0.2:1");
    expect_no_verdict(hub);
    cadre_hub_destroy(hub);
}

static void chooses_what_connects_all(void **state)
{
    (void)state;
    expect_link(false, "mmmm", "....", CADRE_LINK_SHM);
    expect_link(false, "mmmm", "..s.", CADRE_LINK_SHM);
    expect_link(false, "mmmm", ".t..", CADRE_LINK_TCP);
    expect_link(false, "mmmn", "....", CADRE_LINK_TCP);
    expect_link(false, "mmmn", "tttt", CADRE_LINK_TCP);
    expect_link(false, "mm-m", "....", CADRE_LINK_TCP);
    expect_link(false, "----", "....", CADRE_LINK_TCP); // nobody knows
    // A launcher's sockets are proof enough.
    expect_link(true, "m-no", "....", CADRE_LINK_SHM);
    expect_link(true, "----", "t...", CADRE_LINK_TCP);
}

static void tells_all_that_nothing_connects_them(void **state)
{
    (void)state;
    cadre_hub *hub = join_four(false, "mmno", ".s..");
    expect_verdict(hub, CADRE_ERR_UNSUPPORTED, -1,
        "transport 'shm' is wanted, but rank 0 (host b, pid 700) and rank 2 "
        "(host b, pid 702) do not run on one host as one user: choose 'tcp' or "
        "'auto'");
    cadre_hub_destroy(hub);
    hub = join_four(true, "mmmm", ".s.t");
    expect_verdict(hub, CADRE_ERR_DESYNC, -1,
        "ranks disagree: rank 1 (host a, pid 801) wants transport 'shm', "
        "rank 3 (host a, pid 803) wants 'tcp'");
    cadre_hub_destroy(hub);
}

static void refuses_strangers_and_goes_on(void **state)
{
    (void)state;
    cadre_hub *hub = new_hub(2, false);
    CHECK_OK(join_as(hub, 1, 2, 7));
    CHECK_FAILS(join_as(hub, 1, 2, 9), CADRE_ERR_DESYNC,
        "host b, pid 9 wants to be rank 1, but there is rank 1 (host b, pid 7) "
        "already");
    CHECK_FAILS(join_as(hub, 0, 3, 9), CADRE_ERR_DESYNC,
        "rank 0 of 3 (host b, pid 9) does not belong to this job of 2 ranks");
    CHECK_FAILS(join_as(hub, 2, 2, 9), CADRE_ERR_DESYNC, "does not belong");
    CHECK_OK(join_as(hub, 0, 2, 8));
    expect(hub, CADRE_HUB_WELCOME, -1);
    CHECK_FAILS(join_as(hub, 0, 2, 9), CADRE_ERR_DESYNC, "already");
    expect_no_verdict(hub);
    cadre_hub_destroy(hub);
}

static void names_those_who_did_not_come(void **state)
{
    (void)state;
    cadre_hub *hub = new_hub(4, false);
    CHECK_OK(join_as(hub, 1, 4, 7));
    pass(hub, PATIENCE_MS - 100, ALL);
    CHECK_OK(join_as(hub, 3, 4, 7));
    expect_no_verdict(hub);
    pass(hub, 200, ALL);
    expect_verdict(hub, CADRE_ERR_TIMEOUT, 0,
        "ranks 0, 2 did not join in time: 2 of 4 ranks came");
    CHECK_FAILS(join_as(hub, 0, 4, 7), CADRE_ERR_TIMEOUT, "ranks 0, 2");
    cadre_hub_destroy(hub);
}

static void remembers_whom_it_refused_when_one_is_missing(void **state)
{
    (void)state;
    cadre_hub *hub = new_hub(2, false);
    CHECK_OK(join_as(hub, 0, 2, 7));
    CHECK_FAILS(join_as(hub, 1, 3, 9), CADRE_ERR_DESYNC, "of 3");
    pass(hub, PATIENCE_MS, ALL);
    expect_verdict(hub, CADRE_ERR_TIMEOUT, 1,
        "rank 1 did not join in time: 1 of 2 ranks came; refused: rank 1 of 3 "
        "(host b, pid 9) does not belong to this job of 2 ranks");
    cadre_hub_destroy(hub);
}

// Of another world size, or a rank that is taken.
static void waits_less_for_others_after_a_refusal(void **state)
{
    (void)state;
    for (int taken = 0; taken < 2; taken++) {
        cadre_hub *hub = new_hub(3, false);
        CHECK_OK(join_as(hub, 0, 3, 7));
        pass(hub, TIMEOUT_MS, ALL);
        CHECK_FAILS(join_as(hub, 1 - taken, 4 - taken, 9), CADRE_ERR_DESYNC,
            taken ? "already" : "does not belong");
        pass(hub, TIMEOUT_MS - 100, ALL);
        CHECK_OK(join_as(hub, 2, 3, 8)); // the wait begins anew
        pass(hub, TIMEOUT_MS - 100, ALL);
        (void)!join_as(hub, 1 - taken, 4 - taken, 9); // but not for this
        expect_no_verdict(hub);
        pass(hub, 200, ALL);
        expect(hub, CADRE_HUB_VERDICT, -1);
        const cadre_verdict *v = cadre_hub_verdict(hub);
        assert_int_equal(v->status, CADRE_ERR_TIMEOUT);
        assert_int_equal(v->rank, 1);
        assert_non_null(strstr(v->text,
            "rank 1 did not join in time: 2 of 3 ranks came; refused: "));
        cadre_hub_destroy(hub);
    }
}

static void goes_on_if_all_come_after_a_refusal(void **state)
{
    (void)state;
    cadre_hub *hub = new_hub(2, false);
    CHECK_FAILS(join_as(hub, 1, 3, 9), CADRE_ERR_DESYNC, "of 3");
    pass(hub, 2 * TIMEOUT_MS, 0); // there is nobody who could wait
    CHECK_OK(join_as(hub, 0, 2, 7));
    pass(hub, TIMEOUT_MS - 100, ALL);
    CHECK_OK(join_as(hub, 1, 2, 8));
    expect(hub, CADRE_HUB_WELCOME, -1);
    pass(hub, 3 * PATIENCE_MS, ALL);
    expect_no_verdict(hub);
    cadre_hub_destroy(hub);
}

static void shortens_a_long_list_of_missing_ranks(void **state)
{
    (void)state;
    cadre_hub *hub = new_hub(100, false);
    CHECK_OK(join_as(hub, 0, 100, 7));
    pass(hub, PATIENCE_MS, ALL);
    expect_verdict(hub, CADRE_ERR_TIMEOUT, 1,
        "ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 83 "
        "more did not join in time: 1 of 100 ranks came");
    cadre_hub_destroy(hub);
}

static void says_how_a_rank_died(void **state)
{
    (void)state;
    cadre_hub *hub = gathered_hub(4, true);
    end_with(hub, 3, 0, SIGKILL);
    expect_verdict(hub, CADRE_ERR_PEER_LOST, 3,
        "rank 3 (host a, pid 803) died: killed by SIGKILL");
    end_with(hub, 1, 3, 0); // a consequence
    expect(hub, CADRE_HUB_NOTHING, -1);
    assert_int_equal(cadre_hub_verdict(hub)->rank, 3);
    cadre_hub_destroy(hub);

    hub = gathered_hub(2, true);
    end_with(hub, 0, 9, 0);
    expect_verdict(hub, CADRE_ERR_PEER_LOST, 0,
        "rank 0 (host a, pid 800) exited with status 9");
    cadre_hub_destroy(hub);
}

static void waits_for_the_cause_of_a_hang_up(void **state)
{
    (void)state;
    cadre_hub *hub = gathered_hub(4, true);
    cadre_hub_hangup(hub, 2, now);
    cadre_hub_report(hub, 1, CADRE_ERR_PEER_LOST, 2, "allreduce #4", now);
    expect_no_verdict(hub);
    pass(hub, CADRE_HUB_TICK_MS, ALL);
    expect_no_verdict(hub);
    end_with(hub, 2, 0, SIGSEGV);
    expect_verdict(hub, CADRE_ERR_PEER_LOST, 2,
        "rank 2 (host a, pid 802) died: killed by SIGSEGV");
    cadre_hub_destroy(hub);
}

static void tells_the_cause_from_a_consequence(void **state)
{
    (void)state;
    cadre_hub *hub = gathered_hub(4, true);
    // 1 lost 2, since 2 broke off when 3 died; the news of 3 comes last.
    cadre_hub_report(hub, 1, CADRE_ERR_PEER_LOST, 2, "lost", now);
    pass(hub, CADRE_HUB_TICK_MS, ALL);
    end_with(hub, 3, 0, SIGABRT);
    expect_verdict(hub, CADRE_ERR_PEER_LOST, 3,
        "rank 3 (host a, pid 803) died: killed by SIGABRT");
    pass(hub, 1000, ALL);
    expect(hub, CADRE_HUB_NOTHING, -1);
    cadre_hub_destroy(hub);
}

static void pronounces_when_no_ending_is_known(void **state)
{
    (void)state;
    cadre_hub *hub = gathered_hub(4, true);
    cadre_hub_report(
        hub, 1, CADRE_ERR_PEER_LOST, 2, "allreduce #4: reset", now);
    pass(hub, CADRE_HUB_EXIT_NOTICE_MS + CADRE_HUB_TICK_MS, ALL);
    expect_verdict(hub, CADRE_ERR_PEER_LOST, 2,
        "connection to rank 2 (host a, pid 802) lost (rank 1: allreduce #4: "
        "reset)");
    cadre_hub_destroy(hub);
}

static void does_not_wait_without_a_launcher(void **state)
{
    (void)state;
    cadre_hub *hub = gathered_hub(3, false);
    cadre_hub_hangup(hub, 2, now);
    expect_verdict(hub, CADRE_ERR_PEER_LOST, 2,
        "connection to rank 2 (host b, pid 702) lost");
    cadre_hub_destroy(hub);

    hub = gathered_hub(3, false);
    cadre_hub_report(hub, 0, CADRE_ERR_PEER_LOST, 1, "barrier #2", now);
    expect_verdict(hub, CADRE_ERR_PEER_LOST, 1,
        "connection to rank 1 (host b, pid 701) lost (rank 0: barrier #2)");
    cadre_hub_destroy(hub);
}

static void takes_a_report_without_a_suspect_as_it_is(void **state)
{
    (void)state;
    cadre_hub *hub = gathered_hub(3, true);
    cadre_hub_report(hub, 1, CADRE_ERR_DESYNC, -1, "ranks disagree", now);
    expect_verdict(hub, CADRE_ERR_DESYNC, -1, "ranks disagree");
    cadre_hub_report(hub, 2, CADRE_ERR_DESYNC, -1, "ranks differ", now);
    end_with(hub, 1, 3, 0);
    expect(hub, CADRE_HUB_NOTHING, -1);
    assert_string_equal(cadre_hub_verdict(hub)->text, "ranks disagree");
    cadre_hub_destroy(hub);
}

static void takes_a_suspect_that_cannot_be_for_none(void **state)
{
    (void)state;
    static const int suspects[] = {-5, 3, 4096, 1};
    for (int i = 0; i < 4; i++) {
        cadre_hub *hub = gathered_hub(3, false);
        cadre_hub_report(
            hub, 1, CADRE_ERR_TIMEOUT, suspects[i], "no answer", now);
        expect_verdict(hub, CADRE_ERR_TIMEOUT, -1, "no answer");
        cadre_hub_destroy(hub);
    }
}

static void lets_ranks_leave_one_after_the_other(void **state)
{
    (void)state;
    for (int launched = 0; launched < 2; launched++) {
        cadre_hub *hub = gathered_hub(3, launched == 1);
        for (int r = 2; r >= 0; r--) {
            assert_false(cadre_hub_is_empty(hub));
            cadre_hub_goodbye(hub, r, now);
            expect(hub, CADRE_HUB_RELEASE, r);
            cadre_hub_hangup(hub, r, now);
            if (launched == 1) {
                end_with(hub, r, 0, 0);
            }
            pass(hub, 3 * TIMEOUT_MS, (1u << r) - 1);
            expect_no_verdict(hub);
        }
        assert_true(cadre_hub_is_empty(hub));
        cadre_hub_destroy(hub);
    }
}

static void blames_a_rank_that_left_too_early(void **state)
{
    (void)state;
    // It is missed before its end is known, and after.
    for (int known = 0; known < 2; known++) {
        cadre_hub *hub = gathered_hub(3, true);
        cadre_hub_goodbye(hub, 2, now);
        expect(hub, CADRE_HUB_RELEASE, 2);
        if (known == 1) {
            end_with(hub, 2, 0, 0);
        }
        cadre_hub_report(hub, 0, CADRE_ERR_PEER_LOST, 2, "lost", now);
        if (known == 0) {
            expect_no_verdict(hub);
            end_with(hub, 2, 0, 0);
        }
        expect_verdict(hub, CADRE_ERR_PEER_LOST, 2,
            "rank 2 (host a, pid 802) finished (exit status 0) while others "
            "still communicate with it");
        cadre_hub_destroy(hub);
    }
    cadre_hub *hub = gathered_hub(3, false);
    cadre_hub_goodbye(hub, 2, now);
    expect(hub, CADRE_HUB_RELEASE, 2);
    cadre_hub_report(hub, 0, CADRE_ERR_PEER_LOST, 2, "lost", now);
    expect_verdict(hub, CADRE_ERR_PEER_LOST, 2,
        "rank 2 (host b, pid 702) finished while others still communicate with "
        "it");
    cadre_hub_destroy(hub);
}

static void does_not_mind_a_good_end_without_goodbye(void **state)
{
    (void)state;
    cadre_hub *hub = gathered_hub(2, true);
    cadre_hub_hangup(hub, 1, now);
    end_with(hub, 1, 0, 0);
    pass(hub, 3 * TIMEOUT_MS, 1);
    expect_no_verdict(hub);
    cadre_hub_report(hub, 0, CADRE_ERR_PEER_LOST, 1, "lost", now);
    expect_verdict(hub, CADRE_ERR_PEER_LOST, 1,
        "rank 1 (host a, pid 801) finished (exit status 0) while others still "
        "communicate with it");
    cadre_hub_destroy(hub);
}

static void does_not_mind_an_end_that_was_asked_for(void **state)
{
    (void)state;
    cadre_hub *hub = gathered_hub(2, true);
    cadre_hub_goodbye(hub, 1, now);
    expect(hub, CADRE_HUB_RELEASE, 1);
    assert_true(cadre_hub_ended(
        hub, 1, &(cadre_ending){.exit_status = 130, .asked = true}));
    expect_no_verdict(hub);
    assert_true(cadre_hub_ended(
        hub, 0, &(cadre_ending){.signal = SIGINT, .asked = true}));
    expect_no_verdict(hub);
    cadre_hub_destroy(hub);
}

// A signal that somebody else sent: once it has taken its leave, that is well.
static void does_not_mind_a_stop_after_a_goodbye(void **state)
{
    (void)state;
    cadre_hub *hub = gathered_hub(4, true);
    for (int r = 0; r < 2; r++) {
        cadre_hub_goodbye(hub, r, now);
        expect(hub, CADRE_HUB_RELEASE, r);
        assert_true(cadre_hub_ended(
            hub, r, &(cadre_ending){.exit_status = 130 + 13 * r}));
        expect_no_verdict(hub);
    }
    cadre_hub_goodbye(hub, 2, now);
    expect(hub, CADRE_HUB_RELEASE, 2);
    assert_false(cadre_hub_ended(hub, 2, &(cadre_ending){.exit_status = 3}));
    expect_verdict(hub, CADRE_ERR_PEER_LOST, 2,
        "rank 2 (host a, pid 802) exited with status 3");
    cadre_hub_destroy(hub);

    hub = gathered_hub(2, true); // without a goodbye
    assert_false(cadre_hub_ended(hub, 1, &(cadre_ending){.exit_status = 143}));
    expect_verdict(hub, CADRE_ERR_PEER_LOST, 1,
        "rank 1 (host a, pid 801) exited with status 143");
    cadre_hub_destroy(hub);
}

static void does_not_mind_programs_that_never_join(void **state)
{
    (void)state;
    cadre_hub *hub = new_hub(2, true);
    cadre_hub_hangup(hub, 0, now);
    end_with(hub, 0, 0, 0);
    end_with(hub, 1, 0, 0);
    pass(hub, 2 * PATIENCE_MS, 0);
    expect_no_verdict(hub);
    cadre_hub_destroy(hub);
}

static void blames_who_ended_while_the_others_gather(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        cadre_hub *hub = new_hub(3, true);
        if (order == 0) {
            CHECK_OK(join_as(hub, 0, 3, 7));
            end_with(hub, 2, 0, 0);
        } else {
            end_with(hub, 2, 0, 0);
            CHECK_OK(join_as(hub, 0, 3, 7));
        }
        expect_verdict(hub, CADRE_ERR_PEER_LOST, 2,
            "rank 2 (host a, pid 802) finished (exit status 0) without joining "
            "the others");
        cadre_hub_destroy(hub);
    }
}

static void accuses_the_silent(void **state)
{
    (void)state;
    cadre_hub *hub = gathered_hub(4, true);
    pass(hub, TIMEOUT_MS - 2 * CADRE_HUB_TICK_MS, ALL & ~4u);
    expect_no_verdict(hub);
    pass(hub, 4 * CADRE_HUB_TICK_MS, ALL & ~4u);
    expect_verdict(hub, CADRE_ERR_PEER_LOST, 2,
        "rank 2 (host a, pid 802) gave no sign of life for 2000 ms");
    cadre_hub_destroy(hub);
}

static void accuses_nobody_after_its_own_sleep(void **state)
{
    (void)state;
    cadre_hub *hub = gathered_hub(4, true);
    pass(hub, TIMEOUT_MS / 2, 0);
    now += 60000; // the hub itself was stopped
    cadre_hub_tick(hub, now);
    expect_no_verdict(hub);
    pass(hub, TIMEOUT_MS / 4, ALL);
    pass(hub, TIMEOUT_MS / 2, 0);
    expect_no_verdict(hub);
    cadre_hub_destroy(hub);
}

static void keeps_to_the_limit_of_the_job(void **state)
{
    (void)state;
    cadre_hub *hub;
    now = 1000;
    n_ranks = 2;
    CHECK_OK(cadre_hub_create(
        &(cadre_hub_options){.world_size = 2, .timeout_ms = 400}, &hub));
    CHECK_OK(join_as(hub, 0, 2, 7));
    pass(hub, 800, 0); // its own limit still holds
    expect_no_verdict(hub);
    CHECK_OK(join_as(hub, 1, 2, 8));
    expect(hub, CADRE_HUB_WELCOME, -1);
    assert_int_equal(cadre_hub_job_timeout_ms(hub), 400);
    pass(hub, 350, 2);
    expect_no_verdict(hub);
    pass(hub, 150, 2);
    expect_verdict(hub, CADRE_ERR_PEER_LOST, 0,
        "rank 0 (host b, pid 7) gave no sign of life for 400 ms");
    cadre_hub_destroy(hub);
}

// Whatever comes in whatever order: at most one verdict, one welcome, and one
// release of each rank, and nothing that an assertion or a sanitizer minds.
static void survives_random_events(void **state)
{
    (void)state;
    uint32_t random = 2463534242u;
    for (int round = 0; round < 2000; round++) {
        enum { N = 4 };
        cadre_hub *hub = new_hub(N, round % 2 == 0);
        int n_verdicts = 0;
        int released[N] = {0};
        for (int i = 0; i < 40; i++) {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            int rank = (int)(random >> 8 & 3);
            int other = (int)(random >> 10 & 7) - 2;
            switch (random >> 16 & 7) {
            case 0:
            case 1:
                (void)!join_as(hub, rank, N, 7);
                break;
            case 2:
                cadre_hub_report(
                    hub, rank, CADRE_ERR_PEER_LOST, other, "lost", now);
                break;
            case 3:
                cadre_hub_goodbye(hub, rank, now);
                break;
            case 4:
                cadre_hub_hangup(hub, rank, now);
                break;
            case 5:
                end_with(hub, rank, other == 1, other == 2 ? SIGKILL : 0);
                break;
            default:
                pass(hub, 40 * (int64_t)(random >> 24), random >> 12 & ALL);
                break;
            }
            int whom;
            cadre_hub_action action;
            while ((action = cadre_hub_next(hub, &whom)) != CADRE_HUB_NOTHING) {
                n_verdicts += action == CADRE_HUB_VERDICT;
                if (action == CADRE_HUB_RELEASE) {
                    released[whom]++;
                    assert_int_equal(released[whom], 1);
                }
            }
            assert_true(n_verdicts <= 1);
            assert_int_equal(
                n_verdicts == 1, cadre_hub_verdict(hub)->status != CADRE_OK);
        }
        cadre_hub_destroy(hub);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(welcomes_when_all_have_joined),
        cmocka_unit_test(chooses_what_connects_all),
        cmocka_unit_test(tells_all_that_nothing_connects_them),
        cmocka_unit_test(refuses_strangers_and_goes_on),
        cmocka_unit_test(names_those_who_did_not_come),
        cmocka_unit_test(remembers_whom_it_refused_when_one_is_missing),
        cmocka_unit_test(waits_less_for_others_after_a_refusal),
        cmocka_unit_test(goes_on_if_all_come_after_a_refusal),
        cmocka_unit_test(shortens_a_long_list_of_missing_ranks),
        cmocka_unit_test(says_how_a_rank_died),
        cmocka_unit_test(waits_for_the_cause_of_a_hang_up),
        cmocka_unit_test(tells_the_cause_from_a_consequence),
        cmocka_unit_test(pronounces_when_no_ending_is_known),
        cmocka_unit_test(does_not_wait_without_a_launcher),
        cmocka_unit_test(takes_a_report_without_a_suspect_as_it_is),
        cmocka_unit_test(takes_a_suspect_that_cannot_be_for_none),
        cmocka_unit_test(lets_ranks_leave_one_after_the_other),
        cmocka_unit_test(blames_a_rank_that_left_too_early),
        cmocka_unit_test(does_not_mind_a_good_end_without_goodbye),
        cmocka_unit_test(does_not_mind_an_end_that_was_asked_for),
        cmocka_unit_test(does_not_mind_a_stop_after_a_goodbye),
        cmocka_unit_test(does_not_mind_programs_that_never_join),
        cmocka_unit_test(blames_who_ended_while_the_others_gather),
        cmocka_unit_test(accuses_the_silent),
        cmocka_unit_test(accuses_nobody_after_its_own_sleep),
        cmocka_unit_test(keeps_to_the_limit_of_the_job),
        cmocka_unit_test(survives_random_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
