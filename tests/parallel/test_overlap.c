// SPDX-License-Identifier: Apache-2.0
//
// Overlap and modes: they change when things happen, and where, and no bit.

#include "support/check.h"

#include "base/alloc.h"
#include "parallel/trainee.h"
#include <pthread.h>

static void run(rank_link link, int n, trainee_job *job)
{
    run_as_threads(link, n, 30000, trainee_train, job);
}

static void nothing_but_leaves_changes_a_bit(void **state)
{
    (void)state;
    const int leaf_counts[] = {6, 8};
    const int folds[] = {0, CADRE_FOLD_EAGER, 2, 4};
    const size_t buckets[] = {0, 1024, 9000, 60000};
    const rank_link links[] = {LINK_INPROC, LINK_SHM, LINK_UNIX, LINK_TCP};
    int variant = 0;
    for (int v = 0; v < 2; v++) {
        trainee_job alone = trainee_plain_job(leaf_counts[v]);
        run(LINK_INPROC, 1, &alone);
        for (int n = 1; n <= leaf_counts[v]; n++) {
            for (int i = 0; i < 8; i++, variant++) {
                trainee_job job = trainee_plain_job(leaf_counts[v]);
                job.shuffled = variant % 7 > 2;
                job.options.mode = i % 2 == 0 ? CADRE_ZERO1 : CADRE_DDP;
                job.options.overlap =
                    i / 2 % 2 == 0 ? CADRE_OVERLAP_ON : CADRE_OVERLAP_OFF;
                job.options.fold = folds[variant / 2 % 4];
                job.options.bucket_bytes = buckets[(variant / 5) % 4];
                job.options.threads = variant / 3 % 3;
                job.options.progress_thread = variant % 11 % 4 == 0;
                job.no_own = variant / 4 % 3 > 0;
                run(links[variant % 4], n, &job);
                trainee_assert_same(&job, &alone);
            }
        }
    }
}

// --- what the recorder saw ---

static const cadre_event *find(
    const trainee_job *job, cadre_event_kind kind, int32_t index, bool last)
{
    const cadre_event *found = NULL;
    for (int i = 0; i < job->n_events; i++) {
        const cadre_event *e = &job->events[i];
        if (e->kind == kind && (index < 0 || e->index == index)) {
            found = e;
            if (!last) {
                break;
            }
        }
    }
    return found;
}

static int count(const trainee_job *job, cadre_event_kind kind)
{
    int n = 0;
    for (int i = 0; i < job->n_events; i++) {
        n += job->events[i].kind == kind ? 1 : 0;
    }
    return n;
}

static trainee_job recorded(int leaves, cadre_overlap overlap)
{
    trainee_job job = trainee_plain_job(leaves);
    job.options.overlap = overlap;
    job.options.record = true;
    job.options.bucket_bytes = 20000;
    return job;
}

static void assert_sent_before_backward_ends(const trainee_job *job)
{
    const cadre_event *posted = find(job, CADRE_EVENT_POSTED, -1, false);
    const cadre_event *ready = find(job, CADRE_EVENT_GRAD_READY, -1, true);
    assert_non_null(posted);
    assert_non_null(ready);
    assert_true(posted->ns < ready->ns);
}

static void with_overlap_chunks_leave_before_the_last_gradient(void **state)
{
    (void)state;
    const int leaf_counts[] = {2, 4, 6}; // blocks of 1, of 2, and three rounds
    for (int i = 0; i < 3; i++) {
        trainee_job job = recorded(leaf_counts[i], CADRE_OVERLAP_ON);
        run(LINK_INPROC, 2, &job);
        assert_sent_before_backward_ends(&job);
        job.options.mode = CADRE_ZERO1;
        run(LINK_UNIX, 2, &job);
        assert_sent_before_backward_ends(&job);
    }
}

