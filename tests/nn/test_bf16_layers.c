// SPDX-License-Identifier: Apache-2.0
//
// The layers whose factors are rounded to bf16, each alone, against the same in
// f64 of inputs rounded here.

#include "nn/bf16.h"
#include "nn/compute_conv.h"
#include "nn/formula.h"
#include "nn/layer.h"
#include "nn/reader.h"
#include <stdio.h>

enum { WEIGHT, BIAS, N_PARAMS };

// A layer alone, and what it computes.
typedef struct trial {
    cadre_layer_plan plan;
    cadre_layer_state *state;
    int64_t rows;
    size_t n_weights;
    float *params[N_PARAMS];
    cadre_matrix x;
    cadre_matrix y;
    cadre_matrix dy;
    cadre_matrix dx;
    float *dw;
    float *db;
} trial;

static cadre_matrix rows_of(int64_t rows, cadre_shape shape)
{
    int64_t stride = cadre_shape_stride(shape);
    return (cadre_matrix){floats((size_t)(rows * stride)), rows,
        cadre_shape_columns(shape), stride};
}

// Where an element of a row lies, of one that counts (C, H, W).
static int64_t place(cadre_shape s, int64_t i)
{
    int64_t pixels = s.height * s.width;
    int64_t channel = i / pixels;
    return channel / s.block * pixels * s.block + i % pixels * s.block +
           channel % s.block;
}

static void fill(uint32_t tag, cadre_shape s, cadre_matrix m)
{
    int64_t n = cadre_shape_elements(s);
    for (int64_t i = 0; i < m.rows * n; i++) {
        cadre_matrix_row(m, i / n)[place(s, i % n)] =
            formula_value(tag, (size_t)i, 1.0f);
    }
}

// Its rows as they count.
static float *plain(cadre_shape s, cadre_matrix m)
{
    int64_t n = cadre_shape_elements(s);
    float *values = floats((size_t)(m.rows * n));
    for (int64_t i = 0; i < m.rows * n; i++) {
        values[i] = cadre_matrix_row(m, i / n)[place(s, i % n)];
    }
    return values;
}

static void compute(trial *t)
{
    const cadre_layer_ops *ops = t->plan.ops;
    float *scratch = floats(t->state->scratch);
    memset(scratch, 0x3f, t->state->scratch * sizeof(*scratch)); // of others
    const cadre_narrow_matrix x = narrowed(cadre_matrix_read(t->x));
    const cadre_narrow_matrix dy = narrowed(cadre_matrix_read(t->dy));
    const cadre_layer_call call = {
        .plan = &t->plan,
        .state = t->state,
        .params = (const float *const *)t->params,
        .x = cadre_matrix_read(t->x),
        .dy = cadre_matrix_read(t->dy),
        .narrow_x = cadre_narrow_read(x),
        .narrow_dy = cadre_narrow_read(dy),
        .scratch = scratch,
    };
    uint64_t calls = cadre_alloc_calls();
    CHECK_OK(ops->forward(&call, t->y));
    CHECK_OK(ops->param_gradient(&call, WEIGHT, t->dw));
    if (t->plan.n_params > BIAS) {
        CHECK_OK(ops->param_gradient(&call, BIAS, t->db));
    }
    CHECK_OK(ops->input_gradient(&call, t->dx));
    assert_int_equal(cadre_alloc_calls(), calls);
    cadre_free(scratch);
    cadre_free(x.data);
    cadre_free(dy.data);
}

// plan.in, and for an "unembedding" plan.tied, are there.
static void start(
    trial *t, const cadre_layer *layer, int64_t n_samples, bool relu)
{
    CHECK_OK(cadre_layer_find(layer, &t->plan.ops));
    snprintf(t->plan.name, sizeof(t->plan.name), "alone");
    t->plan.n_params = t->plan.ops->n_params;
    CHECK_OK(t->plan.ops->plan(layer, &t->plan));
    t->plan.bf16 = true;
    t->plan.passes_down = true;
    t->plan.then_relu = relu;
    CHECK_OK(t->plan.ops->prepare(&t->plan, n_samples, &t->state));
    t->rows = n_samples * cadre_shape_rows(t->plan.in);
    size_t outputs = (size_t)t->plan.out.channels;
    t->params[WEIGHT] = floats(t->n_weights);
    t->params[BIAS] = floats(outputs);
    formula_fill(FORMULA_WEIGHT, t->n_weights, 0.5f, t->params[WEIGHT]);
    formula_fill(FORMULA_BIAS, outputs, 1.0f, t->params[BIAS]);
    t->x = rows_of(t->rows, t->plan.in);
    t->y = rows_of(t->rows, t->plan.out);
    t->dy = rows_of(t->rows, t->plan.out);
    t->dx = rows_of(t->rows, t->plan.in);
    t->dw = floats(t->n_weights);
    t->db = floats(outputs);
    fill(FORMULA_X, t->plan.in, t->x);
    fill(FORMULA_DY, t->plan.out, t->dy);
}

