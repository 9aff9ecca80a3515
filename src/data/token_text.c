// SPDX-License-Identifier: Apache-2.0

#include "data/token_text.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/text.h"
#include "data/tokenizer.h"
#include "data/tokens.h"
#include <inttypes.h>
#include <string.h>

typedef struct token_text {
    cadre_dataset base;
    cadre_tokens tokens; // of both splits
    int64_t first;       // of this split
    char file[];         // where they may come from, if they do from one
} token_text;

static token_text *as_token_text(cadre_dataset *dataset)
{
    return (token_text *)dataset;
}

static const token_text *as_const_token_text(const cadre_dataset *dataset)
{
    return (const token_text *)dataset;
}

// --- from text to tokens ---

// A text, and what is to cut it.
typedef struct source {
    const cadre_dataset_options *options;
    cadre_tokenizer *tokenizer;
    uint8_t *text;
    size_t nbytes;
    uint64_t hash; // of both
} source;

static cadre_status encode(const source *s, cadre_tokens *out)
{
    cadre_log(CADRE_LOG_INFO, "data",
        "%zu bytes of text are made tokens, of which there are %" PRId32,
        s->nbytes, cadre_tokenizer_vocabulary(s->tokenizer));
    int32_t *tokens;
    size_t count;
    CADRE_TRY(cadre_tokenizer_encode(
        s->tokenizer, s->text, s->nbytes, &tokens, &count));
    const cadre_tokens_facts facts = {
        .vocabulary = cadre_tokenizer_vocabulary(s->tokenizer),
        .text_bytes = (int64_t)s->nbytes,
        .source = s->hash,
    };
    cadre_status status = cadre_tokens_pack(tokens, count, &facts, out);
    cadre_free(tokens);
    return status;
}

static cadre_status check_cache(
    const source *s, const char *cache, const cadre_tokens *t)
{
    return t->source == s->hash &&
                   t->vocabulary == cadre_tokenizer_vocabulary(s->tokenizer)
               ? CADRE_OK
               : cadre_fail(CADRE_ERR_INVALID_ARG,
                     "data.cache '%s' holds tokens of another text or "
                     "tokenizer: remove it, or name another file",
                     cache);
}

// Adds to a failure what can be done about it.
static cadre_status advise(cadre_status status)
{
    return status == CADRE_ERR_IO
               ? cadre_fail(status,
                     "%s; data.cache is to be a file in a folder that is there "
                     "and takes it",
                     cadre_error_text())
               : status;
}

// Makes the tokens and leaves them in the cache.  That this is possible is seen
// before, since a long text takes minutes.
static cadre_status fill_cache(
    const source *s, const char *cache, cadre_tokens *out)
{
    CADRE_TRY(advise(cadre_tokens_try(cache)));
    CADRE_TRY(encode(s, out));
    return advise(cadre_tokens_save(out, cache));
}

// Takes the tokens from the cache, where they are, or fills it.
static cadre_status take_tokens(const source *s, cadre_tokens *out)
{
    const char *cache = s->options->cache;
    if (cache == NULL) {
        return encode(s, out);
    }
    cadre_status status = cadre_tokens_map(cache, out);
    if (status == CADRE_OK) {
        return check_cache(s, cache, out);
    }
    return status == CADRE_ERR_NOT_FOUND ? fill_cache(s, cache, out) : status;
}

static cadre_status open_source(source *s)
{
    CADRE_TRY(cadre_tokenizer_open(s->options->tokenizer, &s->tokenizer));
    CADRE_TRY(cadre_text_read(s->options->path, &s->text, &s->nbytes));
    s->hash =
        cadre_hash(s->text, s->nbytes, cadre_tokenizer_hash(s->tokenizer));
    return CADRE_OK;
}

