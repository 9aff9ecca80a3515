// SPDX-License-Identifier: Apache-2.0
//
// Steps of an engine against one rank with the same leaves, whose bits every
// number of ranks, threads, folds and buckets must have.

#include "support/check.h"

#include "base/alloc.h"
#include "base/random.h"
#include "base/thread.h"
#include "parallel/trainee.h"
#include <fenv.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { N_PARAMS = 4, STEPS = 3 };

static float tiny = 0x1p-30f; // below half a unit of 1

// Odd sizes, several quanta, a frozen one, and one larger than small buckets.
static const struct {
    const char *name;
    int64_t shape[2];
    bool frozen;
} params[N_PARAMS] = {
    {"a.weight", {37, 53}, false},
    {"a.bias", {1, 37}, false},
    {"b.scale", {1, 300}, true},
    {"c.weight", {9, 1000}, false},
};

typedef struct job {
    cadre_engine_options options;
    bool unused_in_odd_leaves; // parameter 1
    int poison;      // leaf of step 2 with an infinite gradient; or -1
    int empty_above; // leaves from here on have no samples
    // Of rank 0, after every step; the test reads them.
    uint64_t hash[STEPS];
    cadre_step_report report[STEPS];
} job;

static void fill(float *x, size_t count, uint32_t what, uint64_t where)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t w[4];
        cadre_random_words(7, CADRE_STREAM_INITIAL, what, (where << 32) + i, w);
        x[i] = cadre_random_unit(w[0]) - 0.5f;
    }
}

static cadre_status make_model(cadre_group *world, cadre_model **out)
{
    RANK_OK(cadre_model_create(world, out));
    for (int i = 0; i < N_PARAMS; i++) {
        const cadre_param_options o = {.frozen = params[i].frozen};
        int index;
        RANK_OK(cadre_model_add(
            *out, params[i].name, params[i].shape, 2, &o, &index));
        RANK_CHECK(index == i);
    }
    cadre_status status = cadre_model_seal(*out);
    for (int i = 0; status == CADRE_OK && i < N_PARAMS; i++) {
        fill(cadre_model_param(*out, i), cadre_model_param_elements(*out, i),
            (uint32_t)i, 0);
    }
    return status;
}

typedef struct step_worker {
    const job *j;
    cadre_model *model;
    cadre_engine *engine;
    int step;
    cadre_thread thread;
} step_worker;

// A leaf's gradient: numbers of (step, leaf), so it is the same anywhere.
static void compute_leaves(void *ctx)
{
    step_worker *w = ctx;
    int leaf;
    while (cadre_leaf_next(w->engine, &leaf)) {
        for (int i = N_PARAMS; i-- > 0;) {
            if (params[i].frozen ||
                (i == 1 && w->j->unused_in_odd_leaves && leaf % 2 == 1)) {
                continue;
            }
            float *g = cadre_leaf_grad(w->engine, leaf, i);
            size_t count = cadre_model_param_elements(w->model, i);
            if (g == NULL) {
                continue;
            }
            if (leaf < w->j->empty_above) {
                fill(g, count, (uint32_t)(i + 10),
                    (uint64_t)(w->step * 1000 + leaf));
            }
            if (w->step == 1 && leaf == w->j->poison) {
                g[count - 1] = INFINITY;
            }
            (void)!cadre_grad_ready(w->engine, leaf, i);
        }
        int64_t weight = leaf < w->j->empty_above ? 3 + leaf : 0;
        (void)!cadre_leaf_end(w->engine, leaf, 0.1 * leaf, weight);
    }
}

static cadre_status run_step(job *j, cadre_model *model, cadre_engine *engine,
    int step, cadre_step_report *report)
{
    enum { MOST_THREADS = 4 };
    step_worker workers[MOST_THREADS];
    int n = j->options.threads == 0 ? 1 : j->options.threads;
    cadre_status status = cadre_step_begin(engine);
    if (status != CADRE_OK) {
        return status;
    }
    for (int i = 0; i < n; i++) {
        workers[i] = (step_worker){
            .j = j, .model = model, .engine = engine, .step = step};
        RANK_OK(cadre_thread_start(
            &workers[i].thread, "test/leaf", compute_leaves, &workers[i]));
    }
    for (int i = 0; i < n; i++) {
        cadre_thread_join(&workers[i].thread);
    }
    return cadre_step_end(engine, report);
}