static void finish(trial *t)
{
    t->plan.ops->release(t->state);
    float *all[] = {t->params[WEIGHT], t->params[BIAS], t->x.data, t->y.data,
        t->dy.data, t->dx.data, t->dw, t->db};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        cadre_free(all[i]);
    }
}

// What the layer should compute: its inputs as they count, and its results.
typedef struct wanted {
    float *x;
    float *dy;
    double *y;
    double *dx;
    double *dw;
    double *db;
    bool exact_dw; // its factors are not rounded
} wanted;

static double *doubles(size_t count)
{
    double *values = cadre_alloc_array(count, sizeof(*values));
    assert_non_null(values);
    return values;
}

static size_t elements(const trial *t, cadre_shape s)
{
    return (size_t)(t->rows * cadre_shape_elements(s));
}

static wanted want(const trial *t)
{
    wanted w = {
        .x = plain(t->plan.in, t->x),
        .dy = plain(t->plan.out, t->dy),
        .y = doubles(elements(t, t->plan.out)),
        .dx = doubles(elements(t, t->plan.in)),
        .dw = doubles(t->n_weights),
        .db = doubles((size_t)t->plan.out.channels),
    };
    return w;
}

// One weight meets one element of x, for one of y.
static void meet(
    const trial *t, wanted *w, int64_t weight, int64_t x, int64_t y)
{
    double value = rounded(t->params[WEIGHT][weight]);
    w->y[y] += value * rounded(w->x[x]);
    w->dw[weight] += w->exact_dw ? (double)w->dy[y] * (double)w->x[x]
                                 : rounded(w->dy[y]) * rounded(w->x[x]);
    w->dx[x] += rounded(w->dy[y]) * value;
}

static void add_bias(const trial *t, wanted *w)
{
    int64_t n = cadre_shape_elements(t->plan.out);
    int64_t pixels = n / t->plan.out.channels;
    for (int64_t y = 0; y < t->rows * n; y++) {
        int64_t o = y % n / pixels;
        w->db[o] += (double)w->dy[y];
        w->y[y] += t->plan.n_params > BIAS ? (double)t->params[BIAS][o] : 0.0;
        w->y[y] = t->plan.then_relu && w->y[y] < 0 ? 0.0 : w->y[y];
    }
}

// A convolution's library sums the gradients that it gets, which are rounded.
static void check_bias_gradient(const trial *t, const wanted *w)
{
    size_t outputs = (size_t)t->plan.out.channels;
    assert_true(distance(t->db, w->db, outputs) <= 1e-2);
}

static void check_all(const trial *t, wanted *w)
{
    float *y = plain(t->plan.out, t->y);
    float *dx = plain(t->plan.in, t->dx);
    add_bias(t, w);
    assert_close("y", y, w->y, elements(t, t->plan.out));
    assert_close("dx", dx, w->dx, elements(t, t->plan.in));
    assert_close("dw", t->dw, w->dw, t->n_weights);
    if (t->plan.n_params > BIAS) {
        check_bias_gradient(t, w);
    }
    void *all[] = {y, dx, w->x, w->dy, w->y, w->dx, w->dw, w->db};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        cadre_free(all[i]);
    }
}

static void check_rows(trial *t, const cadre_layer *layer, int64_t n_samples)
{
    start(t, layer, n_samples, false);
    compute(t);
    wanted w = want(t);
    int64_t in = t->plan.in.channels;
    int64_t out = t->plan.out.channels;
    for (int64_t i = 0; i < t->rows * out * in; i++) {
        int64_t row = i / (out * in);
        int64_t o = i / in % out;
        meet(t, &w, i % (out * in), row * in + i % in, row * out + o);
    }
    check_all(t, &w);
    finish(t);
}

static void linear_is_within_rounding(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {
        {1, 1, 1}, {7, 13, 5}, {33, 64, 48}, {20, 257, 31}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int tokens = 0; tokens <= 3; tokens += 3) {
            const cadre_layer layer = {
                .kind = "linear", .width = cases[i][2], .no_bias = i % 2 == 1};
            trial t = {.n_weights = (size_t)(cases[i][1] * cases[i][2])};
            t.plan.in = (cadre_shape){cases[i][1], 1, 1, 1, tokens};
            check_rows(&t, &layer, cases[i][0]);
        }
    }
}

static void unembedding_is_within_rounding(void **state)
{
    (void)state;
    enum { CHANNELS = 24, VOCABULARY = 51, TOKENS = 5 };
    const cadre_layer_plan embedding = {
        .out = {CHANNELS, 1, 1, 1, TOKENS},
        .vocabulary = VOCABULARY,
    };
    const cadre_layer layer = {.kind = "unembedding", .tied = "embedding"};
    trial t = {.n_weights = CHANNELS * VOCABULARY};
    t.plan.tied = &embedding;
    t.plan.in = embedding.out;
    check_rows(&t, &layer, 3);
}

typedef struct conv_case {
    int64_t in;
    int64_t out;
    int64_t height;
    int64_t width;
    int64_t kernel;
    int64_t stride;
    int64_t padding;
    int64_t dilation;
    int64_t groups;
} conv_case;

