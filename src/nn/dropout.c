// SPDX-License-Identifier: Apache-2.0
//
// y = x / (1 - rate) for the elements that stay, 0 for those that are dropped,
// each with probability rate.  A prediction drops nothing.
//
// Which ones is a function of (seed, step, layer, the row's place in the global
// batch, the element's place in the row): of nothing that knows which
// rank, thread or pass computes it, nor how images lie in memory.  So backward
// draws the same numbers again instead of keeping them.

#include "base/fail.h"
#include "base/random.h"
#include "nn/layer.h"
#include <math.h>

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

// Where channel c of a sample's first pixel lies.
static int64_t place_of(cadre_shape s, int64_t c)
{
    return c / s.block * s.height * s.width * s.block + c % s.block;
}

static void clear_places_without_channel(cadre_shape s, float *y)
{
    for (int64_t c = s.channels; c < cadre_shape_blocks(s) * s.block; c++) {
        for (int64_t p = 0; p < s.height * s.width; p++) {
            y[place_of(s, c) + p * s.block] = 0.0f;
        }
    }
}

// Element e = c * pixels + p of a sample lies at channel c's place.
static void drop(const cadre_layer_plan *plan, uint64_t key, uint32_t sample,
    const float *x, float *y)
{
    const cadre_shape s = plan->in;
    const int64_t pixels = s.height * s.width;
    const float scale = 1.0f / (1.0f - plan->rate);
    uint32_t words[4];
    uint64_t e = 0;
    for (int64_t c = 0; c < s.channels; c++) {
        int64_t first = place_of(s, c);
        for (int64_t p = 0; p < pixels; p++, e++) {
            if (e % 4 == 0) {
                cadre_random_words(
                    key, CADRE_STREAM_DROPOUT, sample, e / 4, words);
            }
            bool stays = cadre_random_unit(words[e % 4]) >= plan->rate;
            int64_t at = first + p * s.block;
            y[at] = stays ? x[at] * scale : 0.0f;
        }
    }
    clear_places_without_channel(s, y);
}

static void drop_all(
    const cadre_layer_call *call, cadre_matrix_view x, cadre_matrix y)
{
    uint64_t key = key_of(call);
    int64_t first = call->pass->first_sample * cadre_shape_rows(call->plan->in);
    for (int64_t n = 0; n < y.rows; n++) {
        drop(call->plan, key, (uint32_t)(first + n),
            cadre_matrix_view_row(x, n), cadre_matrix_row(y, n));
    }
}

static cadre_status forward(const cadre_layer_call *call, cadre_matrix y)
{
    if (call->pass == NULL) {
        cadre_matrix_copy(call->x, y);
    } else {
        drop_all(call, call->x, y);
    }
    return CADRE_OK;
}

static cadre_status input_gradient(
    const cadre_layer_call *call, cadre_matrix dx)
{
    drop_all(call, call->dy, dx);
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
