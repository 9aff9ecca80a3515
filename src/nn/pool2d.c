// SPDX-License-Identifier: Apache-2.0
//
// Pooling: the highest, or the mean, of the elements in a square window that
// slides over each channel.  Of equal highest ones the first in row-major order
// takes the gradient; one that is not a number is the highest.  Padding is
// never the highest, and counts as zeros in the mean, as in PyTorch.  A window
// may be the whole image.

#include "base/fail.h"
#include "kernel/vector.h"
#include "nn/layer.h"
#include <string.h>

enum { N_LANES = 8 };

// In arrays of plain floats gcc keeps what is in hand in memory.
typedef float lanes __attribute__((vector_size(N_LANES * sizeof(float))));
typedef int32_t mask __attribute__((vector_size(N_LANES * sizeof(int32_t))));

static cadre_status plan_pool(const cadre_layer *layer, cadre_layer_plan *plan)
{
    plan->kernel = layer->kernel;
    plan->stride = layer->stride == 0 ? layer->kernel : layer->stride;
    plan->padding = layer->padding;
    plan->dilation = 1;
    if (plan->padding > plan->kernel / 2) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "padding %lld is more than half the kernel of %lld",
            (long long)plan->padding, (long long)plan->kernel);
    }
    plan->out = plan->in;
    return cadre_layer_slide(plan);
}

// The one window is clipped to the image, which may be no square.
static cadre_status plan_global(
    const cadre_layer *layer, cadre_layer_plan *plan)
{
    (void)layer;
    plan->kernel =
        plan->in.height > plan->in.width ? plan->in.height : plan->in.width;
    plan->stride = plan->kernel;
    plan->out = plan->in;
    plan->out.height = 1;
    plan->out.width = 1;
    return CADRE_OK;
}

// Cells of a window, padding included.
static float cells_of(const cadre_layer_plan *plan)
{
    return (float)(plan->ops == &cadre_global_avgpool2d
                       ? plan->in.height * plan->in.width
                       : plan->kernel * plan->kernel);
}

// Where a window lies in an image: rows [top, bottom), columns [left, right).
typedef struct window {
    int64_t top;
    int64_t bottom;
    int64_t left;
    int64_t right;
} window;

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// The window of an output's row and column, without padding.
static inline window window_of(
    const cadre_layer_plan *plan, int64_t row, int64_t column)
{
    int64_t top = row * plan->stride - plan->padding;
    int64_t left = column * plan->stride - plan->padding;
    return (window){
        .top = most(top, 0),
        .bottom = least(top + plan->kernel, plan->in.height),
        .left = most(left, 0),
        .right = least(left + plan->kernel, plan->in.width),
    };
}

// Whatever the block, channels go by in lanes: as many as there are, or one in
// the first of them.  load() and store() are given a constant.
CADRE_VECTOR_BODY void load(lanes *to, const float *from, int n)
{
    *to = (lanes){0};
    memcpy(to, from, (size_t)n * sizeof(*from));
}

CADRE_VECTOR_BODY void store(float *to, const lanes *from, int n)
{
    memcpy(to, from, (size_t)n * sizeof(*to));
}

// A walk over some channels of an image: floats from cell to cell and from row
// to row, and the channels.
typedef struct walk {
    int64_t step;
    int64_t row;
    int n;
    bool writes; // gradients, as windows have no cell in common; else adds them
    bool masks;  // what a ReLU made of x that is no more than 0 gets none
} walk;

CADRE_VECTOR_BODY void highest(
    const float *restrict x, window w, walk in, float *restrict y)
{
    lanes best;
    load(&best, x + w.top * in.row + w.left * in.step, in.n);
    for (int64_t h = w.top; h < w.bottom; h++) {
        const float *cell = x + h * in.row + w.left * in.step;
        for (int64_t i = w.left; i < w.right; i++, cell += in.step) {
            lanes value;
            load(&value, cell, in.n);
            // NOLINTNEXTLINE(misc-redundant-expression): of a NaN it is not
            mask higher = (value > best) | (value != value);
            best = (lanes)((higher & (mask)value) | (~higher & (mask)best));
        }
    }
    store(y, &best, in.n);
}

