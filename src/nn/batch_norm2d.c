// SPDX-License-Identifier: Apache-2.0
//
// y = (x - mean) / sqrt(variance + 1e-5) * weight + bias, each of a channel,
// weight and bias (O).  In training mean and variance are those of the pass;
// without, they are the running ones, which are buffers: a pass gives them its
// mean and its unbiased variance, times its samples.
//
// A tile is a block of channels of one sample, (pixels, block) floats that lie
// together.  Kernels go along it in 32 lanes, of which lane j has channel
// j mod block, so one loop serves all blocks.  Sums of a tile are f32, what
// tiles come to is added in f64.
//
// Letters: k is weight / sqrt(variance + 1e-5); M is samples times pixels.
//
// Memory:  a state keeps what backward needs of each channel.
// Threads: one at a time per state.

#include "kernel/vector.h"
#include "nn/layer.h"
#include <math.h>
#include <stdio.h>

enum { WEIGHT, BIAS, MEAN, VARIANCE, N_PARAMS };
enum { LANES = 32, WIDEST_BLOCK = 16 };

// Of a channel, in the last pass.
typedef struct moments {
    float mean;
    float r;        // 1 / sqrt(variance + 1e-5)
    float variance; // unbiased
    float dweight;  // gradients
    float dbias;
} moments;

typedef struct norm_state {
    cadre_layer_state base;
    moments channels[];
} norm_state;

static moments *channels_of(const cadre_layer_call *call)
{
    return ((norm_state *)call->state)->channels;
}

static void describe(
    const cadre_layer_plan *plan, int i, cadre_net_param *param)
{
    static const char *const names[N_PARAMS] = {
        "weight", "bias", "running_mean", "running_var"};
    param->shape[0] = plan->out.channels;
    param->n_dims = 1;
    param->init_value = i == WEIGHT || i == VARIANCE ? 1.0f : 0.0f;
    param->buffer = i == MEAN || i == VARIANCE;
    snprintf(param->name, sizeof(param->name), "%s.%s", plan->name, names[i]);
}

static cadre_status prepare(
    const cadre_layer_plan *plan, int64_t n_samples, cadre_layer_state **out)
{
    (void)n_samples;
    return cadre_layer_state_create(plan, sizeof(norm_state),
        (size_t)plan->out.channels, sizeof(moments), out);
}

// --- kernels, of a tile ---

// A number for each lane.
typedef struct lanes {
    float of[LANES];
} lanes;

// The channels' numbers, from which lane j takes that of channel j mod block.
CADRE_VECTOR_BODY void spread(const float *channel, int block, lanes *out)
{
    for (int j = 0; j < LANES; j++) {
        out->of[j] = channel[j % block];
    }
}

// Adds up the lanes of each channel, into the first ones.
CADRE_VECTOR_BODY void join(lanes *sum, int block)
{
    for (int width = LANES / 2; width >= block; width /= 2) {
        for (int j = 0; j < width; j++) {
            sum->of[j] += sum->of[j + width];
        }
    }
}

// The mean of each channel, and the sum of squares around it.
CADRE_VECTOR_BODY void measure_body(
    const float *restrict x, int64_t n, int block, float *mean, float *squares)
{
    lanes sum = {{0}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            sum.of[j] += x[i + j];
        }
    }
    for (int j = 0; i + j < n; j++) {
        sum.of[j] += x[i + j];
    }
    join(&sum, block);
    const int64_t pixels = n / block;
    for (int c = 0; c < block; c++) {
        mean[c] = sum.of[c] / (float)pixels;
    }

    lanes center;
    spread(mean, block, &center);
    lanes square = {{0}};
    for (i = 0; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            float d = x[i + j] - center.of[j];
            square.of[j] += d * d;
        }
    }
    for (int j = 0; i + j < n; j++) {
        float d = x[i + j] - center.of[j];
        square.of[j] += d * d;
    }
    join(&square, block);
    for (int c = 0; c < block; c++) {
        squares[c] = square.of[c];
    }
}
CADRE_VECTOR(measure,
    (const float *restrict x, int64_t n, int block, float *mean,
        float *squares),
    (x, n, block, mean, squares));

