// SPDX-License-Identifier: Apache-2.0
//
// Ranks that disagree, leave or stay silent: every rank gets the same first
// cause, soon, and the group stays broken.

#include "support/check.h"
#include "support/ranks.h"

#include "base/alloc.h"
#include "base/clock.h"
#include <stdatomic.h>
#include <stdio.h>

enum { MAX_RANKS = 5, COUNT = 100000 };

typedef struct outcome {
    cadre_status status;
    char text[CADRE_FAIL_TEXT_BYTES];
} outcome;

typedef struct scene {
    // What each rank does; it returns the status of the call that failed.
    cadre_status (*act)(cadre_group *g, int odd, float *memory);
    int odd; // the rank that does otherwise
    outcome outcomes[MAX_RANKS];
    outcome later[MAX_RANKS]; // of a barrier after the failure
    atomic_int n_ended;
} scene;

static void keep(outcome *o, cadre_status status)
{
    o->status = status;
    snprintf(o->text, sizeof(o->text), "%s", cadre_error_text());
}

static void play(cadre_group *g, void *ctx)
{
    scene *s = ctx;
    int rank = cadre_rank(g);
    float *memory = cadre_alloc_array(COUNT, sizeof(*memory));
    RANK_CHECK(memory != NULL);
    // Others may have failed already while this rank is still in here.
    cadre_status status = cadre_barrier(g, NULL);
    if (status == CADRE_OK) {
        status = s->act(g, s->odd, memory);
    }
    keep(&s->outcomes[rank], status);
    // A broken group has let go of the memory, whatever others still do.
    cadre_free(memory);
    keep(&s->later[rank], cadre_barrier(g, NULL));
    atomic_fetch_add(&s->n_ended, 1);
}

// Runs the scene on n ranks over all links, with each rank as the odd one; all
// must get this status and texts with these words.
static void check_scene(int n, int timeout_ms,
    cadre_status (*act)(cadre_group *, int, float *), cadre_status wanted,
    const char *words, const char *more_words)
{
    for (int link = 0; link < N_LINKS; link++) {
        for (int odd = 0; odd < n; odd++) {
            scene s = {.act = act, .odd = odd};
            run_as_threads((rank_link)link, n, timeout_ms, play, &s);
            for (int r = 0; r < n; r++) {
                const outcome *o = &s.outcomes[r];
                if (o->status != wanted) {
                    fail_msg("link %d, odd %d: rank %d has %s: %s", link, odd,
                        r, cadre_status_name(o->status), o->text);
                }
                assert_string_equal(o->text, s.outcomes[0].text);
                assert_int_equal(s.later[r].status, wanted);
                assert_string_equal(s.later[r].text, o->text);
            }
            const char *text = s.outcomes[0].text;
            if (strstr(text, words) == NULL ||
                strstr(text, more_words) == NULL) {
                fail_msg("'%s' or '%s' is not in: %s", words, more_words, text);
            }
        }
    }
}

static cadre_status call_other_operation(cadre_group *g, int odd, float *m)
{
    if (cadre_rank(g) == odd) {
        return cadre_broadcast(g, m, 7, CADRE_U8, 0, NULL);
    }
    return cadre_allreduce(g, m, m, COUNT, CADRE_F32, CADRE_SUM, NULL);
}

static void other_operations_are_told(void **state)
{
    (void)state;
    check_scene(4, 0, call_other_operation, CADRE_ERR_DESYNC,
        "called allreduce #2 of 100000 f32",
        "called broadcast #2 of 7 u8 from root 0");
    check_scene(2, 0, call_other_operation, CADRE_ERR_DESYNC,
        "ranks disagree: rank 0 called ", ", rank 1 called ");
}

static cadre_status call_other_count(cadre_group *g, int odd, float *m)
{
    size_t count = cadre_rank(g) == odd ? COUNT - 1 : COUNT;
    return cadre_allreduce(g, m, m, count, CADRE_F32, CADRE_SUM, NULL);
}

static void other_counts_are_told(void **state)
{
    (void)state;
    check_scene(3, 0, call_other_count, CADRE_ERR_DESYNC,
        "allreduce #2 of 100000 f32", "allreduce #2 of 99999 f32");
}

static cadre_status call_other_type(cadre_group *g, int odd, float *m)
{
    cadre_dtype dtype = cadre_rank(g) == odd ? CADRE_I64 : CADRE_F64;
    return cadre_allreduce(g, m, m, 10, dtype, CADRE_SUM, NULL);
}

