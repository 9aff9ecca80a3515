// SPDX-License-Identifier: Apache-2.0
//
// Pooling: the highest, or the mean, of the elements in a square window that
// slides over each channel.  Of equal highest ones the first in row-major order
// takes the gradient; one that is not a number is the highest.  Padding is
// never the highest, and counts as zeros in the mean, as in PyTorch.  A window
// may be the whole image.
//
// A plane is a block of channels: (height, width, block).  The loops over its
// lanes are what the compiler vectorises.

#include "base/fail.h"
#include "kernel/vector.h"
#include "nn/layer.h"
#include <string.h>

enum { WIDEST_BLOCK = 16 };

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

CADRE_VECTOR_BODY void highest(const float *restrict x, int64_t width, window w,
    int64_t block, float *restrict y)
{
    const float *first = x + (w.top * width + w.left) * block;
    float best[WIDEST_BLOCK];
    for (int64_t c = 0; c < block; c++) {
        best[c] = first[c];
    }
    for (int64_t h = w.top; h < w.bottom; h++) {
        for (int64_t i = w.left; i < w.right; i++) {
            const float *cell = x + (h * width + i) * block;
            for (int64_t c = 0; c < block; c++) {
                bool higher = (cell[c] > best[c]) | (cell[c] != cell[c]);
                best[c] = higher ? cell[c] : best[c];
            }
        }
    }
    for (int64_t c = 0; c < block; c++) {
        y[c] = best[c];
    }
}

// Adds dy to the first cell that has y's value, lane by lane.
CADRE_VECTOR_BODY void give_to_highest(const float *restrict x, int64_t width,
    window w, int64_t block, const float *restrict y, const float *restrict dy,
    float *restrict dx)
{
    float left[WIDEST_BLOCK]; // of dy, to be given away
    for (int64_t c = 0; c < block; c++) {
        left[c] = dy[c];
    }
    for (int64_t h = w.top; h < w.bottom; h++) {
        for (int64_t i = w.left; i < w.right; i++) {
            int64_t at = (h * width + i) * block;
            for (int64_t c = 0; c < block; c++) {
                float value = x[at + c];
                bool takes = (value == y[c]) | (value != value);
                dx[at + c] += takes ? left[c] : 0.0f;
                left[c] = takes ? 0.0f : left[c];
            }
        }
    }
}

CADRE_VECTOR_BODY void mean(const float *restrict x, int64_t width, window w,
    int64_t block, float n_cells, float *restrict y)
{
    float sum[WIDEST_BLOCK] = {0};
    for (int64_t h = w.top; h < w.bottom; h++) {
        for (int64_t i = w.left; i < w.right; i++) {
            const float *cell = x + (h * width + i) * block;
            for (int64_t c = 0; c < block; c++) {
                sum[c] += cell[c];
            }
        }
    }
    for (int64_t c = 0; c < block; c++) {
        y[c] = sum[c] / n_cells;
    }
}

CADRE_VECTOR_BODY void give_to_all(int64_t width, window w, int64_t block,
    float n_cells, const float *restrict dy, float *restrict dx)
{
    for (int64_t h = w.top; h < w.bottom; h++) {
        for (int64_t i = w.left; i < w.right; i++) {
            float *cell = dx + (h * width + i) * block;
            for (int64_t c = 0; c < block; c++) {
                cell[c] += dy[c] / n_cells;
            }
        }
    }
}

// What is done with each window of a plane.
typedef enum action { HIGHEST, GIVE_TO_HIGHEST, MEAN, GIVE_TO_ALL } action;

// A plane's data; an action uses what it needs.
typedef struct plane {
    const float *x;
    const float *y;
    const float *dy;
    float *out; // y of HIGHEST and MEAN, else dx
} plane;

// what is a constant where this is called, so that there is no choice left in
// the innermost code.  The block is none: gcc would unroll the loops over lanes,
// and then vectorise nothing.
CADRE_VECTOR_BODY void slide(
    const cadre_layer_plan *plan, action what, const plane *p)
{
    const int64_t block = plan->in.block;
    const int64_t width = plan->in.width;
    const float n_cells = cells_of(plan);
    int64_t at = 0;
    for (int64_t row = 0; row < plan->out.height; row++) {
        for (int64_t i = 0; i < plan->out.width; i++, at += block) {
            window w = window_of(plan, row, i);
            switch (what) {
            case HIGHEST:
                highest(p->x, width, w, block, p->out + at);
                break;
            case GIVE_TO_HIGHEST:
                give_to_highest(
                    p->x, width, w, block, p->y + at, p->dy + at, p->out);
                break;
            case MEAN:
                mean(p->x, width, w, block, n_cells, p->out + at);
                break;
            case GIVE_TO_ALL:
                give_to_all(width, w, block, n_cells, p->dy + at, p->out);
                break;
            }
        }
    }
}

CADRE_VECTOR_BODY void pool_body(
    const cadre_layer_plan *plan, action what, const plane *p)
{
    switch (what) {
    case HIGHEST:
        slide(plan, HIGHEST, p);
        break;
    case GIVE_TO_HIGHEST:
        slide(plan, GIVE_TO_HIGHEST, p);
        break;
    case MEAN:
        slide(plan, MEAN, p);
        break;
    case GIVE_TO_ALL:
        slide(plan, GIVE_TO_ALL, p);
        break;
    }
}
CADRE_VECTOR(pool, (const cadre_layer_plan *plan, action what, const plane *p),
    (plan, what, p));

static cadre_status forward(
    const cadre_layer_call *call, action what, cadre_matrix y)
{
    const cadre_layer_plan *plan = call->plan;
    const int64_t x_step = plan->in.height * plan->in.width * plan->in.block;
    const int64_t y_step = plan->out.height * plan->out.width * plan->out.block;
    for (int64_t n = 0; n < y.rows; n++) {
        const float *x = cadre_matrix_view_row(call->x, n);
        float *out = cadre_matrix_row(y, n);
        for (int64_t b = 0; b < cadre_shape_blocks(plan->in); b++) {
            const plane p = {.x = x + b * x_step, .out = out + b * y_step};
            pool[cadre_isa_in_use()](plan, what, &p);
        }
    }
    return CADRE_OK;
}

static cadre_status input_gradient(
    const cadre_layer_call *call, action what, cadre_matrix dx)
{
    const cadre_layer_plan *plan = call->plan;
    const int64_t x_step = plan->in.height * plan->in.width * plan->in.block;
    const int64_t y_step = plan->out.height * plan->out.width * plan->out.block;
    for (int64_t n = 0; n < dx.rows; n++) {
        const float *x = cadre_matrix_view_row(call->x, n);
        const float *y = cadre_matrix_view_row(call->y, n);
        const float *dy = cadre_matrix_view_row(call->dy, n);
        float *out = cadre_matrix_row(dx, n);
        for (int64_t b = 0; b < cadre_shape_blocks(plan->in); b++) {
            const plane p = {
                .x = x + b * x_step,
                .y = y + b * y_step,
                .dy = dy + b * y_step,
                .out = out + b * x_step,
            };
            memset(p.out, 0, (size_t)x_step * sizeof(float));
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