// What turns x into y, lane by lane, and dy into dx.
typedef struct factors {
    lanes mean;
    lanes k;
    lanes bias;
    lanes shift; // of the gradient
    lanes slope;
} factors;

CADRE_VECTOR_BODY float scaled(const factors *f, float x, int j, bool relu)
{
    float y = (x - f->mean.of[j]) * f->k.of[j] + f->bias.of[j];
    return relu && y < 0.0f ? 0.0f : y;
}

CADRE_VECTOR_BODY void scale_tile(const factors *f, const float *restrict x,
    int64_t n, bool relu, float *restrict y)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            y[i + j] = scaled(f, x[i + j], j, relu);
        }
    }
    for (int j = 0; i + j < n; j++) {
        y[i + j] = scaled(f, x[i + j], j, relu);
    }
}

// Which of the two is a constant where it is called.
CADRE_VECTOR_BODY void scale_body(const factors *f, const float *restrict x,
    int64_t n, bool relu, float *restrict y)
{
    if (relu) {
        scale_tile(f, x, n, true, y);
    } else {
        scale_tile(f, x, n, false, y);
    }
}
CADRE_VECTOR(scale,
    (const factors *f, const float *restrict x, int64_t n, bool relu,
        float *restrict y),
    (f, x, n, relu, y));

// dy behind the ReLU, whose output is computed again.
CADRE_VECTOR_BODY float masked(
    const factors *f, float x, float dy, int j, bool relu)
{
    return relu && scaled(f, x, j, false) <= 0.0f ? 0.0f : dy;
}

// What a tile adds to the channels' gradients: the sums of dy, and of
// dy (x - mean).
typedef struct addends {
    float sum[WIDEST_BLOCK];
    float product[WIDEST_BLOCK];
} addends;

CADRE_VECTOR_BODY void add_tile(const factors *f, const float *restrict x,
    const float *restrict dy, int64_t n, int block, bool relu, addends *out)
{
    lanes s = {{0}};
    lanes p = {{0}};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            float g = masked(f, x[i + j], dy[i + j], j, relu);
            s.of[j] += g;
            p.of[j] += g * (x[i + j] - f->mean.of[j]);
        }
    }
    for (int j = 0; i + j < n; j++) {
        float g = masked(f, x[i + j], dy[i + j], j, relu);
        s.of[j] += g;
        p.of[j] += g * (x[i + j] - f->mean.of[j]);
    }
    join(&s, block);
    join(&p, block);
    for (int c = 0; c < block; c++) {
        out->sum[c] = s.of[c];
        out->product[c] = p.of[c];
    }
}

CADRE_VECTOR_BODY void add_gradients_body(const factors *f,
    const float *restrict x, const float *restrict dy, int64_t n, int block,
    bool relu, addends *out)
{
    if (relu) {
        add_tile(f, x, dy, n, block, true, out);
    } else {
        add_tile(f, x, dy, n, block, false, out);
    }
}
CADRE_VECTOR(add_gradients,
    (const factors *f, const float *restrict x, const float *restrict dy,
        int64_t n, int block, bool relu, addends *out),
    (f, x, dy, n, block, relu, out));

CADRE_VECTOR_BODY float descended(
    const factors *f, float x, float dy, int j, bool relu)
{
    float g = masked(f, x, dy, j, relu) - f->shift.of[j];
    return f->k.of[j] * (g - (x - f->mean.of[j]) * f->slope.of[j]);
}

CADRE_VECTOR_BODY void descend_tile(const factors *f, const float *restrict x,
    const float *restrict dy, int64_t n, bool relu, float *restrict dx)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) {
            dx[i + j] = descended(f, x[i + j], dy[i + j], j, relu);
        }
    }
    for (int j = 0; i + j < n; j++) {
        dx[i + j] = descended(f, x[i + j], dy[i + j], j, relu);
    }
}