static cadre_status train(cadre_group *world, void *ctx)
{
    job *j = ctx;
    cadre_model *model = NULL;
    cadre_engine *engine = NULL;
    cadre_status status = make_model(world, &model);
    if (status == CADRE_OK) {
        status = cadre_engine_create(model, &j->options, &engine);
    }
    for (int s = 0; status == CADRE_OK && s < STEPS; s++) {
        cadre_step_report report;
        uint64_t calls = cadre_alloc_calls();
        status = run_step(j, model, engine, s, &report);
        // Threads are started by the test; the engine itself allocates nothing
        // after the first step.  Other ranks allocate in this process too.
        if (s > 0 && cadre_world_size(world) == 1 && j->options.threads == 0) {
            RANK_CHECK(cadre_alloc_calls() - calls <= 1);
        }
        uint64_t hash = cadre_model_hash(model);
        if (status == CADRE_OK) {
            bool equal = false;
            status = cadre_engine_replicas_equal(engine, &equal);
            RANK_CHECK(status != CADRE_OK || equal);
        }
        if (cadre_rank(world) == 0) {
            j->hash[s] = hash;
            j->report[s] = report;
        }
    }
    cadre_engine_destroy(engine);
    cadre_model_destroy(model);
    return status;
}

static job plain_job(int leaves)
{
    return (job){
        .options = {.leaves = leaves,
            .optimizer = CADRE_ADAMW,
            .lr = 1e-2,
            .clip = 0.05,
            .warmup_steps = 2},
        .poison = -1,
        .empty_above = leaves,
    };
}

static void run_on(int n, job *j)
{
    CHECK_OK(cadre_launch_threads(n, NULL, train, j, NULL));
}

static void assert_same_results(const job *a, const job *b)
{
    for (int s = 0; s < STEPS; s++) {
        assert_true(a->hash[s] == b->hash[s]);
        assert_int_equal(a->report[s].step, s + 1);
        assert_same_report(&a->report[s], &b->report[s]);
    }
}

// NUMERICS: the number of ranks, the fold, buckets and threads are free.
static void nothing_but_leaves_changes_a_bit(void **state)
{
    (void)state;
    const int leaf_counts[] = {1, 5, 6, 8, 12, 13};
    const int folds[] = {0, CADRE_FOLD_EAGER, 1, 2, 4, 8};
    const size_t buckets[] = {0, 1024, 20000};
    int variant = 0;
    for (size_t v = 0; v < sizeof(leaf_counts) / sizeof(leaf_counts[0]); v++) {
        job alone = plain_job(leaf_counts[v]);
        run_on(1, &alone);
        for (int n = 1; n <= leaf_counts[v] && n <= 8; n++) {
            for (size_t f = 0; f < sizeof(folds) / sizeof(folds[0]); f++) {
                job j = plain_job(leaf_counts[v]);
                j.options.fold = folds[f];
                j.options.bucket_bytes = buckets[variant % 3];
                j.options.threads = variant / 3 % 3;
                variant++;
                run_on(n, &j);
                assert_same_results(&j, &alone);
            }
        }
    }
}

static void different_leaves_are_a_different_identity(void **state)
{
    (void)state;
    job six = plain_job(6);
    job eight = plain_job(8);
    run_on(2, &six);
    run_on(2, &eight);
    assert_true(six.hash[STEPS - 1] != eight.hash[STEPS - 1]);
}

static void unused_parameters_and_empty_leaves_count_as_zero(void **state)
{
    (void)state;
    job alone = plain_job(8);
    alone.unused_in_odd_leaves = true;
    alone.empty_above = 5;
    job three = alone;
    run_on(1, &alone);
    run_on(3, &three);
    assert_same_results(&three, &alone);
    assert_int_equal(alone.report[0].weight, 3 + 4 + 5 + 6 + 7);
}