// Each weight of output channel o meets what its window covers.
static void meet_channel(
    const trial *t, const conv_case *c, wanted *w, int64_t n, int64_t o)
{
    const cadre_shape out = t->plan.out;
    const int64_t part = c->in / c->groups;
    const int64_t first = o / (c->out / c->groups) * part;
    const int64_t area = c->kernel * c->kernel;
    for (int64_t k = 0; k < part * area; k++) {
        int64_t channel = n * c->in + first + k / area;
        for (int64_t p = 0; p < out.height * out.width; p++) {
            int64_t row = p / out.width * c->stride - c->padding +
                          k % area / c->kernel * c->dilation;
            int64_t column = p % out.width * c->stride - c->padding +
                             k % c->kernel * c->dilation;
            if (row >= 0 && row < c->height && column >= 0 &&
                column < c->width) {
                meet(t, w, o * part * area + k,
                    (channel * c->height + row) * c->width + column,
                    (n * c->out + o) * out.height * out.width + p);
            }
        }
    }
}

static void check_conv(const conv_case *c, bool relu)
{
    enum { N = 3 };
    const cadre_layer layer = {.kind = "conv2d",
        .width = c->out,
        .kernel = c->kernel,
        .stride = c->stride,
        .padding = c->padding,
        .dilation = c->dilation,
        .groups = c->groups,
        .no_bias = relu && c->groups > 1};
    trial t = {.n_weights = (size_t)(c->out * c->in / c->groups * c->kernel *
                                     c->kernel)};
    t.plan.in = (cadre_shape){c->in, c->height, c->width, 1, 0};
    t.plan.in.block = cadre_conv2d.input_block(&layer, t.plan.in);
    start(&t, &layer, N, relu);
    compute(&t);
    wanted w = want(&t);
    w.exact_dw = t.plan.wide_gradient;
    assert_true(w.exact_dw == (c->in <= 3 && t.plan.out.block > 1));
    for (int64_t i = 0; i < N * c->out; i++) {
        meet_channel(&t, c, &w, i / c->out, i % c->out);
    }
    check_all(&t, &w);
    finish(&t);
}

static void convolution_is_within_rounding(void **state)
{
    (void)state;
    static const conv_case cases[] = {
        {1, 6, 9, 7, 3, 1, 1, 1, 1},
        {3, 8, 11, 11, 5, 2, 2, 1, 1},
        {13, 10, 8, 6, 3, 2, 0, 1, 1},
        {16, 32, 7, 7, 3, 1, 1, 1, 1},
        {8, 24, 5, 5, 1, 1, 0, 1, 1},
        {16, 16, 7, 7, 3, 1, 1, 1, 2},
        {16, 12, 6, 7, 3, 2, 1, 1, 4},
        {20, 30, 7, 5, 3, 1, 1, 1, 5},
        {8, 12, 9, 9, 3, 1, 2, 2, 1},
        {32, 32, 6, 6, 3, 1, 1, 1, 32},
        {32, 16, 6, 5, 3, 1, 1, 1, 16},
        {16, 24, 4, 1, 3, 2, 1, 1, 1},
        {29, 26, 1, 1, 3, 2, 1, 1, 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_conv(&cases[i], i % 2 == 1);
    }
}

static void no_memory_anywhere_is_an_error_and_no_leak(void **state)
{
    (void)state;
    static const cadre_layer layers[] = {
        {.kind = "linear", .name = "fc", .width = 3},
        {.kind = "conv2d", .name = "conv", .width = 3, .kernel = 1},
    };
    for (int i = 0; i < 2; i++) {
        cadre_layer_plan plan = {
            .in = {4, 1, 1, 1, 0}, .name = "alone", .n_params = N_PARAMS};
        CHECK_OK(cadre_layer_find(&layers[i], &plan.ops));
        CHECK_OK(plan.ops->plan(&layers[i], &plan));
        plan.bf16 = true;
        plan.passes_down = true;
        assert_int_equal(prepare_without_memory(&plan), i == 0 ? 5 : 3);
    }
}

static void a_reader_wants_f32(void **state)
{
    (void)state;
    static const cadre_layer layers[] = {
        {.kind = "embedding", .name = "wte", .vocabulary = 7, .width = 4},
        {.kind = "unembedding", .tied = "wte"},
    };
    cadre_net *net = NULL;
    cadre_net_reader *reader = NULL;
    CHECK_OK(
        cadre_net_create(layers, 2, (cadre_shape){1, 1, 1, 1, 6}, 7, &net));
    cadre_net_use_bf16(net);
    CHECK_FAILS(cadre_net_reader_create(net, &reader), CADRE_ERR_INVALID_ARG,
        "the net uses bf16");
    cadre_net_destroy(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_is_within_rounding),
        cmocka_unit_test(unembedding_is_within_rounding),
        cmocka_unit_test(convolution_is_within_rounding),
        cmocka_unit_test(no_memory_anywhere_is_an_error_and_no_leak),
        cmocka_unit_test(a_reader_wants_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