CADRE_VECTOR_BODY void descend_body(const factors *f, const float *restrict x,
    const float *restrict dy, int64_t n, bool relu, float *restrict dx)
{
    if (relu) {
        descend_tile(f, x, dy, n, true, dx);
    } else {
        descend_tile(f, x, dy, n, false, dx);
    }
}
CADRE_VECTOR(descend,
    (const factors *f, const float *restrict x, const float *restrict dy,
        int64_t n, bool relu, float *restrict dx),
    (f, x, dy, n, relu, dx));

// --- blocks of channels ---

// Floats of a tile.
static int64_t tile_count(const cadre_layer_plan *plan)
{
    return plan->in.height * plan->in.width * plan->in.block;
}

// The samples and pixels of a pass.
static double pixels_of(const cadre_layer_call *call)
{
    const cadre_shape in = call->plan->in;
    return (double)call->x.rows * (double)(in.height * in.width);
}

// Channels of a block: fewer than it has room for in the last one.
static int channels_in(const cadre_layer_plan *plan, int64_t b)
{
    int64_t left = plan->in.channels - b * plan->in.block;
    return (int)(left < plan->in.block ? left : plan->in.block);
}

// Finds mean and variance of the channels of block b over all samples.
static void measure_block(const cadre_layer_call *call, int64_t b)
{
    const cadre_layer_plan *plan = call->plan;
    const cadre_isa isa = cadre_isa_in_use();
    const int block = (int)plan->in.block;
    const int64_t n = tile_count(plan);
    double means[WIDEST_BLOCK] = {0};
    double mean_squares[WIDEST_BLOCK] = {0};
    double squares[WIDEST_BLOCK] = {0};
    for (int64_t row = 0; row < call->x.rows; row++) {
        float mean[WIDEST_BLOCK];
        float square[WIDEST_BLOCK];
        const float *x = cadre_matrix_view_row(call->x, row) + b * n;
        measure[isa](x, n, block, mean, square);
        for (int c = 0; c < block; c++) {
            means[c] += (double)mean[c];
            mean_squares[c] += (double)mean[c] * (double)mean[c];
            squares[c] += (double)square[c];
        }
    }
    const double n_tiles = (double)call->x.rows;
    const double all = pixels_of(call);
    for (int c = 0; c < channels_in(plan, b); c++) {
        double mean = means[c] / n_tiles;
        // Within tiles, and between them.
        double between = mean_squares[c] - n_tiles * mean * mean;
        between = between < 0.0 ? 0.0 : between;
        double sum = squares[c] + all / n_tiles * between;
        channels_of(call)[b * block + c] = (moments){
            .mean = (float)mean,
            .r = (float)(1.0 / sqrt(sum / all + 1e-5)),
            .variance = (float)(all > 1.0 ? sum / (all - 1.0) : 0.0),
        };
    }
}

// Without training: the running statistics of block b.
static void recall_block(const cadre_layer_call *call, int64_t b)
{
    const int64_t first = b * call->plan->in.block;
    for (int c = 0; c < channels_in(call->plan, b); c++) {
        double variance = (double)call->params[VARIANCE][first + c];
        channels_of(call)[first + c] = (moments){
            .mean = call->params[MEAN][first + c],
            .r = (float)(1.0 / sqrt(variance + 1e-5)),
        };
    }
}

// The factors of block b; places without a channel get zeros, as they have.
static void find_factors(const cadre_layer_call *call, int64_t b, factors *f)
{
    enum { MEANS, KS, BIASES, SHIFTS, SLOPES, N_FACTORS };
    const int block = (int)call->plan->in.block;
    const double all = pixels_of(call);
    float of[N_FACTORS][WIDEST_BLOCK] = {{0}};
    for (int c = 0; c < channels_in(call->plan, b); c++) {
        int64_t channel = b * block + c;
        const moments *m = &channels_of(call)[channel];
        of[MEANS][c] = m->mean;
        of[KS][c] = m->r * call->params[WEIGHT][channel];
        of[BIASES][c] = call->params[BIAS][channel];
        of[SHIFTS][c] = (float)((double)m->dbias / all);
        of[SLOPES][c] = (float)((double)m->r * (double)m->dweight / all);
    }
    spread(of[MEANS], block, &f->mean);
    spread(of[KS], block, &f->k);
    spread(of[BIASES], block, &f->bias);
    spread(of[SHIFTS], block, &f->shift);
    spread(of[SLOPES], block, &f->slope);
}