// Adds dy to the first cell that has y's value, lane by lane.
CADRE_VECTOR_BODY void give_to_highest(const float *restrict x, window w,
    walk in, const float *restrict y, const float *restrict dy,
    float *restrict dx)
{
    lanes top;
    lanes left; // of dy, to be given away
    load(&top, y, in.n);
    load(&left, dy, in.n);
    if (in.masks) {
        left = (lanes)(~(top <= 0.0f) & (mask)left);
    }
    for (int64_t h = w.top; h < w.bottom; h++) {
        int64_t at = h * in.row + w.left * in.step;
        for (int64_t i = w.left; i < w.right; i++, at += in.step) {
            lanes value;
            lanes sum = {0};
            load(&value, x + at, in.n);
            if (!in.writes) {
                load(&sum, dx + at, in.n);
            }
            // NOLINTNEXTLINE(misc-redundant-expression): of a NaN it is not
            mask takes = (value == top) | (value != value);
            sum += (lanes)(takes & (mask)left);
            left = (lanes)(~takes & (mask)left);
            store(dx + at, &sum, in.n);
        }
    }
}

CADRE_VECTOR_BODY void mean(const float *restrict x, window w, walk in,
    float n_cells, float *restrict y)
{
    lanes sum = {0};
    for (int64_t h = w.top; h < w.bottom; h++) {
        const float *cell = x + h * in.row + w.left * in.step;
        for (int64_t i = w.left; i < w.right; i++, cell += in.step) {
            lanes value;
            load(&value, cell, in.n);
            sum += value;
        }
    }
    sum /= n_cells;
    store(y, &sum, in.n);
}

CADRE_VECTOR_BODY void give_to_all(window w, walk in, float n_cells,
    const float *restrict dy, float *restrict dx)
{
    lanes share;
    load(&share, dy, in.n);
    share /= n_cells;
    for (int64_t h = w.top; h < w.bottom; h++) {
        float *cell = dx + h * in.row + w.left * in.step;
        for (int64_t i = w.left; i < w.right; i++, cell += in.step) {
            lanes sum = {0};
            if (!in.writes) {
                load(&sum, cell, in.n);
            }
            sum += share;
            store(cell, &sum, in.n);
        }
    }
}

// What is done with each window of an image.
typedef enum action { HIGHEST, GIVE_TO_HIGHEST, MEAN, GIVE_TO_ALL } action;

// Some channels' data; an action uses what it needs.
typedef struct plane {
    const float *x;
    const float *y;
    const float *dy;
    float *out; // y of HIGHEST and MEAN, else dx
} plane;

// what and n, the channels, are constants where this is called, so that there
// is no choice left in the innermost code.
CADRE_VECTOR_BODY void slide(
    const cadre_layer_plan *plan, action what, int n, const plane *p)
{
    const int64_t step = plan->in.block;
    const walk in = {
        .step = step,
        .row = plan->in.width * step,
        .n = n,
        .writes = plan->stride >= plan->kernel,
        .masks = plan->masks,
    };
    const float n_cells = cells_of(plan);
    int64_t at = 0;
    for (int64_t row = 0; row < plan->out.height; row++) {
        for (int64_t i = 0; i < plan->out.width; i++, at += step) {
            window w = window_of(plan, row, i);
            switch (what) {
            case HIGHEST:
                highest(p->x, w, in, p->out + at);
                break;
            case GIVE_TO_HIGHEST:
                give_to_highest(p->x, w, in, p->y + at, p->dy + at, p->out);
                break;
            case MEAN:
                mean(p->x, w, in, n_cells, p->out + at);
                break;
            case GIVE_TO_ALL:
                give_to_all(w, in, n_cells, p->dy + at, p->out);
                break;
            }
        }
    }
}

// Channels that go by at a time.
static inline int channels_at_once(const cadre_layer_plan *plan)
{
    return plan->in.block % N_LANES == 0 ? N_LANES : 1;
}

CADRE_VECTOR_BODY void slide_lanes(
    const cadre_layer_plan *plan, action what, const plane *p)
{
    if (channels_at_once(plan) == N_LANES) {
        slide(plan, what, N_LANES, p);
    } else {
        slide(plan, what, 1, p);
    }
}

