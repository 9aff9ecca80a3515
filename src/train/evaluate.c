// SPDX-License-Identifier: Apache-2.0

#include "train/evaluate.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/thread.h"
#include "kernel/exact.h"
#include "train/identity.h"
#include <math.h>
#include <stdatomic.h>
#include <string.h>

// Samples of a pass, images or texts.  Part of what the loss means: other shapes
// may round otherwise (docs/numerics.md section 8), so it is no option.  Few
// enough that an evaluation needs no more memory than training.
enum { PASS_IMAGES = 100, PASS_LARGE_IMAGES = 10, PASS_TEXTS = 4 };

static int64_t pass_samples(const cadre_dataset *data)
{
    enum { LARGE = 3 * 64 * 64 };
    if (data->tokens > 0) {
        return PASS_TEXTS;
    }
    return data->sample_elements > LARGE ? PASS_LARGE_IMAGES : PASS_IMAGES;
}

// What a thread finds, and where it puts what it reads.
typedef struct desk {
    float *x;        // of a pass
    int32_t *labels; // of a pass; and on
    float *losses;
    int32_t *classes;
    cadre_exact loss;
    int64_t n_correct;
    int64_t n_not_finite;
} desk;

typedef struct evaluation {
    const cadre_task *task;
    int rank;
    int world_size;
    atomic_int_least64_t n_taken; // of this rank's passes
    desk *desks;                  // one per thread
} evaluation;

static void count(desk *d, int64_t n_labels)
{
    for (int64_t i = 0; i < n_labels; i++) {
        d->n_correct += d->classes[i] == d->labels[i];
        d->n_not_finite += !cadre_exact_add(&d->loss, (double)d->losses[i]);
    }
}

static cadre_status evaluate_passes(
    cadre_net_worker *worker, int thread, void *ctx)
{
    evaluation *e = ctx;
    desk *d = &e->desks[thread];
    const cadre_dataset *data = e->task->test;
    const int64_t most = pass_samples(data);
    const int64_t n_labels = cadre_dataset_labels(data);
    for (;;) {
        // Relaxed: the number is all that is shared, the sums have no order.
        int64_t mine =
            atomic_fetch_add_explicit(&e->n_taken, 1, memory_order_relaxed);
        int64_t first = (mine * e->world_size + e->rank) * most;
        if (first >= data->n_samples) {
            return CADRE_OK;
        }
        int64_t left = data->n_samples - first;
        int64_t n_samples = left < most ? left : most;
        for (int64_t i = 0; i < n_samples; i++) {
            const cadre_place place = {.sample = first + i};
            CADRE_TRY(cadre_dataset_read(data, place,
                d->x + i * data->sample_elements, d->labels + i * n_labels));
        }
        CADRE_TRY(cadre_net_predict(worker, e->task->params, d->x, d->labels,
            n_samples, d->losses, d->classes));
        count(d, n_samples * n_labels);
    }
}

static cadre_status make_desk(const cadre_dataset *data, desk *d)
{
    size_t n_elements = (size_t)(pass_samples(data) * data->sample_elements);
    size_t n_labels = (size_t)(pass_samples(data) * cadre_dataset_labels(data));
    d->x = cadre_alloc_array(n_elements, sizeof(d->x[0]));
    d->labels = cadre_alloc_array(n_labels, sizeof(d->labels[0]));
    d->losses = cadre_alloc_array(n_labels, sizeof(d->losses[0]));
    d->classes = cadre_alloc_array(n_labels, sizeof(d->classes[0]));
    bool complete = d->x != NULL && d->labels != NULL && d->losses != NULL &&
                    d->classes != NULL;
    return complete ? CADRE_OK : CADRE_ERR_NO_MEMORY;
}

static void release_desk(desk *d)
{
    cadre_free(d->x);
    cadre_free(d->labels);
    cadre_free(d->losses);
    cadre_free(d->classes);
}

