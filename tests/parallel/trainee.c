// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "parallel/trainee.h"

#include "base/random.h"
#include "base/thread.h"
#include "group/work.h"
#include <math.h>
#include <sched.h>

enum { FROZEN = 2, OWN = 4, BUFFER = 8 };

// Odd sizes, several units, one much larger than small buckets.
static const struct {
    const char *name;
    int64_t shape[2];
} params[TRAINEE_PARAMS] = {
    {"a.weight", {37, 53}},
    {"a.bias", {1, 37}},
    {"b.scale", {1, 300}},
    {"c.weight", {9, 1000}},
    {"c.bias", {1, 9}},
    {"d.weight", {40, 260}},
    {"d.bias", {1, 40}},
    {"e.gain", {1, 3}},
    {"e.running", {1, 71}},
};

static void fill(float *x, size_t count, uint32_t what, uint64_t where)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t w[4];
        cadre_random_words(7, CADRE_STREAM_INITIAL, what, (where << 32) + i, w);
        x[i] = cadre_random_unit(w[0]) - 0.5f;
    }
}

void trainee_gradient(float *grad, size_t count, int param, int step, int leaf)
{
    fill(grad, count, (uint32_t)(param + 10), (uint64_t)(step * 1000 + leaf));
}

bool trainee_skips(int param, int leaf)
{
    return param == FROZEN || (param == 1 && leaf % 2 == 1) ||
           (param == 5 && leaf % 3 == 2);
}

trainee_job trainee_plain_job(int leaves)
{
    return (trainee_job){
        .options = {.leaves = leaves,
            .optimizer = CADRE_ADAMW,
            .lr = 1e-2,
            .clip = 0.05,
            .warmup_steps = 2},
        .poison = -1,
    };
}

// The caller's own memory for a parameter of each thread that is a rank.
static _Thread_local float own_values[9];

void trainee_make_model(
    cadre_group *group, const trainee_job *job, cadre_model **out)
{
    bool own = !job->no_own && (!job->one_own || cadre_rank(group) == 0);
    RANK_OK(cadre_model_create(group, out));
    for (int i = 0; i < TRAINEE_PARAMS; i++) {
        const cadre_param_options o = {.frozen = i == FROZEN,
            .buffer = i == BUFFER,
            .values = i == OWN && own ? own_values : NULL};
        RANK_OK(cadre_model_add(
            *out, params[i].name, params[i].shape, 2, &o, NULL));
    }
    RANK_OK(cadre_model_seal(*out));
    for (int i = 0; i < TRAINEE_PARAMS; i++) {
        fill(cadre_model_param(*out, i), cadre_model_param_elements(*out, i),
            (uint32_t)i, 0);
    }
}

// The order in which a leaf marks its gradients: backward's, or any.
static void choose_order(
    const trainee_job *job, int step, int leaf, int order[TRAINEE_PARAMS])
{
    for (int i = 0; i < TRAINEE_PARAMS; i++) {
        order[i] = TRAINEE_PARAMS - 1 - i;
    }
    for (int i = TRAINEE_PARAMS; job->shuffled && i > 1; i--) {
        uint32_t w[4];
        cadre_random_words(3, CADRE_STREAM_INITIAL, (uint32_t)(step * 97 + i),
            (uint64_t)leaf, w);
        int j = (int)(w[0] % (uint32_t)i);
        int swapped = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swapped;
        for (uint32_t pause = w[1] % 8; pause > 0; pause--) {
            sched_yield();
        }
    }
}

static void compute_leaf(
    const trainee_job *job, cadre_model *m, cadre_engine *e, int step, int leaf)
{
    int order[TRAINEE_PARAMS];
    choose_order(job, step, leaf, order);
    for (int i = 0; i < TRAINEE_PARAMS; i++) {
        int param = order[i];
        if (trainee_skips(param, leaf)) {
            continue;
        }
        float *g = cadre_leaf_grad(e, leaf, param);
        size_t count = cadre_model_param_elements(m, param);
        if (g == NULL) {
            continue; // the step has failed
        }
        trainee_gradient(g, count, param, step, leaf);
        if (step == 1 && leaf == job->poison && param == 3) {
            g[count - 1] = INFINITY;
        }
        (void)!cadre_grad_ready(e, leaf, param);
    }
    (void)!cadre_leaf_end(e, leaf, 0.1 * leaf, 3 + leaf);
}

void trainee_compute(
    const trainee_job *job, cadre_model *m, cadre_engine *e, int step)
{
    for (int leaf; cadre_leaf_next(e, &leaf);) {
        compute_leaf(job, m, e, step, leaf);
    }
}

typedef struct leaf_thread {
    const trainee_job *job;
    cadre_model *model;
    cadre_engine *engine;
    int step;
    cadre_thread thread;
} leaf_thread;

static void run_leaf_thread(void *ctx)
{
    const leaf_thread *h = ctx;
    trainee_compute(h->job, h->model, h->engine, h->step);
}

cadre_status trainee_step(const trainee_job *job, cadre_model *m,
    cadre_engine *e, int step, cadre_step_report *report)
{
    enum { MOST_THREADS = 4 };
    leaf_thread threads[MOST_THREADS];
    int n = job->options.threads == 0 ? 1 : job->options.threads;
    cadre_status status = cadre_step_begin(e);
    if (status != CADRE_OK) {
        return status;
    }
    for (int i = 1; i < n; i++) {
        threads[i] =
            (leaf_thread){.job = job, .model = m, .engine = e, .step = step};
        RANK_OK(cadre_thread_start(
            &threads[i].thread, "test/leaf", run_leaf_thread, &threads[i]));
    }
    trainee_compute(job, m, e, step);
    for (int i = 1; i < n; i++) {
        cadre_thread_join(&threads[i].thread);
    }
    return cadre_step_end(e, report);
}

void trainee_train(cadre_group *group, void *ctx)
{
    trainee_job *job = ctx;
    cadre_model *m;
    cadre_engine *e;
    cadre_group_set_order(group, job->order);
    trainee_make_model(group, job, &m);
    RANK_OK(cadre_engine_create(m, &job->options, &e));
    for (int s = 0; s < TRAINEE_STEPS; s++) {
        cadre_step_report report;
        bool equal = false;
        RANK_OK(trainee_step(job, m, e, s, &report));
        RANK_OK(cadre_engine_replicas_equal(e, &equal));
        RANK_CHECK(equal);
        uint64_t hash = cadre_model_hash(m) ^ cadre_model_buffers_hash(m);
        if (cadre_rank(group) == 0) {
            job->hash[s] = hash;
            job->report[s] = report;
            job->n_events = cadre_engine_events(e, job->events, TRAINEE_EVENTS);
        }
    }
    cadre_engine_destroy(e);
    cadre_model_destroy(m);
}

void assert_same_report(const cadre_step_report *a, const cadre_step_report *b)
{
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->weight, b->weight);
    assert_int_equal(a->skipped, b->skipped);
    assert_memory_equal(&a->loss, &b->loss, sizeof(double));
    assert_memory_equal(&a->grad_norm, &b->grad_norm, sizeof(double));
    assert_true(a->lr == b->lr);
}

void trainee_assert_same(const trainee_job *a, const trainee_job *b)
{
    for (int s = 0; s < TRAINEE_STEPS; s++) {
        assert_true(a->hash[s] == b->hash[s]);
        assert_int_equal(a->report[s].step, s + 1);
        assert_same_report(&a->report[s], &b->report[s]);
    }
}
