// SPDX-License-Identifier: Apache-2.0
//
// Text from a trained GPT, byte by byte: the last bytes, as many as the model
// looks back at, go through the net, and the scores behind the last of them
// decide the next.  What is drawn is a function of (seed, place in the text).

#include "base/alloc.h"
#include "base/fail.h"
#include "base/random.h"
#include "base/thread.h"
#include "nn/exp.h"
#include "train/task.h"
#include <math.h>
#include <string.h>

enum { BYTES = 256 }; // that a byte can be

typedef struct writer {
    const cadre_generate_options *options;
    const cadre_task *task;
    cadre_net_worker *worker;
    int64_t context;
    float *window;   // (context): the last bytes, then whatever
    int64_t n_known; // of these
} writer;

static void push(writer *w, uint8_t byte)
{
    if (w->n_known == w->context) {
        memmove(w->window, w->window + 1,
            (size_t)(w->context - 1) * sizeof(w->window[0]));
        w->n_known--;
    }
    w->window[w->n_known++] = byte;
}

static int likeliest(const float *scores)
{
    int best = 0;
    for (int i = 1; i < BYTES; i++) {
        best = scores[i] > scores[best] ? i : best;
    }
    return best;
}

// Draws with probabilities proportional to e^(score / temperature).
static int draw(const writer *w, const float *scores, int64_t place)
{
    const float temperature = (float)w->options->temperature;
    const float top = scores[likeliest(scores)];
    double upto[BYTES];
    double sum = 0;
    for (int i = 0; i < BYTES; i++) {
        sum += (double)cadre_exp((scores[i] - top) / temperature);
        upto[i] = sum;
    }
    uint32_t words[4];
    cadre_random_words(
        w->options->seed, CADRE_STREAM_GENERATE, 0, (uint64_t)place, words);
    double at = (double)cadre_random_unit(words[0]) * sum;
    int chosen = 0;
    while (chosen < BYTES - 1 && !(upto[chosen] > at)) {
        chosen++;
    }
    return chosen;
}

static cadre_status write_byte(writer *w, int64_t place)
{
    cadre_matrix_view scores;
    CADRE_TRY(
        cadre_net_scores(w->worker, w->task->params, w->window, 1, &scores));
    const float *row = cadre_matrix_view_row(scores, w->n_known - 1);
    for (int i = 0; i < BYTES; i++) {
        if (!isfinite(row[i])) {
            return cadre_fail(CADRE_ERR_NOT_FINITE,
                "the model's scores are no finite numbers: it learned nothing");
        }
    }
    uint8_t byte =
        (uint8_t)((float)w->options->temperature > 0 ? draw(w, row, place)
                                                     : likeliest(row));
    push(w, byte);
    w->options->write(byte, w->options->ctx);
    return CADRE_OK;
}

static cadre_status write_all(writer *w)
{
    CADRE_TRY(
        cadre_net_worker_create(w->task->net, (int64_t[]){1}, 1, &w->worker));
    w->window = cadre_alloc_array((size_t)w->context, sizeof(w->window[0]));
    if (w->window == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    const char *prompt = w->options->prompt;
    for (size_t i = 0; prompt[i] != '\0'; i++) {
        push(w, (uint8_t)prompt[i]);
    }
    for (int64_t i = 0; i < w->options->length; i++) {
        CADRE_TRY(write_byte(w, i));
    }
    return CADRE_OK;
}

static cadre_status check(const cadre_generate_options *options)
{
    if (options->prompt == NULL || options->prompt[0] == '\0') {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "the prompt is empty: a first byte is needed to go on from");
    }
    if (options->length < 0 || !(options->temperature >= 0)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "a length of %lld bytes and a temperature of %g: neither may be "
            "below 0",
            (long long)options->length, options->temperature);
    }
    return CADRE_OK;
}

cadre_status cadre_generate(cadre_group *world,
    const cadre_train_config *config, const char *model_path,
    const cadre_generate_options *options)
{
    CADRE_TRY(check(options));
    cadre_thread_plain_floats();
    cadre_task task;
    CADRE_TRY(cadre_task_open_writer(world, config, &task));
    writer w = {
        .options = options, .task = &task, .context = config->model_context};
    cadre_status status = cadre_model_load(task.model, model_path);
    if (status == CADRE_OK) {
        status = write_all(&w);
    }
    cadre_free(w.window);
    cadre_net_worker_destroy(w.worker);
    cadre_task_close(&task);
    return status;
}
