// SPDX-License-Identifier: Apache-2.0
//
// Text from a trained model, token by token, which are bytes if there is no
// tokenizer: a reader keeps what the model knows of those before, and the scores
// behind the last decide the next.  When they are as many as the model looks
// back at, the first half is forgotten, and the other one is read again.  What is
// drawn is a function of (seed, place in the text).

#include "base/alloc.h"
#include "base/fail.h"
#include "base/random.h"
#include "base/thread.h"
#include "nn/exp.h"
#include "nn/reader.h"
#include "train/task.h"
#include <math.h>
#include <string.h>

typedef struct writer {
    const cadre_generate_options *options;
    const cadre_task *task;
    cadre_net_reader *reader;
    int64_t context;
    float *window;   // (context): the last tokens, then whatever
    int64_t n_known; // of these; the reader has read the first of them
    int n_classes;   // that a token can be; room for as many:
    bool *may;       // which may be drawn
    bool *rest;
    double *upto;  // sums of probabilities
    bool unwanted; // what would follow
} writer;

static void push(writer *w, int32_t token)
{
    if (w->n_known == w->context) {
        int64_t kept = w->context / 2;
        memmove(w->window, w->window + w->context - kept,
            (size_t)kept * sizeof(w->window[0]));
        w->n_known = kept;
        cadre_net_reader_restart(w->reader);
    }
    w->window[w->n_known++] = (float)token;
}

// The likeliest token of those that may be drawn, the first of equal ones.
static int likeliest(const float *scores, const bool *may, int n_classes)
{
    int best = -1;
    for (int i = 0; i < n_classes; i++) {
        if (may[i] && (best < 0 || scores[i] > scores[best])) {
            best = i;
        }
    }
    return best;
}

// Which tokens may be drawn: the likeliest so many.
static void choose(const writer *w, const float *scores)
{
    int top_k = w->options->top_k;
    bool all = top_k == 0 || top_k >= w->n_classes;
    for (int i = 0; i < w->n_classes; i++) {
        w->rest[i] = true;
        w->may[i] = all;
    }
    for (int k = 0; k < top_k && !all; k++) {
        int next = likeliest(scores, w->rest, w->n_classes);
        w->may[next] = true;
        w->rest[next] = false;
    }
}

// Draws with probabilities proportional to e^(score / temperature).
static int draw(const writer *w, const float *scores, int64_t place)
{
    const float temperature = (float)w->options->temperature;
    choose(w, scores);
    const int best = likeliest(scores, w->may, w->n_classes);
    if (!(temperature > 0)) {
        return best;
    }
    double sum = 0;
    for (int i = 0; i < w->n_classes; i++) {
        float lead = (scores[i] - scores[best]) / temperature;
        sum += w->may[i] ? (double)cadre_exp(lead) : 0;
        w->upto[i] = sum;
    }
    uint32_t words[4];
    cadre_random_words(
        w->options->seed, CADRE_STREAM_GENERATE, 0, (uint64_t)place, words);
    double at = (double)cadre_random_unit(words[0]) * sum;
    for (int i = 0; i < w->n_classes; i++) {
        if (w->may[i] && w->upto[i] > at) {
            return i;
        }
    }
    return best;
}

static void write_token(writer *w, int32_t token)
{
    const uint8_t byte = (uint8_t)token;
    const uint8_t *bytes = &byte;
    size_t n = 1;
    if (w->task->tokenizer != NULL) {
        bytes = cadre_tokenizer_decode(w->task->tokenizer, token, &n);
    }
    for (size_t i = 0; i < n && !w->unwanted; i++) {
        w->unwanted = !w->options->write(bytes[i], w->options->ctx);
    }
}

static cadre_status go_on(writer *w, int64_t place)
{
    const float *scores;
    int64_t read = cadre_net_reader_place(w->reader);
    CADRE_TRY(cadre_net_reader_read(w->reader, w->task->params,
        w->window + read, w->n_known - read, &scores));
    for (int i = 0; i < w->n_classes; i++) {
        if (!isfinite(scores[i])) {
            return cadre_fail(CADRE_ERR_NOT_FINITE,
                "the model's scores are no finite numbers: it learned nothing");
        }
    }
    int32_t token = draw(w, scores, place);
    push(w, token);
    write_token(w, token);
    return CADRE_OK;
}

static cadre_status read_prompt(writer *w)
{
    const char *prompt = w->options->prompt;
    if (w->task->tokenizer == NULL) {
        for (size_t i = 0; prompt[i] != '\0'; i++) {
            push(w, (uint8_t)prompt[i]);
        }
        return CADRE_OK;
    }
    int32_t *tokens;
    size_t n;
    CADRE_TRY(cadre_tokenizer_encode(w->task->tokenizer,
        (const uint8_t *)prompt, strlen(prompt), &tokens, &n));
    for (size_t i = 0; i < n; i++) {
        push(w, tokens[i]);
    }
    cadre_free(tokens);
    return CADRE_OK;
}

static cadre_status make_room(writer *w)
{
    size_t n = (size_t)w->n_classes;
    w->window = cadre_alloc_array((size_t)w->context, sizeof(w->window[0]));
    w->may = cadre_alloc_array(n, sizeof(w->may[0]));
    w->rest = cadre_alloc_array(n, sizeof(w->rest[0]));
    w->upto = cadre_alloc_array(n, sizeof(w->upto[0]));
    bool complete = w->window != NULL && w->may != NULL && w->rest != NULL &&
                    w->upto != NULL;
    return complete ? CADRE_OK : CADRE_ERR_NO_MEMORY;
}

static cadre_status write_all(writer *w)
{
    CADRE_TRY(cadre_net_reader_create(w->task->net, &w->reader));
    CADRE_TRY(make_room(w));
    CADRE_TRY(read_prompt(w));
    for (int64_t i = 0; i < w->options->length && !w->unwanted; i++) {
        CADRE_TRY(go_on(w, i));
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
    if (options->top_k < 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "the likeliest %d bytes are to be drawn from: at least 1 is "
            "needed, or 0 for all",
            options->top_k);
    }
    return CADRE_OK;
}

cadre_status cadre_generate(cadre_group *world,
    const cadre_train_config *config, const char *model_path,
    const cadre_generate_options *options)
{
    if (world == NULL || config == NULL || model_path == NULL ||
        options == NULL || options->write == NULL) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "cadre_generate needs a group, a configuration, a model, and "
            "options with a function that writes");
    }
    CADRE_TRY(check(options));
    cadre_thread_plain_floats();
    cadre_task task;
    CADRE_TRY(cadre_task_open_writer(world, config, &task));
    writer w = {
        .options = options,
        .task = &task,
        .context = config->model_context,
        .n_classes = cadre_task_numbers(&task),
    };
    cadre_status status = cadre_model_load(task.model, model_path);
    if (status == CADRE_OK) {
        status = write_all(&w);
    }
    cadre_free(w.window);
    cadre_free(w.may);
    cadre_free(w.rest);
    cadre_free(w.upto);
    cadre_net_reader_destroy(w.reader);
    cadre_task_close(&task);
    return status;
}
