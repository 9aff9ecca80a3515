// SPDX-License-Identifier: Apache-2.0
//
// The world group of processes that meet at MASTER_ADDR: what its ranks
// disagree about, all are told alike.

#include "support/check.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "group/group.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_RANKS = 3, COUNT = 50000, LIMIT_S = 60 };

typedef struct outcome {
    cadre_status status;
    cadre_status later; // of the next call
    char text[CADRE_FAIL_TEXT_BYTES];
} outcome;

// A port of this host that nobody listens at.
static int free_port(void)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    socklen_t nbytes = sizeof(address);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(s >= 0);
    assert_int_equal(bind(s, (struct sockaddr *)&address, nbytes), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&address, &nbytes), 0);
    close(s);
    return ntohs(address.sin_port);
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", value);
    setenv(name, text, 1);
}

// What each rank asks for.
static const char *transports[N_RANKS];

typedef cadre_status (*act)(cadre_group *g, int rank);

static void be_rank(int rank, int port, act what, int result)
{
    outcome o = {CADRE_OK, CADRE_OK, ""};
    cadre_group *g = NULL;
    alarm(LIMIT_S);
    set_number("RANK", rank);
    set_number("WORLD_SIZE", N_RANKS);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("MASTER_PORT", port);
    o.status =
        cadre_init(&(cadre_init_options){.transport = transports[rank]}, &g);
    if (o.status == CADRE_OK) {
        o.status = what(g, rank);
    }
    snprintf(o.text, sizeof(o.text), "%s", cadre_error_text());
    // Others may have failed already while this rank was joining.
    o.later = g == NULL ? o.status : cadre_barrier(g, NULL);
    bool written = write(result, &o, sizeof(o)) == (ssize_t)sizeof(o);
    cadre_finalize(g);
    _exit(written ? 0 : 1);
}

static void run_world(act what, outcome outcomes[N_RANKS])
{
    int results[N_RANKS][2];
    pid_t pids[N_RANKS];
    int port = free_port();
    fflush(NULL); // else children print what is buffered once more
    for (int r = 0; r < N_RANKS; r++) {
        assert_int_equal(pipe(results[r]), 0);
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0) {
            be_rank(r, port, what, results[r][1]);
        }
    }
    for (int r = 0; r < N_RANKS; r++) {
        int status;
        close(results[r][1]);
        ssize_t got = read(results[r][0], &outcomes[r], sizeof(outcomes[r]));
        close(results[r][0]);
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_int_equal(status, 0);
        assert_int_equal(got, sizeof(outcomes[r]));
    }
}

static float memory[COUNT];

static cadre_status sum(cadre_group *g, int rank)
{
    for (int i = 0; i < COUNT; i++) {
        memory[i] = (float)(rank + i);
    }
    cadre_status status =
        cadre_allreduce(g, memory, memory, COUNT, CADRE_F32, CADRE_SUM, NULL);
    for (int i = 0; i < COUNT && status == CADRE_OK; i++) {
        if (memory[i] != (float)(3 * i + 3)) {
            status = CADRE_ERR_INTERNAL;
        }
    }
    return status;
}

static void ask_for(const char *a, const char *b, const char *c)
{
    transports[0] = a;
    transports[1] = b;
    transports[2] = c;
}

static void check_sum(act what)
{
    outcome outcomes[N_RANKS];
    run_world(what, outcomes);
    for (int r = 0; r < N_RANKS; r++) {
        if (outcomes[r].status != CADRE_OK) {
            fail_msg("rank %d: %s", r, outcomes[r].text);
        }
        assert_int_equal(outcomes[r].later, CADRE_OK);
    }
}

static const char *wanted_name;

static cadre_status name_and_sum(cadre_group *g, int rank)
{
    if (strcmp(cadre_transport_name(g), wanted_name) != 0) {
        return cadre_fail(
            CADRE_ERR_INTERNAL, "it is %s", cadre_transport_name(g));
    }
    return sum(g, rank);
}