static void without_it_none_leaves_before_its_block_is_closed(void **state)
{
    (void)state;
    const int leaf_counts[] = {2, 4};
    for (int i = 0; i < 2; i++) {
        trainee_job job = recorded(leaf_counts[i], CADRE_OVERLAP_OFF);
        run(LINK_INPROC, 2, &job);
        const cadre_event *posted = find(&job, CADRE_EVENT_POSTED, -1, false);
        const cadre_event *end = find(&job, CADRE_EVENT_LEAF_END, -1, true);
        assert_non_null(posted);
        assert_non_null(end);
        assert_true(posted->ns >= end->ns);
        assert_true(job.report[0].hidden_ms >= 0);
    }
}

// Of one step: every exchange once, in the fixed order; its bytes add up.
static int check_exchanges(const trainee_job *job)
{
    int n = count(job, CADRE_EVENT_POSTED);
    uint64_t nbytes = 0;
    int64_t before = 0;
    assert_int_equal(count(job, CADRE_EVENT_STARTED), n);
    assert_int_equal(count(job, CADRE_EVENT_FINISHED), n);
    for (int i = 0; i < n; i++) {
        const cadre_event *posted = find(job, CADRE_EVENT_POSTED, i, false);
        const cadre_event *started = find(job, CADRE_EVENT_STARTED, i, false);
        const cadre_event *finished = find(job, CADRE_EVENT_FINISHED, i, false);
        assert_non_null(posted);
        assert_non_null(started);
        assert_non_null(finished);
        assert_true(before <= posted->ns);
        assert_true(posted->ns <= started->ns);
        assert_true(started->ns <= finished->ns);
        before = posted->ns;
        nbytes += posted->nbytes;
    }
    assert_int_equal(nbytes, job->report[TRAINEE_STEPS - 1].bytes_sent);
    return n;
}

static void the_recorder_sees_every_exchange(void **state)
{
    (void)state;
    int before = 0;
    const size_t buckets[] = {0, 20000, 1024};
    for (int i = 0; i < 3; i++) {
        for (int mode = 0; mode < 3; mode++) {
            trainee_job job = recorded(6, CADRE_OVERLAP_ON);
            job.options.mode = mode == 0 ? CADRE_DDP : CADRE_ZERO1;
            job.options.bucket_bytes = buckets[i];
            job.no_own = mode == 2;
            run(LINK_INPROC, 3, &job);
            int n = check_exchanges(&job);
            assert_int_equal(n % 2, 0); // a fold and a gather per bucket
            assert_true(n > before);
            assert_int_equal(
                count(&job, CADRE_EVENT_UPDATE), mode == 0 ? 1 : n / 2);
            assert_int_equal(count(&job, CADRE_EVENT_CONTROL), 1);
            assert_int_equal(count(&job, CADRE_EVENT_LEAF_END), 2);
            before = mode < 2 ? before : n;
        }
    }
}

static void exchanges_are_hidden_only_while_they_are_under_way(void **state)
{
    (void)state;
    trainee_job job = recorded(6, CADRE_OVERLAP_ON);
    run(LINK_INPROC, 1, &job);
    for (int s = 0; s < TRAINEE_STEPS; s++) {
        assert_true(job.report[s].hidden_ms >= 0);
        assert_int_equal(job.report[s].bytes_sent, 0);
    }
    trainee_job block = recorded(8, CADRE_OVERLAP_ON); // one block, one rank
    run(LINK_INPROC, 1, &block);
    assert_int_equal(count(&block, CADRE_EVENT_POSTED), 0);
    assert_true(block.report[0].hidden_ms == 0);
}

typedef struct two_ranks {
    trainee_job job;
    pthread_barrier_t both;
} two_ranks;

static void mark(cadre_engine *e, int leaf, int first, int last)
{
    for (int i = first; i >= last; i--) {
        if (!trainee_skips(i, leaf)) {
            RANK_CHECK(cadre_leaf_grad(e, leaf, i) != NULL);
            RANK_OK(cadre_grad_ready(e, leaf, i));
        }
    }
}

