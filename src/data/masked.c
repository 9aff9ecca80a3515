// SPDX-License-Identifier: Apache-2.0

#include "data/masked.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/random.h"
#include "data/text.h"

typedef struct masked {
    cadre_dataset base;
    uint64_t seed;
    cadre_dataset *whole; // the text without gaps
} masked;

static masked *as_masked(cadre_dataset *dataset)
{
    return (masked *)dataset;
}

static const masked *as_const_masked(const cadre_dataset *dataset)
{
    return (const masked *)dataset;
}

// A number below n from a random word.
static int64_t below(uint32_t word, int64_t n)
{
    return (int64_t)((uint64_t)word * (uint64_t)n >> 32);
}

void cadre_mask(uint64_t seed, cadre_place place, int64_t n_numbers,
    int64_t n_tokens, float *x, int32_t *labels)
{
    enum { OF = 10, MASKED = 8, REPLACED = 9 };
    int64_t missing = cadre_masked_count(n_tokens);
    for (int64_t t = 0; t < n_tokens; t++) {
        uint32_t words[4];
        cadre_random_words(seed, CADRE_STREAM_MASK, (uint32_t)place.epoch,
            (uint64_t)(place.sample * n_tokens + t), words);
        // Each set of so many places is as likely as any other.
        if (below(words[0], n_tokens - t) >= missing) {
            labels[t] = CADRE_DATA_NO_LABEL;
            continue;
        }
        missing--;
        labels[t] = (int32_t)x[t];
        int64_t lot = below(words[1], OF);
        if (lot < MASKED) {
            x[t] = (float)n_numbers;
        } else if (lot < REPLACED) {
            x[t] = (float)below(words[2], n_numbers);
        }
    }
}

// A test has the same gaps whatever the seed.
static cadre_status open_masked(
    const cadre_dataset_options *options, cadre_dataset **out)
{
    masked *m = cadre_alloc(sizeof(*m));
    if (m == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = cadre_text.open(options, &m->whole);
    if (status != CADRE_OK) {
        cadre_free(m);
        return status;
    }
    m->base = *m->whole;
    m->base.ops = &cadre_masked_text;
    m->base.n_classes++;
    m->base.n_masked = cadre_masked_count(options->context);
    m->seed = options->split == CADRE_SPLIT_TRAIN ? options->seed : 0;
    *out = &m->base;
    return CADRE_OK;
}

static void close_masked(cadre_dataset *dataset)
{
    cadre_dataset_close(as_masked(dataset)->whole);
    cadre_free(dataset);
}

static cadre_status read_masked(
    const cadre_dataset *dataset, cadre_place place, float *x, int32_t *labels)
{
    const masked *m = as_const_masked(dataset);
    CADRE_TRY(cadre_dataset_read(m->whole, place, x, labels));
    cadre_mask(
        m->seed, place, m->whole->n_classes, m->whole->tokens, x, labels);
    return CADRE_OK;
}

const cadre_dataset_ops cadre_masked_text = {
    .kind = "masked_text",
    .open = open_masked,
    .read = read_masked,
    .close = close_masked,
};
