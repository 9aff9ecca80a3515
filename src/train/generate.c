// SPDX-License-Identifier: Apache-2.0
//
// Text from a trained model, byte by byte: a reader keeps what the model knows
// of those before, and the scores behind the last decide the next.  When they
// are as many as the model looks back at, the first half is forgotten, and the
// other one is read again.  What is drawn is a function of (seed, place in the
// text).

#include "base/alloc.h"
#include "base/fail.h"
#include "base/random.h"
#include "base/thread.h"
#include "nn/exp.h"
#include "nn/reader.h"
#include "train/task.h"
#include <math.h>
#include <string.h>

enum { BYTES = 256 }; // that a byte can be

typedef struct writer {
    const cadre_generate_options *options;
    const cadre_task *task;
    cadre_net_reader *reader;
    int64_t context;
    float *window;   // (context): the last bytes, then whatever
    int64_t n_known; // of these; the reader has read the first of them
} writer;

static void push(writer *w, uint8_t byte)
{
    if (w->n_known == w->context) {
        int64_t kept = w->context / 2;
        memmove(w->window, w->window + w->context - kept,
            (size_t)kept * sizeof(w->window[0]));
        w->n_known = kept;
        cadre_net_reader_restart(w->reader);
    }
    w->window[w->n_known++] = byte;
}

// The likeliest byte of those that may be drawn, the first of equal ones.
static int likeliest(const float *scores, const bool may[BYTES])
{
    int best = -1;
    for (int i = 0; i < BYTES; i++) {
        if (may[i] && (best < 0 || scores[i] > scores[best])) {
            best = i;
        }
    }
    return best;
}

// Which bytes may be drawn: the likeliest so many.
static void choose(const float *scores, int top_k, bool may[BYTES])
{
    bool rest[BYTES];
    bool all = top_k == 0 || top_k >= BYTES;
    for (int i = 0; i < BYTES; i++) {
        rest[i] = true;
        may[i] = all;
    }
    for (int k = 0; k < top_k && !all; k++) {
        int next = likeliest(scores, rest);
        may[next] = true;
        rest[next] = false;
    }
}

// Draws with probabilities proportional to e^(score / temperature).
static int draw(const writer *w, const float *scores, int64_t place)
{
    const float temperature = (float)w->options->temperature;
    bool may[BYTES];
    choose(scores, w->options->top_k, may);
    const int best = likeliest(scores, may);
    if (!(temperature > 0)) {
        return best;
    }
    double upto[BYTES];
    double sum = 0;
    for (int i = 0; i < BYTES; i++) {
        float lead = (scores[i] - scores[best]) / temperature;
        sum += may[i] ? (double)cadre_exp(lead) : 0;
        upto[i] = sum;
    }
    uint32_t words[4];
    cadre_random_words(
        w->options->seed, CADRE_STREAM_GENERATE, 0, (uint64_t)place, words);
    double at = (double)cadre_random_unit(words[0]) * sum;
    for (int i = 0; i < BYTES; i++) {
        if (may[i] && upto[i] > at) {
            return i;
        }
    }
    return best;
}

static cadre_status write_byte(writer *w, int64_t place)
{
    const float *scores;
    int64_t read = cadre_net_reader_place(w->reader);
    CADRE_TRY(cadre_net_reader_read(w->reader, w->task->params,
        w->window + read, w->n_known - read, &scores));
    for (int i = 0; i < BYTES; i++) {
        if (!isfinite(scores[i])) {
            return cadre_fail(CADRE_ERR_NOT_FINITE,
                "the model's scores are no finite numbers: it learned nothing");
        }
    }
    uint8_t byte = (uint8_t)draw(w, scores, place);
    push(w, byte);
    w->options->write(byte, w->options->ctx);
    return CADRE_OK;
}

static cadre_status write_all(writer *w)
{
    CADRE_TRY(cadre_net_reader_create(w->task->net, &w->reader));
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
    cadre_net_reader_destroy(w.reader);
    cadre_task_close(&task);
    return status;
}