// Rank 1 posts its first exchange when rank 0 has nothing more to mark, so rank 0
// sees it when it asks where the next gradient goes.
static void ask_for_the_next_gradient(cadre_group *group, void *ctx)
{
    two_ranks *two = ctx;
    cadre_model *m;
    cadre_engine *e;
    trainee_make_model(group, &two->job, &m);
    RANK_OK(cadre_engine_create(m, &two->job.options, &e));
    RANK_OK(cadre_step_begin(e));
    int leaf;
    RANK_CHECK(cadre_leaf_next(e, &leaf));
    bool first = cadre_rank(group) == 0;
    if (!first) {
        pthread_barrier_wait(&two->both);
    }
    mark(e, leaf, TRAINEE_PARAMS - 1, 3);
    pthread_barrier_wait(&two->both);
    if (first) {
        pthread_barrier_wait(&two->both);
    }
    mark(e, leaf, 1, 0);
    RANK_OK(cadre_leaf_end(e, leaf, 0.5, 1));
    RANK_OK(cadre_step_end(e, NULL));
    if (first) {
        two->job.n_events =
            cadre_engine_events(e, two->job.events, TRAINEE_EVENTS);
    }
    cadre_engine_destroy(e);
    cadre_model_destroy(m);
}

static void asking_for_a_gradient_moves_what_is_under_way(void **state)
{
    (void)state;
    two_ranks two = {.job = recorded(2, CADRE_OVERLAP_ON)};
    assert_int_equal(pthread_barrier_init(&two.both, NULL, 2), 0);
    run_as_threads(LINK_INPROC, 2, 30000, ask_for_the_next_gradient, &two);
    pthread_barrier_destroy(&two.both);
    const cadre_event *done = find(&two.job, CADRE_EVENT_FINISHED, 0, false);
    const cadre_event *ready = find(&two.job, CADRE_EVENT_GRAD_READY, 1, true);
    assert_non_null(done);
    assert_non_null(ready);
    assert_true(done->ns < ready->ns);
}

// The engine's own thread posts what compute threads complete.
static void a_thread_of_the_engine_moves_gradients(void **state)
{
    (void)state;
    trainee_job plain = trainee_plain_job(6);
    run(LINK_INPROC, 1, &plain);
    for (int i = 0; i < 8; i++) {
        trainee_job job = recorded(6, CADRE_OVERLAP_ON);
        job.options.progress_thread = true;
        job.options.mode = i % 2 == 0 ? CADRE_DDP : CADRE_ZERO1;
        job.options.threads = 1 + i / 2 % 2;
        run(i < 4 ? LINK_INPROC : LINK_UNIX, 1 + i % 3, &job);
        trainee_assert_same(&job, &plain);
        (void)check_exchanges(&job);
    }
}

// --- failures ---

// Rank 1 marks some gradients of its last leaf, and is gone.
static void leave_in_mid_backward(cadre_group *group, void *ctx)
{
    const trainee_job *job = ctx;
    cadre_model *m;
    cadre_engine *e;
    trainee_make_model(group, job, &m);
    RANK_OK(cadre_engine_create(m, &job->options, &e));
    if (cadre_rank(group) == 1) {
        RANK_OK(cadre_step_begin(e));
        int leaf;
        RANK_CHECK(cadre_leaf_next(e, &leaf));
        for (int i = TRAINEE_PARAMS - 1; i > 2; i--) {
            if (!trainee_skips(i, leaf)) {
                RANK_CHECK(cadre_leaf_grad(e, leaf, i) != NULL);
                RANK_OK(cadre_grad_ready(e, leaf, i));
            }
        }
    } else {
        RANK_CHECK(trainee_step(job, m, e, 0, NULL) == CADRE_ERR_ABORTED);
        RANK_CHECK(strstr(cadre_error_text(), "rank 1 left step 1") != NULL);
        RANK_CHECK(cadre_step_begin(e) == CADRE_ERR_ABORTED);
    }
    cadre_engine_destroy(e);
    cadre_model_destroy(m);
}

