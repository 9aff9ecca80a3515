// SPDX-License-Identifier: Apache-2.0

#include "data/text.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/hash.h"
#include "data/program.h"
#include "data/token_text.h"
#include "data/tokens.h"
#include "data/whole_file.h"
#include <inttypes.h>
#include <stdbool.h>

enum { CLASSES = 256 };

// It lies in memory as a whole.
enum { MOST_BYTES = 1 << 30 };

typedef struct text {
    cadre_dataset base;
    uint8_t *bytes;       // of both splits
    const uint8_t *first; // of this split
} text;

static text *as_text(cadre_dataset *dataset)
{
    return (text *)dataset;
}

static const text *as_const_text(const cadre_dataset *dataset)
{
    return (const text *)dataset;
}

static cadre_status read_file(const char *path, uint8_t **bytes, size_t *nbytes)
{
    cadre_status status =
        cadre_whole_file_read(path, MOST_BYTES, bytes, nbytes);
    return status == CADRE_OK
               ? status
               : cadre_fail(status, "%s; data.path has to name a file of text",
                     cadre_error_text());
}

static cadre_status read_bible(uint8_t **bytes, size_t *nbytes)
{
    enum { TIMEOUT_MS = 60000 };
    static const char *const argv[] = {
        "/usr/bin/bible", "-f", "Gen1:1-Rev22:21", NULL};
    cadre_status status =
        cadre_program_output(argv, MOST_BYTES, TIMEOUT_MS, bytes, nbytes);
    return status == CADRE_ERR_NOT_FOUND
               ? cadre_fail(status,
                     "%s; install the Debian package bible-kjv, or set "
                     "data.path to a file of text",
                     cadre_error_text())
               : status;
}

cadre_status cadre_text_read(const char *path, uint8_t **bytes, size_t *nbytes)
{
    return path == NULL ? read_bible(bytes, nbytes)
                        : read_file(path, bytes, nbytes);
}

cadre_status cadre_text_cut(int64_t count, const char *what,
    const cadre_dataset_options *options, int64_t *first, int64_t *n)
{
    int64_t n_train = count / 100 * 95 + count % 100 * 95 / 100;
    bool trains = options->split == CADRE_SPLIT_TRAIN;
    *first = trains ? 0 : n_train;
    *n = trains ? n_train : count - n_train;
    return options->context >= 1 && *n > options->context
               ? CADRE_OK
               : cadre_fail(CADRE_ERR_INVALID_ARG,
                     "the %s part of the text has %" PRId64
                     " %s, too few for samples of model.context %" PRId64,
                     trains ? "training" : "test", *n, what, options->context);
}

static cadre_status cut(
    text *t, size_t nbytes, const cadre_dataset_options *options)
{
    const int64_t context = options->context;
    int64_t first;
    int64_t n;
    CADRE_TRY(cadre_text_cut((int64_t)nbytes, "bytes", options, &first, &n));
    t->first = t->bytes + first;
    t->base = (cadre_dataset){
        .ops = &cadre_text,
        .n_samples = (n - 1) / context,
        .sample_elements = context,
        .channels = 1,
        .height = 1,
        .width = 1,
        .tokens = context,
        .n_classes = CLASSES,
        .bytes_per_token = 1,
        .content_hash = cadre_hash(t->first, (size_t)n, 0),
    };
    return CADRE_OK;
}

static void close_text(cadre_dataset *dataset)
{
    text *t = as_text(dataset);
    cadre_free(t->bytes);
    cadre_free(t);
}

static cadre_status open_bytes(
    const cadre_dataset_options *options, cadre_dataset **out)
{
    text *t = cadre_alloc(sizeof(*t));
    if (t == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    size_t nbytes = 0;
    cadre_status status = cadre_text_read(options->path, &t->bytes, &nbytes);
    if (status == CADRE_OK) {
        status = cut(t, nbytes, options);
    }
    if (status != CADRE_OK) {
        close_text(&t->base);
        return status;
    }
    *out = &t->base;
    return CADRE_OK;
}

static cadre_status open_text(
    const cadre_dataset_options *options, cadre_dataset **out)
{
    bool in_tokens =
        options->path != NULL && cadre_tokens_are_in(options->path);
    if (options->cache != NULL && (in_tokens || options->tokenizer == NULL)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "data.cache is given, but %s there are no tokens to keep",
            in_tokens ? "of a file of tokens" : "without data.tokenizer");
    }
    return in_tokens || options->tokenizer != NULL
               ? cadre_token_text_open(options, out)
               : open_bytes(options, out);
}

static cadre_status read_text(
    const cadre_dataset *dataset, cadre_place place, float *x, int32_t *labels)
{
    const uint8_t *bytes =
        as_const_text(dataset)->first + place.sample * dataset->tokens;
    for (int64_t i = 0; i < dataset->tokens; i++) {
        x[i] = bytes[i];
        labels[i] = bytes[i + 1];
    }
    return CADRE_OK;
}

const cadre_dataset_ops cadre_text = {
    .kind = "text",
    .open = open_text,
    .read = read_text,
    .close = close_text,
};
