// SPDX-License-Identifier: Apache-2.0

#include "data/masked.h"

#include "base/alloc.h"
#include "base/random.h"
#include "data/text.h"

typedef struct masked {
    cadre_dataset base;
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

void cadre_mask(const cadre_mask_key *key, int64_t n_numbers, int64_t n_tokens,
    float *x, int32_t *labels)
{
    enum { OF = 10, MASKED = 8, REPLACED = 9 };
    int64_t missing = cadre_masked_count(n_tokens);
    for (int64_t t = 0; t < n_tokens; t++) {
        uint32_t words[4];
        cadre_random_words(key->seed, CADRE_STREAM_MASK, (uint32_t)key->epoch,
            (uint64_t)(key->sample * n_tokens + t), words);
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

static cadre_status open_masked(
    const char *path, cadre_split split, int64_t context, cadre_dataset **out)
{
    masked *m = cadre_alloc(sizeof(*m));
    if (m == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = cadre_text.open(path, split, context, &m->whole);
    if (status != CADRE_OK) {
        cadre_free(m);
        return status;
    }
    m->base = *m->whole;
    m->base.ops = &cadre_masked_text;
    m->base.n_classes++;
    m->base.n_masked = cadre_masked_count(context);
    *out = &m->base;
    return CADRE_OK;
}

static void close_masked(cadre_dataset *dataset)
{
    cadre_dataset_close(as_masked(dataset)->whole);
    cadre_free(dataset);
}

static void read_masked(
    const cadre_dataset *dataset, int64_t index, float *x, int32_t *labels)
{
    const cadre_dataset *whole = as_const_masked(dataset)->whole;
    cadre_dataset_read(whole, index, x, labels);
    const cadre_mask_key key = {.sample = index};
    cadre_mask(&key, whole->n_classes, whole->tokens, x, labels);
}

const cadre_dataset_ops cadre_masked_text = {
    .kind = "masked_text",
    .open = open_masked,
    .read = read_masked,
    .close = close_masked,
};