static void a_rank_that_leaves_in_mid_backward_ends_the_step(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        trainee_job job = trainee_plain_job(6);
        job.options.mode = i % 2 == 0 ? CADRE_DDP : CADRE_ZERO1;
        job.options.threads = 1 + i / 2 % 2;
        job.options.bucket_bytes = 4096;
        job.options.progress_thread = i % 3 == 0;
        run_as_threads(i < 4 ? LINK_INPROC : LINK_UNIX, 3, 30000,
            leave_in_mid_backward, &job);
    }
}

// --- zero1 ---

static void check_state_bytes(cadre_group *group, void *ctx)
{
    trainee_job job = *(const trainee_job *)ctx;
    enum { UNITS = 5, QUANTUM_BYTES = 256 * sizeof(float) };
    uint64_t n = (uint64_t)cadre_world_size(group);
    uint64_t whole = 0;
    for (int mode = 0; mode < 2; mode++) {
        cadre_model *m;
        cadre_engine *e;
        cadre_plane_bytes planes[8];
        job.options.mode = mode == 0 ? CADRE_DDP : CADRE_ZERO1;
        trainee_make_model(group, &job, &m);
        RANK_OK(cadre_engine_create(m, &job.options, &e));
        RANK_CHECK(cadre_engine_state_bytes(e, planes, 8) == 5);
        RANK_CHECK(strcmp(planes[4].name, "exp_avg_sq") == 0);
        RANK_CHECK(planes[3].nbytes == planes[4].nbytes);
        whole = mode == 0 ? planes[3].nbytes : whole;
        RANK_CHECK(
            mode == 0 || planes[3].nbytes <= whole / n + UNITS * QUANTUM_BYTES);
        RANK_CHECK(mode == 0 || n == 1 || planes[3].nbytes < whole);
        cadre_engine_destroy(e);
        cadre_model_destroy(m);
    }
}

static void optimizer_state_is_sharded(void **state)
{
    (void)state;
    for (int n = 1; n <= 6; n++) {
        trainee_job job = trainee_plain_job(6);
        run_as_threads(LINK_INPROC, n, 30000, check_state_bytes, &job);
    }
}

static void a_skipped_step_changes_nothing_and_sends_less(void **state)
{
    (void)state;
    trainee_job ddp = trainee_plain_job(6);
    ddp.poison = 4;
    run(LINK_INPROC, 2, &ddp);
    for (int i = 0; i < 2; i++) {
        trainee_job job = ddp;
        job.options.mode = CADRE_ZERO1;
        job.no_own = i == 1;
        run(LINK_INPROC, 3, &job);
        trainee_assert_same(&job, &ddp);
        assert_true(job.report[1].skipped);
        assert_true(job.hash[1] == job.hash[0]);
        assert_true(job.hash[2] != job.hash[1]);
        assert_true(job.report[1].bytes_sent < job.report[2].bytes_sent);
    }
}

// 4 (T (N - s) + (n - 1) s), and with two ranks s + (N - s) is N in one round.
static void what_is_sent_is_what_ddp_sends(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        trainee_job two = trainee_plain_job(2);
        two.options.mode = CADRE_ZERO1;
        two.no_own = i == 1;
        run(LINK_INPROC, 2, &two);
        assert_int_equal(two.report[1].bytes_sent, 4 * TRAINEE_ELEMENTS);
    }
    const int ranks[] = {3, 3, 4, 4, 5, 5};
    for (int i = 0; i < 6; i++) {
        trainee_job ddp = trainee_plain_job(8);
        trainee_job zero1 = ddp;
        zero1.options.mode = CADRE_ZERO1;
        zero1.no_own = i % 2 == 1;
        run(LINK_INPROC, ranks[i], &ddp);
        run(LINK_INPROC, ranks[i], &zero1);
        assert_int_equal(ddp.report[0].bytes_sent, zero1.report[0].bytes_sent);
        assert_int_equal(
            ddp.report[0].overhead_bytes, zero1.report[0].overhead_bytes);
    }
}

