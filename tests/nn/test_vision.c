// SPDX-License-Identifier: Apache-2.0
//
// Batch norm and what else images want, beyond what the references show: what
// a layer does with its buffers, and what it does for its neighbours.

#include "nn/formula.h"
#include "nn/layer.h"
#include "nn/reference.h"
#include "nn/training.h"
#include "support/isa.h"

enum { N = 3, CHANNELS = 13, HEIGHT = 7, WIDTH = 5 };
enum { WEIGHT, BIAS, MEAN, VARIANCE, NORM_PARAMS };

// A batch norm alone, on images of one block.
typedef struct trial {
    cadre_layer_plan plan;
    cadre_layer_state *state;
    const float *params[NORM_PARAMS];
    float values[NORM_PARAMS][CHANNELS];
    float grads[NORM_PARAMS][CHANNELS];
    cadre_matrix x;
    cadre_matrix y;
    cadre_matrix dy;
    cadre_matrix dx;
} trial;

static cadre_matrix images(cadre_shape shape)
{
    int64_t columns = cadre_shape_columns(shape);
    return (cadre_matrix){floats((size_t)(N * columns)), N, columns, columns};
}

// Where element (channel, pixel) lies in an image.
static int64_t place(cadre_shape s, int64_t channel, int64_t pixel)
{
    return channel / s.block * s.height * s.width * s.block + pixel * s.block +
           channel % s.block;
}

static void fill_images(uint32_t tag, cadre_shape s, cadre_matrix m)
{
    for (int64_t n = 0, k = 0; n < N; n++) {
        for (int64_t c = 0; c < s.channels; c++) {
            for (int64_t p = 0; p < s.height * s.width; p++, k++) {
                cadre_matrix_row(m, n)[place(s, c, p)] =
                    formula_value(tag, (size_t)k, 1.0f);
            }
        }
    }
}

static void start(trial *t, int64_t block, bool relu)
{
    *t = (trial){0};
    const cadre_layer layer = {.kind = "batch_norm2d"};
    t->plan.ops = &cadre_batch_norm2d;
    t->plan.n_params = NORM_PARAMS;
    t->plan.then_relu = relu;
    t->plan.in = (cadre_shape){CHANNELS, HEIGHT, WIDTH, block, 0};
    snprintf(t->plan.name, sizeof(t->plan.name), "bn");
    CHECK_OK(t->plan.ops->plan(&layer, &t->plan));
    CHECK_OK(t->plan.ops->prepare(&t->plan, N, &t->state));
    for (int p = 0; p < NORM_PARAMS; p++) {
        formula_fill(FORMULA_PARAM + (uint32_t)p, CHANNELS, 1.0f, t->values[p]);
        t->params[p] = t->values[p];
    }
    for (int c = 0; c < CHANNELS; c++) {
        t->values[VARIANCE][c] = 1.5f + t->values[VARIANCE][c];
    }
    t->x = images(t->plan.in);
    t->y = images(t->plan.in);
    t->dy = images(t->plan.in);
    t->dx = images(t->plan.in);
    fill_images(FORMULA_X, t->plan.in, t->x);
    fill_images(FORMULA_DY, t->plan.in, t->dy);
}

static void finish(trial *t)
{
    t->plan.ops->release(t->state);
    cadre_free(t->x.data);
    cadre_free(t->y.data);
    cadre_free(t->dy.data);
    cadre_free(t->dx.data);
}

static cadre_layer_call call_of(const trial *t, const cadre_pass *pass)
{
    return (cadre_layer_call){
        .plan = &t->plan,
        .state = t->state,
        .params = t->params,
        .x = cadre_matrix_read(t->x),
        .y = cadre_matrix_read(t->y),
        .dy = cadre_matrix_read(t->dy),
        .pass = pass,
    };
}

static void run(trial *t)
{
    static const cadre_pass trained;
    const cadre_layer_call call = call_of(t, &trained);
    CHECK_OK(t->plan.ops->forward(&call, t->y));
    for (int p = 0; p < NORM_PARAMS; p++) {
        CHECK_OK(t->plan.ops->param_gradient(&call, p, t->grads[p]));
    }
    CHECK_OK(t->plan.ops->input_gradient(&call, t->dx));
}

static size_t bytes_of(cadre_matrix m)
{
    return (size_t)(m.rows * m.columns) * sizeof(*m.data);
}

static void assert_same(const trial *a, const trial *b)
{
    assert_memory_equal(a->dx.data, b->dx.data, bytes_of(a->dx));
    assert_memory_equal(a->grads, b->grads, sizeof(a->grads));
}