static cadre_status call_other_narrow_type(cadre_group *g, int odd, float *m)
{
    cadre_dtype dtype = cadre_rank(g) == odd ? CADRE_F16 : CADRE_BF16;
    return cadre_allreduce(g, m, m, 10, dtype, CADRE_SUM, NULL);
}

static void other_types_are_told(void **state)
{
    (void)state;
    check_scene(3, 0, call_other_type, CADRE_ERR_DESYNC,
        "allreduce #2 of 10 f64", "allreduce #2 of 10 i64");
    check_scene(2, 0, call_other_narrow_type, CADRE_ERR_DESYNC,
        "allreduce #2 of 10 bf16", "allreduce #2 of 10 f16");
}

static cadre_status call_other_reduction(cadre_group *g, int odd, float *m)
{
    cadre_reduce_op op = cadre_rank(g) == odd ? CADRE_MAX : CADRE_MEAN;
    return cadre_allreduce(g, m, m, 10, CADRE_F32, op, NULL);
}

static cadre_status scatter_other_reduction(cadre_group *g, int odd, float *m)
{
    const size_t counts[] = {4, 4, 4};
    cadre_reduce_op op = cadre_rank(g) == odd ? CADRE_PRODUCT : CADRE_SUM;
    return cadre_reduce_scatter(g, m, m, counts, CADRE_BF16, op, NULL);
}

static void other_reductions_are_told(void **state)
{
    (void)state;
    check_scene(3, 0, call_other_reduction, CADRE_ERR_DESYNC,
        "allreduce #2 of 10 f32 (mean)", "allreduce #2 of 10 f32 (max)");
    check_scene(3, 0, scatter_other_reduction, CADRE_ERR_DESYNC,
        "reduce_scatter #2 of 12 bf16 (sum, parts ",
        "reduce_scatter #2 of 12 bf16 (product, parts ");
}

static cadre_status call_other_root(cadre_group *g, int odd, float *m)
{
    int root = cadre_rank(g) == odd ? 1 : 2;
    return cadre_broadcast(g, m, 10, CADRE_F32, root, NULL);
}

static void other_roots_are_told(void **state)
{
    (void)state;
    check_scene(5, 0, call_other_root, CADRE_ERR_DESYNC,
        "broadcast #2 of 10 f32 from root 1",
        "broadcast #2 of 10 f32 from root 2");
}

static cadre_status call_other_parts(cadre_group *g, int odd, float *m)
{
    size_t counts[] = {4, 4, 4};
    if (cadre_rank(g) == odd) {
        counts[0] = 3;
        counts[2] = 5;
    }
    return cadre_allgather(
        g, m + 4 * cadre_rank(g), m + COUNT / 2, counts, CADRE_F32, NULL);
}

static void other_parts_are_told(void **state)
{
    (void)state;
    check_scene(3, 0, call_other_parts, CADRE_ERR_DESYNC,
        "allgather #2 of 12 f32 (parts ", "ranks disagree");
}

static cadre_status call_once_too_few(cadre_group *g, int odd, float *m)
{
    if (cadre_rank(g) != odd) {
        cadre_status status = cadre_barrier(g, NULL);
        if (status != CADRE_OK) {
            return status;
        }
    }
    return cadre_allreduce(g, m, m, 10, CADRE_F32, CADRE_SUM, NULL);
}

static void a_call_left_out_is_told(void **state)
{
    (void)state;
    check_scene(4, 0, call_once_too_few, CADRE_ERR_DESYNC, "called barrier #2",
        "called allreduce #2 of 10 f32");
}

// The odd rank breaks the group while the others communicate.
static cadre_status give_up(cadre_group *g, int odd, float *m)
{
    if (cadre_rank(g) == odd) {
        return cadre_group_fail(g, CADRE_ERR_ABORTED, "had enough");
    }
    return cadre_allreduce(g, m, m, COUNT, CADRE_F32, CADRE_SUM, NULL);
}

static void one_rank_can_break_the_group(void **state)
{
    (void)state;
    check_scene(4, 0, give_up, CADRE_ERR_ABORTED, "had enough", "");
}