static void a_step_that_is_not_finite_changes_nothing_on_any_rank(void **state)
{
    (void)state;
    job j = plain_job(6);
    j.poison = 4;
    run_on(3, &j);
    assert_false(j.report[0].skipped);
    assert_true(j.report[1].skipped);
    assert_false(j.report[2].skipped);
    assert_true(j.hash[1] == j.hash[0]);
    assert_true(j.hash[2] != j.hash[1]);

    job none = plain_job(6);
    none.empty_above = 0;
    run_on(2, &none);
    assert_true(none.report[0].skipped);
    assert_int_equal(none.report[0].weight, 0);
    assert_true(none.hash[0] == none.hash[2]);
}

static cadre_status skip_for_ever(cadre_group *world, void *ctx)
{
    job *j = ctx;
    cadre_model *model = NULL;
    cadre_engine *engine = NULL;
    RANK_OK(make_model(world, &model));
    RANK_OK(cadre_engine_create(model, &j->options, &engine));
    cadre_status status = CADRE_OK;
    int steps = 0;
    while (status == CADRE_OK && steps < 50) {
        status = run_step(j, model, engine, 0, NULL);
        steps++;
    }
    RANK_CHECK(steps == 10);
    cadre_engine_destroy(engine);
    cadre_model_destroy(model);
    return status;
}

static void ten_skipped_steps_in_a_row_are_an_error(void **state)
{
    (void)state;
    job j = plain_job(4);
    j.empty_above = 0;
    CHECK_FAILS(cadre_launch_threads(2, NULL, skip_for_ever, &j, NULL),
        CADRE_ERR_NOT_FINITE, "10 steps");
}

// The traffic is the one that docs/numerics.md section 3 promises.
static void bytes_sent_are_the_formula(void **state)
{
    (void)state;
    const uint64_t elements = 37 * 53 + 37 + 9 * 1000;
    job two = plain_job(2);
    run_on(2, &two);
    // T = 1: (N - s) + s for either rank.
    assert_int_equal(two.report[1].bytes_sent, 4 * elements);
    job one = plain_job(8);
    run_on(1, &one);
    assert_int_equal(one.report[1].bytes_sent, 0);
    assert_true(two.report[1].overhead_bytes > 0);
    assert_int_equal(one.report[1].overhead_bytes, 0);
}

// Plain averaging by hand: two leaves, SGD, no momentum.
static cadre_status check_mean(cadre_group *world, void *ctx)
{
    (void)ctx;
    cadre_model *m;
    cadre_engine *e;
    int index;
    float own[3] = {1, 2, 3};
    RANK_OK(cadre_model_create(world, &m));
    const cadre_param_options o = {.values = own};
    RANK_OK(cadre_model_add(m, "w", (int64_t[]){3}, 1, &o, &index));
    RANK_OK(cadre_model_seal(m));
    RANK_CHECK(cadre_model_param(m, index) == own);
    RANK_OK(cadre_engine_create(m,
        &(cadre_engine_options){.leaves = 2, .optimizer = CADRE_SGD, .lr = 0.5},
        &e));
    RANK_OK(cadre_step_begin(e));
    for (int leaf; cadre_leaf_next(e, &leaf);) {
        float *g = cadre_leaf_grad(e, leaf, index);
        g[0] = leaf == 0 ? 1 : 3;
        g[1] = 4;
        RANK_OK(cadre_grad_ready(e, leaf, index));
        RANK_OK(cadre_leaf_end(e, leaf, leaf + 1.0, leaf == 0 ? 3 : 1));
    }
    cadre_step_report report;
    RANK_OK(cadre_step_end(e, &report));
    RANK_CHECK(report.weight == 4);
    RANK_CHECK(report.loss == 0.75);
    RANK_CHECK(report.grad_norm == sqrt(16.0 + 64.0) / 4);
    RANK_CHECK(own[0] == 1 - 0.5f * 1 && own[1] == 2 - 0.5f * 2);
    RANK_CHECK(own[2] == 3);
    cadre_engine_destroy(e);
    cadre_model_destroy(m);
    return CADRE_OK;
}

static void gradients_are_divided_by_the_whole_weight(void **state)
{
    (void)state;
    CHECK_OK(cadre_launch_threads(1, NULL, check_mean, NULL, NULL));
    CHECK_OK(cadre_launch_threads(2, NULL, check_mean, NULL, NULL));
}