static const int64_t blocks[] = {1, 8, 16};
enum { N_BLOCKS = sizeof(blocks) / sizeof(blocks[0]) };

static void batch_norm_does_the_relu_both_ways(void **state)
{
    use_isa(state);
    for (int k = 0; k < N_BLOCKS; k++) {
        trial fused;
        trial plain;
        start(&fused, blocks[k], true);
        start(&plain, blocks[k], false);
        run(&fused);
        run(&plain);
        int64_t count = N * plain.y.columns;
        int n_cut = 0;
        for (int64_t i = 0; i < count; i++) {
            bool cut = plain.y.data[i] <= 0.0f;
            assert_true(fused.y.data[i] == (cut ? 0.0f : plain.y.data[i]));
            plain.dy.data[i] = cut ? 0.0f : plain.dy.data[i];
            n_cut += cut;
        }
        assert_in_range(n_cut, count / 5, count * 4 / 5);
        run(&plain);
        assert_same(&fused, &plain);
        finish(&fused);
        finish(&plain);
    }
}

static void without_training_the_running_statistics_count(void **state)
{
    (void)state;
    for (int k = 0; k < N_BLOCKS; k++) {
        trial t;
        start(&t, blocks[k], false);
        const cadre_layer_call call = call_of(&t, NULL);
        CHECK_OK(t.plan.ops->forward(&call, t.y));
        for (int c = 0; c < CHANNELS; c++) {
            double r = 1.0 / sqrt((double)t.values[VARIANCE][c] + 1e-5);
            int64_t at = place(t.plan.in, c, 3);
            double x = (double)cadre_matrix_row(t.x, 1)[at];
            double y = (x - (double)t.values[MEAN][c]) * r *
                           (double)t.values[WEIGHT][c] +
                       (double)t.values[BIAS][c];
            double found = (double)cadre_matrix_row(t.y, 1)[at];
            assert_true(fabs(found - y) < 1e-6);
        }
        finish(&t);
    }
}

// What the last block has too much of.
static void places_without_a_channel_stay_zero(void **state)
{
    (void)state;
    trial t;
    start(&t, 8, false);
    run(&t);
    for (int64_t n = 0; n < N; n++) {
        for (int64_t p = 0; p < HEIGHT * WIDTH; p++) {
            for (int64_t c = CHANNELS; c < 16; c++) {
                int64_t at = place(t.plan.in, c, p);
                assert_true(cadre_matrix_row(t.y, n)[at] == 0.0f);
                assert_true(cadre_matrix_row(t.dx, n)[at] == 0.0f);
            }
        }
    }
    finish(&t);
}

static void a_constant_channel_is_no_division_by_zero(void **state)
{
    (void)state;
    trial t;
    start(&t, 8, false);
    for (int64_t i = 0; i < N * t.x.columns; i++) {
        t.x.data[i] = 3.25f;
    }
    run(&t);
    for (int c = 0; c < CHANNELS; c++) {
        float y = cadre_matrix_row(t.y, 0)[place(t.plan.in, c, 0)];
        assert_true(y == t.values[BIAS][c]);
        assert_true(t.grads[MEAN][c] == 3.25f * N);
        assert_true(t.grads[VARIANCE][c] == 0.0f);
        assert_true(isfinite(t.grads[WEIGHT][c]));
    }
    finish(&t);
}

// --- in a net ---

static const cadre_layer normed[] = {
    {.kind = "conv2d",
        .name = "conv",
        .width = 6,
        .kernel = 3,
        .padding = 1,
        .no_bias = true},
    {.kind = "batch_norm2d", .name = "bn"},
    {.kind = "relu"},
    {.kind = "global_avgpool2d"},
    {.kind = "linear", .name = "fc", .width = 10},
};

enum { SIDE = 6, PIXELS = SIDE * SIDE, BATCH = 5 };

// Passes of a leaf that is cut there.
static void run_passes(training *t, const float *x, int first)
{
    int32_t labels[BATCH];
    formula_labels(BATCH, 10, labels);
    for (int part = 0; part < 2; part++) {
        const cadre_pass pass = {
            .x = x + part * first * PIXELS,
            .labels = labels + part * first,
            .n_samples = part == 0 ? first : BATCH - first,
            .first = part == 0,
            .last = part == 1,
        };
        (void)training_pass(t, &pass);
    }
}

