// SPDX-License-Identifier: Apache-2.0
//
// y = x / (1 - rate) for the elements that stay, 0 for those that are dropped,
// each with probability rate.  A prediction drops nothing.
//
// Which ones is a function of (seed, step, layer, the row's place in the global
// batch, the element's place in the row): of nothing that knows which
// rank, thread or pass computes it, nor how images lie in memory.  So backward
// draws the same numbers again instead of keeping them.

#include "base/check.h"
#include "base/fail.h"
#include "kernel/draw.h"
#include "kernel/vector.h"
#include "nn/layer.h"
#include <string.h>

// Element e of a row, counted channel by channel, takes word e % 4 of counter
// e / 4.  What is drawn at once is for a group of elements that lie side by side
// in memory: the next few of a row or of each channel of a block.
enum { WORDS = 4, COUNTERS = 32, GROUP = WORDS * COUNTERS };

static cadre_status plan_dropout(
    const cadre_layer *layer, cadre_layer_plan *plan)
{
    if (!(layer->rate > 0.0f && layer->rate < 1.0f)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "dropout of rate %g: above 0 and below 1 is needed",
            (double)layer->rate);
    }
    plan->rate = layer->rate;
    plan->out = plan->in;
    return CADRE_OK;
}

// The key of a layer's numbers in a step.
static uint64_t key_of(const cadre_layer_call *call)
{
    uint32_t words[4];
    cadre_random_words(call->pass->seed, CADRE_STREAM_DROPOUT,
        (uint32_t)call->plan->number, (uint64_t)call->pass->step, words);
    return (uint64_t)words[0] << 32 | words[1];
}

// What all rows of a call have in common.  A row that does not lie in blocks is
// one channel.
typedef struct dropping {
    uint64_t key;
    float rate;
    int64_t channels;
    int64_t block;
    int64_t pixels; // of a channel
    // Where the words of a group are, in the order of its elements in memory:
    // among those of a draw and, since a channel may begin amid a counter, of
    // the next.
    int at[GROUP];
} dropping;

static void find_words(dropping *d)
{
    // So all blocks begin with a counter's first word.
    CADRE_ASSERT(d->block == 1 || d->block % WORDS == 0);
    CADRE_ASSERT(COUNTERS % d->block == 0);
    const int block = (int)d->block;
    for (int p = 0; p < GROUP / block; p++) {
        for (int j = 0; j < block; j++) {
            int element = (int)(j * d->pixels % WORDS) + p;
            int i = element / WORDS * block + j;
            d->at[p * block + j] = i / COUNTERS * GROUP +
                                   element % WORDS * COUNTERS + i % COUNTERS;
        }
    }
}

static dropping dropping_of(const cadre_layer_call *call)
{
    const cadre_shape s = call->plan->in;
    const bool row = s.block == 1;
    dropping d = {
        .key = key_of(call),
        .rate = call->plan->rate,
        .channels = row ? 1 : s.channels,
        .block = s.block,
        .pixels = row ? cadre_shape_elements(s) : s.height * s.width,
    };
    find_words(&d);
    return d;
}

// The first counters of each channel of the block that begins with channel c.
static void find_counters(const dropping *d, int64_t c, uint64_t b[COUNTERS])
{
    for (int64_t i = 0; i < COUNTERS; i++) {
        b[i] = i < d->block ? (uint64_t)((c + i) * d->pixels / WORDS)
                            : b[i - d->block] + 1;
    }
}

static void draw_next(const dropping *d, uint32_t sample, uint64_t b[COUNTERS],
    uint32_t words[GROUP])
{
    const uint64_t step = (uint64_t)(COUNTERS / d->block);
    cadre_draw(d->key, CADRE_STREAM_DROPOUT, sample, b, COUNTERS, words);
    for (int i = 0; i < COUNTERS; i++) {
        b[i] += step;
    }
}

CADRE_VECTOR_BODY void drop_group_body(float *restrict y,
    const uint32_t *restrict words, const int *restrict at, float rate,
    int64_t n)
{
    const float scale = 1.0f / (1.0f - rate);
    for (int64_t i = 0; i < n; i++) {
        float kept = y[i] * scale;
        y[i] = cadre_random_unit(words[at[i]]) >= rate ? kept : 0.0f;
    }
}
CADRE_VECTOR(drop_group,
    (float *restrict y, const uint32_t *restrict words, const int *restrict at,
        float rate, int64_t n),
    (y, words, at, rate, n));

// y is the block's first element.
static void drop_block(const dropping *d, uint32_t sample, int64_t c, float *y)
{
    const cadre_isa isa = cadre_isa_in_use();
    const int64_t count = d->pixels * d->block;
    uint64_t b[COUNTERS];
    uint32_t words[2 * GROUP];
    find_counters(d, c, b);
    draw_next(d, sample, b, words);
    for (int64_t i = 0; i < count; i += GROUP) {
        int64_t n = count - i < GROUP ? count - i : GROUP;
        draw_next(d, sample, b, words + GROUP);
        drop_group[isa](y + i, words, d->at, d->rate, n);
        memcpy(words, words + GROUP, GROUP * sizeof(*words));
    }
}

static void drop_all(const cadre_layer_call *call, cadre_matrix y)
{
    const dropping d = dropping_of(call);
    int64_t first = call->pass->first_sample * cadre_shape_rows(call->plan->in);
    for (int64_t n = 0; n < y.rows; n++) {
        for (int64_t c = 0; c < d.channels; c += d.block) {
            drop_block(&d, (uint32_t)(first + n), c,
                cadre_matrix_row(y, n) + c * d.pixels);
        }
    }
}

static cadre_status forward(const cadre_layer_call *call, cadre_matrix y)
{
    cadre_matrix_copy(call->x, y);
    if (call->pass != NULL) {
        drop_all(call, y);
    }
    return CADRE_OK;
}

static cadre_status input_gradient(
    const cadre_layer_call *call, cadre_matrix dx)
{
    cadre_matrix_copy(call->dy, dx);
    drop_all(call, dx);
    return CADRE_OK;
}

const cadre_layer_ops cadre_dropout = {
    .kind = "dropout",
    .takes = CADRE_TAKES_RATE,
    .in_place = true,
    .plan = plan_dropout,
    .forward = forward,
    .input_gradient = input_gradient,
};