// A thread that rounds upward and is given to the engine all the same.
static cadre_status round_upward(cadre_group *world, void *ctx)
{
    job *j = ctx;
    RANK_CHECK(fesetround(FE_UPWARD) == 0);
    cadre_status status = train(world, j);
    RANK_CHECK(fegetround() == FE_UPWARD);
    float own = 1.0f;
    RANK_OK(cadre_allreduce(world, cadre_rank(world) == 0 ? &own : &tiny, &own,
        1, CADRE_F32, CADRE_SUM, NULL));
    RANK_CHECK(own == 1.0f);
    RANK_CHECK(fegetround() == FE_UPWARD);
    return status;
}

static void the_callers_rounding_mode_changes_nothing(void **state)
{
    (void)state;
    job plain = plain_job(6);
    job odd = plain_job(6);
    run_on(2, &plain);
    CHECK_OK(cadre_launch_threads(2, NULL, round_upward, &odd, NULL));
    assert_same_results(&odd, &plain);
}

static cadre_status check_own_optimizer(cadre_group *world, void *ctx)
{
    (void)ctx;
    cadre_model *m;
    cadre_engine *e;
    RANK_OK(make_model(world, &m));
    RANK_OK(cadre_engine_create(m, &(cadre_engine_options){.leaves = 2}, &e));
    uint64_t before = cadre_model_hash(m);
    RANK_CHECK(cadre_model_grad(m, 0) == NULL);
    job j = plain_job(2);
    RANK_OK(run_step(&j, m, e, 0, NULL));
    RANK_CHECK(cadre_model_hash(m) == before);
    float expected[37];
    float second[37];
    fill(expected, 37, 11, 0);
    fill(second, 37, 11, 1);
    const float *sum = cadre_model_grad(m, 1);
    RANK_CHECK(sum != NULL);
    for (int i = 0; i < 37; i++) {
        RANK_CHECK(sum[i] == expected[i] + second[i]);
    }
    RANK_CHECK(cadre_model_grad(m, 2) == NULL); // frozen
    RANK_OK(cadre_step_begin(e));
    RANK_CHECK(cadre_model_grad(m, 1) == NULL); // of the step before
    compute_leaves(&(step_worker){.j = &j, .model = m, .engine = e, .step = 1});
    RANK_OK(cadre_step_end(e, NULL));
    RANK_CHECK(cadre_model_grad(m, 1) != NULL);
    cadre_engine_destroy(e);
    cadre_model_destroy(m);
    return CADRE_OK;
}

static void without_an_optimizer_the_sum_is_shown(void **state)
{
    (void)state;
    CHECK_OK(cadre_launch_threads(2, NULL, check_own_optimizer, NULL, NULL));
}

// --- disagreement and misuse ---

static cadre_status differ_in_shape(cadre_group *world, void *ctx)
{
    (void)ctx;
    cadre_model *m;
    RANK_OK(cadre_model_create(world, &m));
    int64_t rows = cadre_rank(world) == 2 ? 5 : 4;
    RANK_OK(cadre_model_add(m, "first", (int64_t[]){3}, 1, NULL, NULL));
    RANK_OK(cadre_model_add(m, "second", (int64_t[]){rows, 2}, 2, NULL, NULL));
    cadre_status status = cadre_model_seal(m);
    RANK_CHECK(status == CADRE_ERR_DESYNC);
    const char *text = cadre_error_text();
    RANK_CHECK(strstr(text, "'second' (4, 2)") != NULL);
    RANK_CHECK(strstr(text, "rank 2 has 'second' (5, 2)") != NULL);
    cadre_model_destroy(m);
    return status;
}

static cadre_status differ_in_number(cadre_group *world, void *ctx)
{
    (void)ctx;
    cadre_model *m;
    RANK_OK(cadre_model_create(world, &m));
    RANK_OK(cadre_model_add(m, "first", (int64_t[]){3}, 1, NULL, NULL));
    if (cadre_rank(world) == 0) {
        RANK_OK(cadre_model_add(m, "second", (int64_t[]){3}, 1, NULL, NULL));
    }
    cadre_status status = cadre_model_seal(m);
    RANK_CHECK(status == CADRE_ERR_DESYNC);
    RANK_CHECK(strstr(cadre_error_text(), "no such parameter") != NULL);
    cadre_model_destroy(m);
    return status;
}