// The mean of a part, times its samples: by itself, and behind another part.
static void passes_add_what_they_give_to_the_buffers(void **state)
{
    (void)state;
    enum { FIRST = 2, RUNNING_MEAN = 3 };
    cadre_net *net;
    training t;
    static float x[BATCH * PIXELS];
    formula_fill(FORMULA_X, BATCH * PIXELS, 1.0f, x);
    const cadre_shape image = {1, SIDE, SIDE, 1, 0};
    CHECK_OK(cadre_net_create(normed, 5, image, 10, &net));
    assert_string_equal(
        cadre_net_param_at(net, RUNNING_MEAN)->name, "bn.running_mean");
    assert_true(cadre_net_param_at(net, RUNNING_MEAN)->buffer);
    training_start(&t, net, BATCH, BATCH);
    for (int p = 0; p < t.n_params; p++) {
        cadre_net_initialize(net, 1, p, t.params[p]);
    }
    float sum[6] = {0};
    for (int s = 0; s < BATCH; s++) {
        const cadre_pass one = {.x = x + s * PIXELS,
            .labels = (int32_t[]){0},
            .n_samples = 1,
            .first = true,
            .last = true};
        (void)training_pass(&t, &one);
        for (int c = 0; c < 6; c++) {
            sum[c] += t.grads[RUNNING_MEAN][c];
        }
    }
    run_passes(&t, x, FIRST);
    for (int c = 0; c < 6; c++) {
        double difference = (double)t.grads[RUNNING_MEAN][c] - (double)sum[c];
        assert_true(fabs(difference) < 1e-5);
    }
    training_finish(&t);
}

// The gradients of convolution, ReLU and max-pooling, the last two twice.
static void train_pools(bool meet, int64_t kernel, training *t)
{
    const cadre_layer relu = {.kind = "relu"};
    // It does nothing, and is between them.
    const cadre_layer apart = {.kind = "avgpool2d", .kernel = 1};
    const cadre_layer conv = {.kind = "conv2d",
        .name = "conv",
        .width = 5,
        .kernel = kernel,
        .padding = kernel / 2};
    const cadre_layer wide = {
        .kind = "maxpool2d", .kernel = 3, .stride = 2, .padding = 1};
    const cadre_layer narrow = {.kind = "maxpool2d", .kernel = 2};
    const cadre_layer fc = {.kind = "linear", .name = "fc", .width = 10};
    const cadre_layer together[] = {conv, relu, wide, relu, narrow, fc};
    const cadre_layer between[] = {
        conv, relu, apart, wide, relu, apart, narrow, fc};
    cadre_net *net;
    const cadre_shape image = {1, SIDE, SIDE, 1, 0};
    CHECK_OK(cadre_net_create(
        meet ? together : between, meet ? 6 : 8, image, 10, &net));
    training_start(t, net, BATCH, BATCH);
    for (int p = 0; p < t->n_params; p++) {
        cadre_net_initialize(net, 1, p, t->params[p]);
    }
    static float x[BATCH * PIXELS];
    formula_fill(FORMULA_X, BATCH * PIXELS, 1.0f, x);
    run_passes(t, x, 2);
}

// Max-pooling does the backward of a ReLU before it.
static void a_pooling_behind_a_relu_changes_no_bit(void **state)
{
    (void)state;
    for (int64_t kernel = 3; kernel <= 9; kernel += 6) {
        training meeting;
        training apart;
        train_pools(true, kernel, &meeting);
        train_pools(false, kernel, &apart);
        for (int p = 0; p < meeting.n_params; p++) {
            assert_memory_equal(meeting.grads[p], apart.grads[p],
                meeting.counts[p] * sizeof(float));
        }
        training_finish(&meeting);
        training_finish(&apart);
    }
}

static void refuses_what_makes_no_sense(void **state)
{
    (void)state;
    static const struct {
        cadre_layer layer;
        const char *words;
    } cases[] = {
        {{.kind = "batch_norm2d"}, "batch_norm2d needs a name"},
        {{.kind = "batch_norm2d", .name = "a", .groups = 2},
            "batch_norm2d has no groups"},
        {{.kind = "maxpool2d", .kernel = 2, .dilation = 2},
            "maxpool2d has no dilation"},
        {{.kind = "maxpool2d", .kernel = 2, .no_bias = true},
            "maxpool2d has no no_bias"},
        {{.kind = "conv2d", .name = "a", .width = 4, .kernel = 1, .groups = 3},
            "from 6 to 4 channels in 3 groups"},
        {{.kind = "conv2d", .name = "a", .width = 4, .kernel = 1, .groups = -1},
            "in -1 groups"},
        {{.kind = "conv2d",
             .name = "a",
             .width = 4,
             .kernel = 3,
             .dilation = 3},
            "a window of 7 does not fit"},
        {{.kind = "conv2d",
             .name = "a",
             .width = 4,
             .kernel = 3,
             .dilation = -1},
            "dilation -1 makes no sense"},
        {{.kind = "layer_norm", .name = "a"},
            "layer_norm works on rows of elements, and these are images"},
        {{.kind = "swiglu"}, "swiglu works on rows"},
        {{.kind = "positions", .name = "a"}, "positions works on text"},
        {{.kind = "local_response_norm", .kernel = 5},
            "local_response_norm has no kernel"},
    };
    const cadre_shape image = {6, SIDE, SIDE, 1, 0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cadre_net *net = NULL;
        CHECK_FAILS(cadre_net_create(&cases[i].layer, 1, image, 10, &net),
            CADRE_ERR_INVALID_ARG, cases[i].words);
        assert_null(net);
    }
}