// Adds up what all threads of all ranks found, as integers.
static cadre_status add_up(
    cadre_group *world, evaluation *e, int n_threads, cadre_eval_result *out)
{
    enum { CORRECT = CADRE_EXACT_WORDS, NOT_FINITE, N_WORDS };
    int64_t words[N_WORDS] = {0};
    cadre_exact mine = {0};
    for (int i = 0; i < n_threads; i++) {
        desk *d = &e->desks[i];
        cadre_exact_settle(&d->loss);
        cadre_exact_merge(&mine, d->loss.word);
        words[CORRECT] += d->n_correct;
        words[NOT_FINITE] += d->n_not_finite;
    }
    cadre_exact_settle(&mine);
    memcpy(words, mine.word, sizeof(mine.word));
    CADRE_TRY(cadre_allreduce(
        world, words, words, N_WORDS, CADRE_I64, CADRE_SUM, NULL));

    cadre_exact loss = {0};
    cadre_exact_merge(&loss, words);
    const cadre_dataset *data = e->task->test;
    const double bits = 1.4426950408889634; // of a natural unit
    const bool is_text = data->tokens > 0;
    double n_labels = (double)(data->n_samples * cadre_dataset_weight(data));
    double mean = words[NOT_FINITE] > 0 ? (double)NAN
                                        : cadre_exact_value(&loss) / n_labels;
    *out = (cadre_eval_result){
        .n_samples = data->n_samples,
        .loss = mean,
        .accuracy = is_text ? (double)NAN : (double)words[CORRECT] / n_labels,
        .bits_per_byte =
            is_text ? mean * bits / data->bytes_per_token : (double)NAN,
        .params_hash = cadre_model_hash(e->task->model),
    };
    return CADRE_OK;
}

cadre_status cadre_task_evaluate(cadre_group *world, const cadre_task *task,
    cadre_crew *crew, cadre_eval_result *out)
{
    int n_threads = cadre_crew_threads(crew);
    evaluation e = {
        .task = task,
        .rank = cadre_rank(world),
        .world_size = cadre_world_size(world),
        .desks = cadre_alloc_array((size_t)n_threads, sizeof(desk)),
    };
    if (e.desks == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = CADRE_OK;
    for (int i = 0; i < n_threads && status == CADRE_OK; i++) {
        status = make_desk(task->test, &e.desks[i]);
    }
    if (status == CADRE_OK) {
        status = cadre_crew_run(crew, evaluate_passes, &e);
    }
    if (status == CADRE_OK) {
        status = add_up(world, &e, n_threads, out);
    }
    for (int i = 0; i < n_threads; i++) {
        release_desk(&e.desks[i]);
    }
    cadre_free(e.desks);
    return status;
}

cadre_status cadre_evaluate(cadre_group *world,
    const cadre_train_config *config, const char *model_path,
    cadre_eval_result *out)
{
    if (world == NULL || config == NULL || model_path == NULL || out == NULL) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "cadre_evaluate needs a group, a configuration, a model and out");
    }
    cadre_thread_plain_floats();
    cadre_task task;
    CADRE_TRY(cadre_task_open(world, config, false, &task));
    cadre_crew *crew = NULL;
    cadre_status status = cadre_model_load(task.model, model_path);
    if (status == CADRE_OK) {
        const cadre_claim claim = {
            .params_hash = cadre_model_hash(task.model),
            .test_hash = task.test->content_hash,
            .n_test = task.test->n_samples,
        };
        status = cadre_claim_compare(world, &claim);
    }
    if (status == CADRE_OK) {
        const int64_t sizes[] = {pass_samples(task.test)};
        status = cadre_crew_create(task.net, config->threads, sizes, 1, &crew);
    }
    if (status == CADRE_OK) {
        status = cadre_task_evaluate(world, &task, crew, out);
    }
    cadre_crew_destroy(crew);
    cadre_task_close(&task);
    return status;
}