// SGD with momentum, and without, has other planes.
static void other_optimizers_are_sharded_as_well(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        trainee_job alone = trainee_plain_job(6);
        alone.options.optimizer = CADRE_SGD;
        alone.options.momentum = i == 0 ? 0.9 : 0;
        alone.options.weight_decay = 0.01;
        trainee_job four = alone;
        four.options.mode = CADRE_ZERO1;
        run(LINK_INPROC, 1, &alone);
        run(LINK_INPROC, 4, &four);
        trainee_assert_same(&four, &alone);
    }
}

static void refuse(cadre_group *group, void *ctx)
{
    const trainee_job *job = ctx;
    cadre_model *m;
    cadre_engine *e;
    trainee_make_model(group, job, &m);
    RANK_CHECK(
        cadre_engine_create(m, &(cadre_engine_options){.mode = CADRE_ZERO1},
            &e) == CADRE_ERR_INVALID_ARG);
    RANK_CHECK(strstr(cadre_error_text(), "no optimizer") != NULL);
    RANK_CHECK(cadre_engine_create(m,
                   &(cadre_engine_options){.overlap = (cadre_overlap)7},
                   &e) == CADRE_ERR_INVALID_ARG);
    cadre_model_destroy(m);
}

static void sharding_no_state_is_refused(void **state)
{
    (void)state;
    trainee_job job = trainee_plain_job(2);
    run_as_threads(LINK_INPROC, 2, 30000, refuse, &job);
}

// The second and third step allocate nothing.
static void check_allocations(cadre_group *group, void *ctx)
{
    const trainee_job *job = ctx;
    cadre_model *m;
    cadre_engine *e;
    trainee_make_model(group, job, &m);
    RANK_OK(cadre_engine_create(m, &job->options, &e));
    RANK_OK(trainee_step(job, m, e, 0, NULL));
    RANK_OK(cadre_barrier(group, NULL));
    uint64_t calls = cadre_alloc_calls();
    RANK_OK(trainee_step(job, m, e, 1, NULL));
    RANK_OK(trainee_step(job, m, e, 2, NULL));
    RANK_CHECK(cadre_alloc_calls() == calls);
    RANK_OK(cadre_barrier(group, NULL));
    cadre_engine_destroy(e);
    cadre_model_destroy(m);
}

static void steps_allocate_nothing(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        for (int mode = 0; mode < 2; mode++) {
            trainee_job job = recorded(6, CADRE_OVERLAP_ON);
            job.options.mode = mode == 0 ? CADRE_DDP : CADRE_ZERO1;
            job.no_own = n == 2;
            run_as_threads(LINK_INPROC, n, 30000, check_allocations, &job);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_but_leaves_changes_a_bit),
        cmocka_unit_test(with_overlap_chunks_leave_before_the_last_gradient),
        cmocka_unit_test(without_it_none_leaves_before_its_block_is_closed),
        cmocka_unit_test(the_recorder_sees_every_exchange),
        cmocka_unit_test(exchanges_are_hidden_only_while_they_are_under_way),
        cmocka_unit_test(asking_for_a_gradient_moves_what_is_under_way),
        cmocka_unit_test(a_thread_of_the_engine_moves_gradients),
        cmocka_unit_test(a_rank_that_leaves_in_mid_backward_ends_the_step),
        cmocka_unit_test(optimizer_state_is_sharded),
        cmocka_unit_test(a_skipped_step_changes_nothing_and_sends_less),
        cmocka_unit_test(what_is_sent_is_what_ddp_sends),
        cmocka_unit_test(other_optimizers_are_sharded_as_well),
        cmocka_unit_test(sharding_no_state_is_refused),
        cmocka_unit_test(steps_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