CADRE_VECTOR_BODY void pool_body(
    const cadre_layer_plan *plan, action what, const plane *p)
{
    switch (what) {
    case HIGHEST:
        slide_lanes(plan, HIGHEST, p);
        break;
    case GIVE_TO_HIGHEST:
        slide_lanes(plan, GIVE_TO_HIGHEST, p);
        break;
    case MEAN:
        slide_lanes(plan, MEAN, p);
        break;
    case GIVE_TO_ALL:
        slide_lanes(plan, GIVE_TO_ALL, p);
        break;
    }
}
CADRE_VECTOR(pool, (const cadre_layer_plan *plan, action what, const plane *p),
    (plan, what, p));

// Where some channels of an image begin, of its shape.
static int64_t begin_of(cadre_shape s, int64_t channel)
{
    return channel / s.block * s.block * s.height * s.width + channel % s.block;
}

static cadre_status forward(
    const cadre_layer_call *call, action what, cadre_matrix y)
{
    const cadre_layer_plan *plan = call->plan;
    const int64_t channels = cadre_shape_blocks(plan->in) * plan->in.block;
    for (int64_t n = 0; n < y.rows; n++) {
        const float *x = cadre_matrix_view_row(call->x, n);
        float *out = cadre_matrix_row(y, n);
        for (int64_t c = 0; c < channels; c += channels_at_once(plan)) {
            const plane p = {
                .x = x + begin_of(plan->in, c),
                .out = out + begin_of(plan->out, c),
            };
            pool[cadre_isa_in_use()](plan, what, &p);
        }
    }
    return CADRE_OK;
}

// Whether each cell is in one window and no more.
static bool covers_all(const cadre_layer_plan *plan)
{
    return plan->stride == plan->kernel && plan->padding == 0 &&
           plan->in.height == plan->out.height * plan->kernel &&
           plan->in.width == plan->out.width * plan->kernel;
}

static cadre_status input_gradient(
    const cadre_layer_call *call, action what, cadre_matrix dx)
{
    const cadre_layer_plan *plan = call->plan;
    const int64_t channels = cadre_shape_blocks(plan->in) * plan->in.block;
    for (int64_t n = 0; n < dx.rows; n++) {
        const float *x = cadre_matrix_view_row(call->x, n);
        const float *y = cadre_matrix_view_row(call->y, n);
        const float *dy = cadre_matrix_view_row(call->dy, n);
        float *out = cadre_matrix_row(dx, n);
        if (!covers_all(plan)) {
            memset(out, 0, (size_t)dx.columns * sizeof(*out));
        }
        for (int64_t c = 0; c < channels; c += channels_at_once(plan)) {
            const plane p = {
                .x = x + begin_of(plan->in, c),
                .y = y + begin_of(plan->out, c),
                .dy = dy + begin_of(plan->out, c),
                .out = out + begin_of(plan->in, c),
            };
            pool[cadre_isa_in_use()](plan, what, &p);
        }
    }
    return CADRE_OK;
}

static cadre_status max_forward(const cadre_layer_call *call, cadre_matrix y)
{
    return forward(call, HIGHEST, y);
}

static cadre_status max_gradient(const cadre_layer_call *call, cadre_matrix dx)
{
    return input_gradient(call, GIVE_TO_HIGHEST, dx);
}

static cadre_status mean_forward(const cadre_layer_call *call, cadre_matrix y)
{
    return forward(call, MEAN, y);
}

static cadre_status mean_gradient(const cadre_layer_call *call, cadre_matrix dx)
{
    return input_gradient(call, GIVE_TO_ALL, dx);
}

const cadre_layer_ops cadre_maxpool2d = {
    .kind = "maxpool2d",
    .takes = CADRE_TAKES_WINDOW,
    .on = CADRE_ON_IMAGES,
    .keeps_output = true,
    .masks_input = true,
    .plan = plan_pool,
    .forward = max_forward,
    .input_gradient = max_gradient,
};

const cadre_layer_ops cadre_avgpool2d = {
    .kind = "avgpool2d",
    .takes = CADRE_TAKES_WINDOW,
    .on = CADRE_ON_IMAGES,
    .forgets_input = true,
    .plan = plan_pool,
    .forward = mean_forward,
    .input_gradient = mean_gradient,
};

const cadre_layer_ops cadre_global_avgpool2d = {
    .kind = "global_avgpool2d",
    .on = CADRE_ON_IMAGES,
    .forgets_input = true,
    .plan = plan_global,
    .forward = mean_forward,
    .input_gradient = mean_gradient,
};