// A tokenizer has no work here, but writes what a model learns from the tokens.
static cadre_status check_vocabulary(
    const cadre_dataset_options *options, const cadre_tokens *tokens)
{
    if (options->tokenizer == NULL) {
        return CADRE_OK;
    }
    cadre_tokenizer *t;
    CADRE_TRY(cadre_tokenizer_open(options->tokenizer, &t));
    int32_t n = cadre_tokenizer_vocabulary(t);
    cadre_tokenizer_close(t);
    return n == tokens->vocabulary
               ? CADRE_OK
               : cadre_fail(CADRE_ERR_INVALID_ARG,
                     "'%s' holds tokens of a vocabulary of %" PRId32
                     ", but that of data.tokenizer has %" PRId32,
                     options->path, tokens->vocabulary, n);
}

static cadre_status map_tokens(
    const cadre_dataset_options *options, cadre_tokens *out)
{
    CADRE_TRY(cadre_tokens_map(options->path, out));
    return check_vocabulary(options, out);
}

static cadre_status find_tokens(
    const cadre_dataset_options *options, cadre_tokens *out)
{
    if (options->path != NULL && cadre_tokens_are_in(options->path)) {
        return map_tokens(options, out);
    }
    source s = {.options = options};
    cadre_status status = open_source(&s);
    if (status == CADRE_OK) {
        status = take_tokens(&s, out);
    }
    cadre_free(s.text);
    cadre_tokenizer_close(s.tokenizer);
    return status;
}

// --- the data set ---

static void close_token_text(cadre_dataset *dataset)
{
    token_text *t = as_token_text(dataset);
    cadre_tokens_fini(&t->tokens);
    cadre_free(t);
}

static cadre_status read_token_text(
    const cadre_dataset *dataset, cadre_place place, float *x, int32_t *labels)
{
    const token_text *t = as_const_token_text(dataset);
    const int64_t first = t->first + place.sample * dataset->tokens;
    const uint32_t vocabulary = (uint32_t)t->tokens.vocabulary;
    uint32_t token = cadre_token_at(&t->tokens, first);
    uint32_t most = token;
    for (int64_t i = 0; i < dataset->tokens; i++) {
        x[i] = (float)token;
        token = cadre_token_at(&t->tokens, first + i + 1);
        labels[i] = (int32_t)token;
        most = token > most ? token : most;
    }
    return most < vocabulary
               ? CADRE_OK
               : cadre_fail(CADRE_ERR_CORRUPT,
                     "'%s' is a damaged file of tokens: it has token %" PRIu32
                     ", of %" PRIu32,
                     t->file, most, vocabulary);
}

static const cadre_dataset_ops token_text_ops = {
    .kind = "text",
    .open = cadre_token_text_open,
    .read = read_token_text,
    .close = close_token_text,
};

static cadre_status cut(token_text *t, const cadre_dataset_options *options)
{
    const cadre_tokens *tokens = &t->tokens;
    const int64_t words[] = {(int64_t)tokens->hash, tokens->count,
        tokens->vocabulary, (int64_t)options->split};
    int64_t n;
    CADRE_TRY(cadre_text_cut(tokens->count, "tokens", options, &t->first, &n));
    t->base = (cadre_dataset){
        .ops = &token_text_ops,
        .n_samples = (n - 1) / options->context,
        .sample_elements = options->context,
        .channels = 1,
        .height = 1,
        .width = 1,
        .tokens = options->context,
        .n_classes = tokens->vocabulary,
        .bytes_per_token = (double)tokens->text_bytes / (double)tokens->count,
        .content_hash = cadre_hash(words, sizeof(words), 0),
    };
    return CADRE_OK;
}

cadre_status cadre_token_text_open(
    const cadre_dataset_options *options, cadre_dataset **out)
{
    const char *file = options->cache != NULL  ? options->cache
                       : options->path != NULL ? options->path
                                               : "";
    size_t nbytes = strlen(file) + 1;
    token_text *t = cadre_alloc(sizeof(*t) + nbytes);
    if (t == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    memcpy(t->file, file, nbytes);
    cadre_status status = find_tokens(options, &t->tokens);
    if (status == CADRE_OK) {
        status = cut(t, options);
    }
    if (status != CADRE_OK) {
        close_token_text(&t->base);
        return status;
    }
    *out = &t->base;
    return CADRE_OK;
}