static void processes_meet_and_sum(void **state)
{
    (void)state;
    wanted_name = "shm"; // they share a host
    check_sum(name_and_sum);
    ask_for("shm", "auto", NULL);
    check_sum(name_and_sum);
    wanted_name = "tcp";
    ask_for("auto", "tcp", NULL);
    check_sum(name_and_sum);
    ask_for(NULL, NULL, NULL);
}

static void check_alike(act what, cadre_status wanted, const char *words)
{
    outcome outcomes[N_RANKS];
    run_world(what, outcomes);
    for (int r = 0; r < N_RANKS; r++) {
        if (outcomes[r].status != wanted ||
            strstr(outcomes[r].text, words) == NULL) {
            fail_msg("rank %d: %s: %s", r,
                cadre_status_name(outcomes[r].status), outcomes[r].text);
        }
        assert_string_equal(outcomes[r].text, outcomes[0].text);
        assert_int_equal(outcomes[r].later, wanted);
    }
}

static cadre_status call_other_operation(cadre_group *g, int rank)
{
    if (rank == 1) {
        return cadre_broadcast(g, memory, 7, CADRE_U8, 2, NULL);
    }
    return cadre_allreduce(
        g, memory, memory, COUNT, CADRE_F32, CADRE_SUM, NULL);
}

static void other_operations_are_told(void **state)
{
    (void)state;
    check_alike(call_other_operation, CADRE_ERR_DESYNC,
        "called broadcast #1 of 7 u8 from root 2");
}

static cadre_status call_other_count(cadre_group *g, int rank)
{
    return cadre_allreduce(g, memory, memory, rank == 2 ? COUNT : COUNT / 2,
        CADRE_F32, CADRE_SUM, NULL);
}

static void other_counts_are_told(void **state)
{
    (void)state;
    check_alike(call_other_count, CADRE_ERR_DESYNC,
        "rank 2 called allreduce #1 of 50000 f32");
}

static cadre_status call_other_root(cadre_group *g, int rank)
{
    return cadre_broadcast(g, memory, 8, CADRE_F32, rank == 0 ? 1 : 2, NULL);
}

static void other_roots_are_told(void **state)
{
    (void)state;
    check_alike(call_other_root, CADRE_ERR_DESYNC,
        "rank 0 called broadcast #1 of 8 f32 from root 1");
}

static cadre_status give_up(cadre_group *g, int rank)
{
    if (rank == 1) {
        return cadre_group_fail(g, CADRE_ERR_ABORTED, "had enough");
    }
    return cadre_allreduce(
        g, memory, memory, COUNT, CADRE_F32, CADRE_SUM, NULL);
}

static void one_rank_can_break_the_group(void **state)
{
    (void)state;
    check_alike(give_up, CADRE_ERR_ABORTED, "had enough");
}

// It hears of the arenas of the others in its first collective only.
static cadre_status lack_memory(cadre_group *g, int rank)
{
    void *arena;
    CADRE_TRY(cadre_arena_alloc(g, COUNT * sizeof(float), &arena));
    if (rank == 1) {
        cadre_alloc_fail_after(0);
    }
    return cadre_allreduce(g, arena, arena, COUNT, CADRE_F32, CADRE_SUM, NULL);
}

// The group is broken, so the status must not say that it is whole.
static void a_lack_of_memory_on_the_way_is_told(void **state)
{
    (void)state;
    check_alike(lack_memory, CADRE_ERR_ABORTED, ": rank 1: ");
}

static void other_transports_are_told(void **state)
{
    (void)state;
    ask_for("auto", "shm", "tcp");
    check_alike(sum, CADRE_ERR_DESYNC, "wants transport 'shm', rank 2 ");
    ask_for(NULL, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_meet_and_sum),
        cmocka_unit_test(other_operations_are_told),
        cmocka_unit_test(other_counts_are_told),
        cmocka_unit_test(other_roots_are_told),
        cmocka_unit_test(other_transports_are_told),
        cmocka_unit_test(one_rank_can_break_the_group),
        cmocka_unit_test(a_lack_of_memory_on_the_way_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