static cadre_status wait_briefly(cadre_group *g, int odd, float *m)
{
    cadre_work *work = NULL;
    if (cadre_rank(g) == odd) {
        // Silent until the others have given up.
        cadre_status status;
        do {
            status = cadre_group_progress(g);
        } while (status == CADRE_OK);
        return status;
    }
    cadre_status status =
        cadre_allreduce(g, m, m, COUNT, CADRE_F32, CADRE_SUM, &work);
    return status == CADRE_OK ? cadre_work_wait(work, 30) : status;
}

static void waiting_ends_and_names_who_is_missing(void **state)
{
    (void)state;
    for (int link = 0; link < N_LINKS; link++) {
        scene s = {.act = wait_briefly, .odd = 1};
        run_as_threads((rank_link)link, 2, 0, play, &s);
        assert_int_equal(s.outcomes[0].status, CADRE_ERR_TIMEOUT);
        assert_string_equal(s.outcomes[0].text,
            "allreduce #2 of 100000 f32 (sum): waited 30 ms for rank 1");
    }
    // On a busy host ranks that are only slow are waited for as well.
    check_scene(3, 0, wait_briefly, CADRE_ERR_TIMEOUT,
        "allreduce #2 of 100000 f32 (sum): waited 30 ms for rank", "");
}

static cadre_status wait_for_the_groups_limit(cadre_group *g, int odd, float *m)
{
    if (cadre_rank(g) == odd) {
        return wait_briefly(g, odd, m);
    }
    return cadre_allreduce(g, m, m, COUNT, CADRE_F32, CADRE_SUM, NULL);
}

static void an_operation_may_last_ten_times_the_timeout(void **state)
{
    (void)state;
    check_scene(2, 4, wait_for_the_groups_limit, CADRE_ERR_TIMEOUT,
        "waited 40 ms for rank ", "");
}

// The odd rank leaves; the others find out in the middle of a collective.
static void leave_or_reduce(cadre_group *g, void *ctx)
{
    scene *s = ctx;
    int rank = cadre_rank(g);
    cadre_status status = cadre_barrier(g, NULL);
    if (rank == s->odd) {
        return;
    }
    float *memory = cadre_alloc_array(COUNT, sizeof(*memory));
    RANK_CHECK(memory != NULL);
    if (status == CADRE_OK) {
        status = cadre_allreduce(
            g, memory, memory, COUNT, CADRE_F32, CADRE_SUM, NULL);
    }
    keep(&s->outcomes[rank], status);
    cadre_free(memory);
    keep(&s->later[rank], cadre_barrier(g, NULL));
}

static void a_rank_that_leaves_is_named(void **state)
{
    (void)state;
    for (int link = 0; link < N_LINKS; link++) {
        for (int odd = 0; odd < 4; odd++) {
            scene s = {.odd = odd};
            run_as_threads((rank_link)link, 4, 0, leave_or_reduce, &s);
            char who[32];
            snprintf(who, sizeof(who), "rank %d ", odd);
            for (int r = 0; r < 4; r++) {
                if (r != odd) {
                    assert_int_equal(s.outcomes[r].status, CADRE_ERR_PEER_LOST);
                    assert_non_null(strstr(s.outcomes[r].text,
                        "allreduce #2 of 100000 f32 (sum): "));
                    assert_non_null(strstr(s.outcomes[r].text, who));
                    assert_string_equal(
                        s.outcomes[r].text, s.outcomes[(odd + 1) % 4].text);
                    assert_int_equal(s.later[r].status, CADRE_ERR_PEER_LOST);
                }
            }
        }
    }
}

// Processes have a verdict each here, so each reports what it saw itself.
static void leave_as_process(cadre_group *g, void *ctx)
{
    (void)ctx;
    float memory[8] = {0};
    RANK_OK(cadre_barrier(g, NULL));
    if (cadre_rank(g) == 2) {
        return;
    }
    RANK_CHECK(cadre_allreduce(g, memory, memory, 8, CADRE_F32, CADRE_SUM,
                   NULL) == CADRE_ERR_PEER_LOST);
}

static void a_process_that_leaves_is_noticed(void **state)
{
    (void)state;
    run_as_processes(LINK_UNIX, 4, 0, leave_as_process, NULL);
    run_as_processes(LINK_SHM, 4, 0, leave_as_process, NULL);
}