// --- images of one pixel ---

// The convolutions go from such images and to such images, plain ones and
// blocks.
static const cadre_layer over_one_pixel[] = {
    {.kind = "maxpool2d", .kernel = 5},
    {.kind = "conv2d", .name = "conv1", .width = 6, .kernel = 3, .padding = 1},
    {.kind = "conv2d", .name = "conv2", .width = 5, .kernel = 9, .padding = 5},
    {.kind = "conv2d", .name = "conv3", .width = 7, .kernel = 2, .dilation = 2},
    {.kind = "linear", .name = "fc", .width = 4},
};
static const cadre_layer from_one_pixel[] = {
    {.kind = "conv2d", .name = "conv1", .width = 6, .kernel = 3, .padding = 1},
    {.kind = "linear", .name = "fc", .width = 4},
};

typedef struct pixel_task {
    const cadre_layer *layers;
    int n_layers;
    cadre_shape image;
    bool bf16;
} pixel_task;

enum { MOST_ELEMENTS = 2 * 5 * 5 };

static void start_pixels(const pixel_task *task, training *t)
{
    cadre_net *net = NULL;
    CHECK_OK(
        cadre_net_create(task->layers, task->n_layers, task->image, 4, &net));
    if (task->bf16) {
        cadre_net_use_bf16(net);
    }
    training_start(t, net, N, N);
    for (int p = 0; p < t->n_params; p++) {
        cadre_net_initialize(net, 1, p, t->params[p]);
    }
}

// The loss of the whole batch in so many passes.
static double loss_in(const pixel_task *task, training *t, int n_passes)
{
    float x[N * MOST_ELEMENTS];
    const int32_t labels[N] = {0, 3, 1};
    const int64_t elements = cadre_shape_elements(task->image);
    formula_fill(FORMULA_X, N * MOST_ELEMENTS, 1.0f, x);
    double loss = 0.0;
    const int n = N / n_passes;
    for (int i = 0; i < n_passes; i++) {
        const cadre_pass pass = {
            .x = x + i * n * elements,
            .labels = labels + (ptrdiff_t)(i * n),
            .n_samples = n,
            .first = i == 0,
            .last = i == n_passes - 1,
        };
        loss += training_pass(t, &pass);
    }
    return loss;
}

static void check_pixels(const pixel_task *task)
{
    training whole;
    training each;
    start_pixels(task, &whole);
    start_pixels(task, &each);
    // An element may be rounded to another number of 16 bits.
    const double bound = task->bf16 ? 1e-3 : 1e-6;
    double apart = loss_in(task, &whole, 1) - loss_in(task, &each, N);
    assert_true(fabs(apart) < bound);
    for (int p = 0; p < whole.n_params; p++) {
        for (size_t k = 0; k < whole.counts[p]; k++) {
            apart = (double)whole.grads[p][k] - (double)each.grads[p][k];
            assert_true(fabs(apart) < bound);
        }
    }
    training_finish(&whole);
    training_finish(&each);
}

static void images_of_one_pixel_are_those_of_their_samples(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        check_pixels(
            &(pixel_task){over_one_pixel, 5, {2, 5, 5, 1, 0}, bf16 == 1});
        check_pixels(
            &(pixel_task){from_one_pixel, 2, {1, 1, 1, 1, 0}, bf16 == 1});
        check_pixels(
            &(pixel_task){from_one_pixel, 2, {20, 1, 1, 1, 0}, bf16 == 1});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_EVERY_ISA(batch_norm_does_the_relu_both_ways),
        cmocka_unit_test(without_training_the_running_statistics_count),
        cmocka_unit_test(places_without_a_channel_stay_zero),
        cmocka_unit_test(a_constant_channel_is_no_division_by_zero),
        cmocka_unit_test(passes_add_what_they_give_to_the_buffers),
        cmocka_unit_test(a_pooling_behind_a_relu_changes_no_bit),
        cmocka_unit_test(images_of_one_pixel_are_those_of_their_samples),
        cmocka_unit_test(refuses_what_makes_no_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