static cadre_status differ_in_values(cadre_group *world, void *ctx)
{
    job *j = ctx;
    cadre_model *m;
    cadre_engine *e;
    RANK_OK(make_model(world, &m));
    if (cadre_rank(world) == 1) {
        cadre_model_param(m, 3)[17] += 1.0f;
    }
    RANK_OK(cadre_engine_create(m, &j->options, &e));
    cadre_status status = cadre_step_begin(e);
    RANK_CHECK(status == CADRE_ERR_DESYNC);
    RANK_CHECK(strstr(cadre_error_text(), "'c.weight'") != NULL);
    RANK_CHECK(strstr(cadre_error_text(), "rank 1") != NULL);
    cadre_engine_destroy(e);
    cadre_model_destroy(m);
    return status;
}

static cadre_status differ_in_settings(cadre_group *world, void *ctx)
{
    (void)ctx;
    cadre_model *m;
    cadre_engine *e = NULL;
    RANK_OK(make_model(world, &m));
    double lr = cadre_rank(world) == 1 ? 0.5 : 0.25;
    cadre_status status = cadre_engine_create(
        m, &(cadre_engine_options){.optimizer = CADRE_SGD, .lr = lr}, &e);
    RANK_CHECK(status == CADRE_ERR_DESYNC);
    RANK_CHECK(strstr(cadre_error_text(), "lr is 0.25 on rank 0") != NULL);
    cadre_model_destroy(m);
    return status;
}

static void ranks_that_differ_all_fail_alike(void **state)
{
    (void)state;
    job j = plain_job(4);
    const cadre_rank_main bodies[] = {differ_in_shape, differ_in_number,
        differ_in_values, differ_in_settings};
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        assert_int_equal(cadre_launch_threads(3, NULL, bodies[i], &j, NULL),
            CADRE_ERR_DESYNC);
    }
}

static cadre_status forget_a_leaf(cadre_group *world, void *ctx)
{
    job *j = ctx;
    cadre_model *m;
    cadre_engine *e;
    RANK_OK(make_model(world, &m));
    RANK_OK(cadre_engine_create(m, &j->options, &e));
    cadre_status status;
    if (cadre_rank(world) == 1) {
        RANK_OK(cadre_step_begin(e));
        status = cadre_step_end(e, NULL);
        RANK_CHECK(status == CADRE_ERR_STATE);
        RANK_CHECK(
            strstr(cadre_error_text(), "0 of this rank's 2 leaves") != NULL);
    } else {
        status = run_step(j, m, e, 0, NULL);
        RANK_CHECK(status == CADRE_ERR_ABORTED);
        RANK_CHECK(strstr(cadre_error_text(), "rank 1 gave up step 1") != NULL);
    }
    cadre_engine_destroy(e);
    cadre_model_destroy(m);
    return status;
}

static cadre_status leave_a_step(cadre_group *world, void *ctx)
{
    job *j = ctx;
    cadre_model *m;
    cadre_engine *e;
    RANK_OK(make_model(world, &m));
    RANK_OK(cadre_engine_create(m, &j->options, &e));
    cadre_status status = CADRE_OK;
    if (cadre_rank(world) == 1) {
        RANK_OK(cadre_step_begin(e));
    } else {
        status = run_step(j, m, e, 0, NULL);
        RANK_CHECK(status == CADRE_ERR_ABORTED);
        RANK_CHECK(strstr(cadre_error_text(), "rank 1 left step 1") != NULL);
    }
    cadre_engine_destroy(e);
    cadre_model_destroy(m);
    return status;
}

static void a_rank_that_misuses_a_step_ends_it_for_all(void **state)
{
    (void)state;
    job j = plain_job(4);
    assert_int_not_equal(
        cadre_launch_threads(2, NULL, forget_a_leaf, &j, NULL), CADRE_OK);
    assert_int_equal(cadre_launch_threads(2, NULL, leave_a_step, &j, NULL),
        CADRE_ERR_ABORTED);
}