static void give_works_up(cadre_group *g, void *ctx)
{
    enum { N_WORKS = 3 };
    scene *s = ctx;
    float *memory = cadre_alloc_array(COUNT, sizeof(*memory));
    RANK_CHECK(memory != NULL);
    cadre_work *works[N_WORKS];
    int n_posted = 0;
    cadre_status status = CADRE_OK;
    while (n_posted < N_WORKS && status == CADRE_OK) {
        status = cadre_allreduce(g, memory, memory, COUNT - (size_t)n_posted,
            CADRE_F32, CADRE_SUM, &works[n_posted]);
        n_posted += status == CADRE_OK ? 1 : 0;
    }

    if (cadre_rank(g) == 0) {
        RANK_CHECK(n_posted == N_WORKS);
        RANK_CHECK(cadre_group_fail(g, CADRE_ERR_ABORTED, "stop") ==
                   CADRE_ERR_ABORTED);
        for (int i = 0; i < N_WORKS; i++) {
            bool done;
            RANK_CHECK(cadre_work_test(works[i], &done) == CADRE_ERR_ABORTED);
            RANK_CHECK(cadre_work_wait(works[i], 0) == CADRE_ERR_ABORTED);
        }
    } else if (n_posted == N_WORKS) {
        // The ones before it are given up with the group.
        status = cadre_work_wait(works[N_WORKS - 1], 0);
    }
    RANK_CHECK(cadre_rank(g) == 0 || status == CADRE_ERR_ABORTED);
    cadre_free(memory);
    atomic_fetch_add(&s->n_ended, 1);
}

static void pending_works_end_with_the_group(void **state)
{
    (void)state;
    for (int link = 0; link < N_LINKS; link++) {
        scene s = {0};
        run_as_threads((rank_link)link, 4, 0, give_works_up, &s);
        assert_int_equal(atomic_load(&s.n_ended), 4);
    }
}

// Two ranks that know nothing of each other's verdict, driven in turn: what a
// broken group has posted is not there any more for the other.
static void a_broken_group_lets_go_of_its_callers_memory(void **state)
{
    (void)state;
    cadre_inproc_world *world = NULL;
    cadre_shared_verdict *verdicts[2];
    cadre_group *g[2];
    float *memory[2];
    cadre_work *works[2];
    CHECK_OK(cadre_inproc_world_create(2, &world));
    for (int r = 0; r < 2; r++) {
        cadre_transport *transport = NULL;
        cadre_watch *watch = NULL;
        CHECK_OK(cadre_shared_verdict_create(2, &verdicts[r]));
        CHECK_OK(cadre_inproc_open(world, r, &transport));
        CHECK_OK(cadre_watch_start_shared(verdicts[r], r, transport, &watch));
        CHECK_OK(cadre_group_create(r, 2, 0, transport, watch, &g[r]));
        memory[r] = cadre_alloc_array(COUNT, sizeof(float));
        CHECK_OK(cadre_allreduce(g[r], memory[r], memory[r], COUNT, CADRE_F32,
            CADRE_SUM, &works[r]));
    }
    assert_int_equal(
        cadre_group_fail(g[0], CADRE_ERR_ABORTED, "stop"), CADRE_ERR_ABORTED);
    cadre_free(memory[0]);
    CHECK_FAILS(cadre_work_wait(works[1], 0), CADRE_ERR_PEER_LOST,
        "allreduce #1 of 100000 f32 (sum): rank 0 has left");
    cadre_free(memory[1]);
    for (int r = 0; r < 2; r++) {
        cadre_group_release(g[r]);
        cadre_shared_verdict_destroy(verdicts[r]);
    }
    cadre_inproc_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_operations_are_told),
        cmocka_unit_test(other_counts_are_told),
        cmocka_unit_test(other_types_are_told),
        cmocka_unit_test(other_reductions_are_told),
        cmocka_unit_test(other_roots_are_told),
        cmocka_unit_test(other_parts_are_told),
        cmocka_unit_test(a_call_left_out_is_told),
        cmocka_unit_test(one_rank_can_break_the_group),
        cmocka_unit_test(waiting_ends_and_names_who_is_missing),
        cmocka_unit_test(an_operation_may_last_ten_times_the_timeout),
        cmocka_unit_test(a_rank_that_leaves_is_named),
        cmocka_unit_test(a_process_that_leaves_is_noticed),
        cmocka_unit_test(pending_works_end_with_the_group),
        cmocka_unit_test(a_broken_group_lets_go_of_its_callers_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