static cadre_status forward(const cadre_layer_call *call, cadre_matrix y)
{
    const cadre_isa isa = cadre_isa_in_use();
    const int64_t n = tile_count(call->plan);
    for (int64_t b = 0; b < cadre_shape_blocks(call->plan->in); b++) {
        if (call->pass == NULL) {
            recall_block(call, b);
        } else {
            measure_block(call, b);
        }
        factors f;
        find_factors(call, b, &f);
        for (int64_t row = 0; row < y.rows; row++) {
            scale[isa](&f, cadre_matrix_view_row(call->x, row) + b * n, n,
                call->plan->then_relu, cadre_matrix_row(y, row) + b * n);
        }
    }
    return CADRE_OK;
}

// The gradients of the weights and biases of block b.
static void add_block(const cadre_layer_call *call, int64_t b)
{
    const cadre_layer_plan *plan = call->plan;
    const cadre_isa isa = cadre_isa_in_use();
    const int block = (int)plan->in.block;
    const int64_t n = tile_count(plan);
    double sums[WIDEST_BLOCK] = {0};
    double products[WIDEST_BLOCK] = {0};
    factors f;
    find_factors(call, b, &f);
    for (int64_t row = 0; row < call->x.rows; row++) {
        addends tile;
        add_gradients[isa](&f, cadre_matrix_view_row(call->x, row) + b * n,
            cadre_matrix_view_row(call->dy, row) + b * n, n, block,
            plan->then_relu, &tile);
        for (int c = 0; c < block; c++) {
            sums[c] += (double)tile.sum[c];
            products[c] += (double)tile.product[c];
        }
    }
    for (int c = 0; c < channels_in(plan, b); c++) {
        moments *m = &channels_of(call)[b * block + c];
        m->dbias = (float)sums[c];
        m->dweight = (float)((double)m->r * products[c]);
    }
}

// The weight comes first, and finds the bias's as well.  A buffer's "gradient"
// is what it takes in: a mean over the samples, times their number.
static cadre_status param_gradient(
    const cadre_layer_call *call, int i, float *grad)
{
    const int64_t n_blocks = cadre_shape_blocks(call->plan->in);
    for (int64_t b = 0; b < n_blocks && i == WEIGHT; b++) {
        add_block(call, b);
    }
    const float n_samples = (float)call->x.rows;
    for (int64_t c = 0; c < call->plan->in.channels; c++) {
        const moments *m = &channels_of(call)[c];
        const float of[N_PARAMS] = {
            m->dweight, m->dbias, m->mean * n_samples, m->variance * n_samples};
        grad[c] = of[i];
    }
    return CADRE_OK;
}

static cadre_status input_gradient(
    const cadre_layer_call *call, cadre_matrix dx)
{
    const cadre_isa isa = cadre_isa_in_use();
    const int64_t n = tile_count(call->plan);
    for (int64_t b = 0; b < cadre_shape_blocks(call->plan->in); b++) {
        factors f;
        find_factors(call, b, &f);
        for (int64_t row = 0; row < dx.rows; row++) {
            descend[isa](&f, cadre_matrix_view_row(call->x, row) + b * n,
                cadre_matrix_view_row(call->dy, row) + b * n, n,
                call->plan->then_relu, cadre_matrix_row(dx, row) + b * n);
        }
    }
    return CADRE_OK;
}

const cadre_layer_ops cadre_batch_norm2d = {
    .kind = "batch_norm2d",
    .on = CADRE_ON_IMAGES,
    .n_params = N_PARAMS,
    .takes_relu = true,
    .masks_gradient = true,
    .plan = cadre_layer_plan_same,
    .param = describe,
    .prepare = prepare,
    .release = cadre_layer_state_destroy,
    .forward = forward,
    .param_gradient = param_gradient,
    .input_gradient = input_gradient,
};