static void refuse_options(cadre_group *world)
{
    cadre_model *m;
    cadre_engine *e;
    CHECK_OK(cadre_model_create(world, &m));
    CHECK_FAILS(cadre_engine_create(m, NULL, &e), CADRE_ERR_STATE, "sealed");
    CHECK_FAILS(cadre_model_seal(m), CADRE_ERR_STATE, "no parameters");
    cadre_model_destroy(m);

    CHECK_OK(make_model(world, &m));
    const struct {
        cadre_engine_options o;
        const char *words;
    } bad[] = {
        {{.leaves = -1}, "leaves"},
        {{.fold = 3}, "fold is 3"},
        {{.threads = -2}, "threads"},
        {{.lr = -3.0}, "lr"},
        {{.beta1 = 1.5}, "beta1"},
        {{.clip = NAN}, "clip"},
        {{.optimizer = CADRE_ADAMW, .eps = CADRE_ZERO}, "eps is 0: adamw"},
        {{.optimizer = CADRE_ADAMW, .eps = 1e-46}, "eps is 1e-46: adamw"},
        {{.warmup_steps = -1}, "warmup_steps"},
        {{.mode = (cadre_mode)9}, "mode"},
        {{.optimizer = (cadre_optimizer)9}, "optimizer"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK_FAILS(cadre_engine_create(m, &bad[i].o, &e),
            CADRE_ERR_INVALID_ARG, bad[i].words);
    }
    CHECK_FAILS(cadre_model_add(m, "late", (int64_t[]){1}, 1, NULL, NULL),
        CADRE_ERR_STATE, "too late");
    CHECK_OK(cadre_engine_create(m, NULL, &e));
    cadre_engine *second;
    CHECK_FAILS(
        cadre_engine_create(m, NULL, &second), CADRE_ERR_STATE, "engine");
    CHECK_FAILS(cadre_step_end(e, NULL), CADRE_ERR_STATE, "no step is open");
    CHECK_OK(cadre_step_begin(e));
    CHECK_FAILS(cadre_step_begin(e), CADRE_ERR_STATE, "a step is open");
    bool equal;
    CHECK_FAILS(cadre_engine_replicas_equal(e, &equal), CADRE_ERR_STATE,
        "a step is open");
    CHECK_FAILS(cadre_step_end(e, NULL), CADRE_ERR_STATE, "0 of this rank's");
    CHECK_FAILS(cadre_step_begin(e), CADRE_ERR_ABORTED, "gave up step 1");
    assert_null(cadre_model_param_name(m, N_PARAMS));
    assert_null(cadre_model_param(m, -1));
    assert_int_equal(cadre_model_param_elements(m, -1), 0);
    CHECK_FAILS(cadre_model_save(m, NULL), CADRE_ERR_INVALID_ARG, "path");
    CHECK_FAILS(cadre_model_seal(NULL), CADRE_ERR_INVALID_ARG, "NULL");
    CHECK_FAILS(
        cadre_engine_create(m, NULL, NULL), CADRE_ERR_INVALID_ARG, "NULL");
    CHECK_FAILS(cadre_step_begin(NULL), CADRE_ERR_INVALID_ARG, "NULL");
    cadre_engine_destroy(e);
    cadre_model_destroy(m);
}

static cadre_status too_few_leaves(cadre_group *world, void *ctx)
{
    (void)ctx;
    cadre_model *m;
    cadre_engine *e;
    RANK_OK(make_model(world, &m));
    cadre_status status =
        cadre_engine_create(m, &(cadre_engine_options){.leaves = 2}, &e);
    RANK_CHECK(status == CADRE_ERR_INVALID_ARG);
    RANK_CHECK(strstr(cadre_error_text(), "3 ranks but only 2 leaves") != NULL);
    cadre_model_destroy(m);
    return status;
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    cadre_group *alone;
    CHECK_OK(cadre_init(NULL, &alone));
    refuse_options(alone);
    cadre_finalize(alone);
    assert_int_equal(cadre_launch_threads(3, NULL, too_few_leaves, NULL, NULL),
        CADRE_ERR_INVALID_ARG);
}

static cadre_status stop_together(cadre_group *world, void *ctx)
{
    job *j = ctx;
    cadre_model *m;
    cadre_engine *e;
    RANK_OK(make_model(world, &m));
    RANK_OK(cadre_engine_create(m, &j->options, &e));
    cadre_step_report report;
    RANK_OK(run_step(j, m, e, 0, &report));
    RANK_CHECK(report.stop == 0);
    cadre_engine_request_stop(e, 1u << cadre_rank(world));
    RANK_OK(run_step(j, m, e, 1, &report));
    RANK_CHECK(report.stop == 7);
    RANK_OK(run_step(j, m, e, 2, &report));
    RANK_CHECK(report.stop == 0);

    cadre_plane_bytes planes[8];
    RANK_CHECK(cadre_engine_state_bytes(e, planes, 8) == 5);
    RANK_CHECK(strcmp(planes[0].name, "params") == 0);
    RANK_CHECK(strcmp(planes[3].name, "exp_avg") == 0);
    RANK_CHECK(planes[3].nbytes == planes[0].nbytes);
    cadre_engine_destroy(e);
    cadre_model_destroy(m);
    return CADRE_OK;
}

static void ranks_agree_to_stop_after_the_same_step(void **state)
{
    (void)state;
    job j = plain_job(6);
    CHECK_OK(cadre_launch_threads(3, NULL, stop_together, &j, NULL));
}

// From creating the group to a finished step; releases whatever was made.
static cadre_status whole_step(void)
{
    cadre_group *world = NULL;
    cadre_model *m = NULL;
    cadre_engine *e = NULL;
    cadre_status status = cadre_init(NULL, &world);
    if (status == CADRE_OK) {
        status = cadre_model_create(world, &m);
    }
    int index = -1;
    if (status == CADRE_OK) {
        status = cadre_model_add(m, "w", (int64_t[]){300}, 1, NULL, &index);
    }
    if (status == CADRE_OK) {
        status = cadre_model_seal(m);
    }
    if (status == CADRE_OK) {
        status = cadre_engine_create(m,
            &(cadre_engine_options){.leaves = 6, .optimizer = CADRE_ADAMW}, &e);
    }
    if (status == CADRE_OK) {
        status = cadre_step_begin(e);
    }
    if (status == CADRE_OK) {
        for (int leaf; cadre_leaf_next(e, &leaf);) {
            cadre_leaf_grad(e, leaf, index)[0] = 1.0f;
            CHECK_OK(cadre_grad_ready(e, leaf, index));
            CHECK_OK(cadre_leaf_end(e, leaf, 1.0, 1));
        }
        status = cadre_step_end(e, NULL);
    }
    cadre_engine_destroy(e);
    cadre_model_destroy(m);
    cadre_finalize(world);
    return status;
}

static void every_failed_allocation_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    cadre_status status = CADRE_ERR_NO_MEMORY;
    int n = 0;
    for (; status != CADRE_OK && n < 1000; n++) {
        cadre_alloc_fail_after(n);
        status = whole_step();
        cadre_alloc_fail_after(-1);
        assert_true(status == CADRE_OK || status == CADRE_ERR_NO_MEMORY);
    }
    assert_in_range(n, 10, 999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_but_leaves_changes_a_bit),
        cmocka_unit_test(different_leaves_are_a_different_identity),
        cmocka_unit_test(unused_parameters_and_empty_leaves_count_as_zero),
        cmocka_unit_test(a_step_that_is_not_finite_changes_nothing_on_any_rank),
        cmocka_unit_test(ten_skipped_steps_in_a_row_are_an_error),
        cmocka_unit_test(bytes_sent_are_the_formula),
        cmocka_unit_test(gradients_are_divided_by_the_whole_weight),
        cmocka_unit_test(the_callers_rounding_mode_changes_nothing),
        cmocka_unit_test(without_an_optimizer_the_sum_is_shown),
        cmocka_unit_test(ranks_that_differ_all_fail_alike),
        cmocka_unit_test(a_rank_that_misuses_a_step_ends_it_for_all),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(ranks_agree_to_stop_after_the_same_step),
        cmocka_unit_test(every_failed_allocation_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
