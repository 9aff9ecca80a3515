// SPDX-License-Identifier: Apache-2.0
//
// Nets of images: what their bits do not depend on; dropout's numbers; what
// pooling does with equal elements.

#include "base/alloc.h"
#include "base/random.h"
#include "base/thread.h"
#include "nn/formula.h"
#include "nn/layer.h"
#include "support/isa.h"
#include <math.h>
#include <omp.h>
#include <string.h>

enum { SIDE = 12, PIXELS = SIDE * SIDE, CLASSES = 5, BATCH = 9, N_PARAMS = 6 };

static const cadre_shape image = {1, SIDE, SIDE, 1, 0};

// Channels that fill no block, a stride, and a ReLU that stands alone.
static const cadre_layer layers[] = {
    {.kind = "conv2d", .name = "conv1", .width = 6, .kernel = 3, .padding = 1},
    {.kind = "relu"},
    {.kind = "maxpool2d", .kernel = 2},
    {.kind = "dropout", .rate = 0.25f},
    {.kind = "conv2d", .name = "conv2", .width = 10, .kernel = 3, .stride = 2},
    {.kind = "avgpool2d", .kernel = 2},
    {.kind = "relu"},
    {.kind = "linear", .name = "fc", .width = CLASSES},
};
enum { N_LAYERS = sizeof(layers) / sizeof(layers[0]) };

typedef struct trial {
    cadre_net *net;
    float *params[N_PARAMS];
    float *grads[N_PARAMS];
    float x[BATCH * PIXELS];
    int32_t labels[BATCH];
} trial;

static float *floats(size_t count)
{
    float *values = cadre_alloc_array(count, sizeof(*values));
    assert_non_null(values);
    return values;
}

static size_t count_of(const trial *t, int p)
{
    return cadre_net_param_at(t->net, p)->count;
}

static int set_up(void **state)
{
    trial *t = cadre_alloc(sizeof(*t));
    assert_non_null(t);
    CHECK_OK(cadre_net_create(layers, N_LAYERS, image, CLASSES, &t->net));
    assert_int_equal(cadre_net_param_count(t->net), N_PARAMS);
    for (int p = 0; p < N_PARAMS; p++) {
        t->params[p] = floats(count_of(t, p));
        t->grads[p] = floats(count_of(t, p));
        cadre_net_initialize(t->net, 3, p, t->params[p]);
    }
    formula_fill(FORMULA_X, sizeof(t->x) / sizeof(t->x[0]), 1.0f, t->x);
    formula_labels(BATCH, CLASSES, t->labels);
    *state = t;
    return 0;
}

static int tear_down(void **state)
{
    trial *t = *state;
    for (int p = 0; p < N_PARAMS; p++) {
        cadre_free(t->params[p]);
        cadre_free(t->grads[p]);
    }
    cadre_net_destroy(t->net);
    cadre_free(t);
    return 0;
}

static float *grad_of(void *ctx, int index)
{
    float **grads = ctx;
    return grads[index];
}

static cadre_status ready(void *ctx, int index)
{
    (void)ctx;
    (void)index;
    return CADRE_OK;
}

static cadre_status run(cadre_net_worker *worker, const trial *t, int from,
    int n, float **grads, double *loss)
{
    const cadre_pass pass = {
        .x = t->x + (size_t)from * PIXELS,
        .labels = t->labels + from,
        .n_samples = n,
        .first = true,
        .last = true,
        .seed = 5,
        .step = 7,
        .first_sample = from,
    };
    const cadre_grad_listener listener = {grads, grad_of, ready};
    return cadre_net_pass(
        worker, (const float *const *)t->params, &pass, &listener, loss);
}

static cadre_net_worker *worker_for(const trial *t)
{
    cadre_net_worker *worker = NULL;
    CHECK_OK(
        cadre_net_worker_create(t->net, (int64_t[]){BATCH, 2}, 2, &worker));
    return worker;
}

static void assert_same(const trial *t, float *const *found)
{
    for (int p = 0; p < N_PARAMS; p++) {
        assert_memory_equal(
            found[p], t->grads[p], count_of(t, p) * sizeof(float));
    }
}

typedef struct racer {
    const trial *t;
    cadre_thread thread;
    float *grads[N_PARAMS];
    double loss;
} racer;

static void race(void *ctx)
{
    racer *r = ctx;
    cadre_net_worker *worker = NULL;
    cadre_status status =
        cadre_net_worker_create(r->t->net, (int64_t[]){BATCH, 2}, 2, &worker);
    for (int round = 0; round < 5 && status == CADRE_OK; round++) {
        status = run(worker, r->t, 0, BATCH, r->grads, &r->loss);
    }
    if (status != CADRE_OK) {
        r->loss = -1.0;
    }
    cadre_net_worker_destroy(worker);
}

static void bits_do_not_depend_on_threads(void **state)
{
    trial *t = *state;
    cadre_net_worker *worker = worker_for(t);
    double wanted = 0.0;
    CHECK_OK(run(worker, t, 0, BATCH, t->grads, &wanted));
    assert_true(wanted > 0.0);

    int before = omp_get_max_threads();
    omp_set_num_threads(4);
    racer racers[2] = {{.t = t}, {.t = t}};
    for (int i = 0; i < 2; i++) {
        for (int p = 0; p < N_PARAMS; p++) {
            racers[i].grads[p] = floats(count_of(t, p));
        }
        CHECK_OK(
            cadre_thread_start(&racers[i].thread, "racer", race, &racers[i]));
    }
    for (int i = 0; i < 2; i++) {
        cadre_thread_join(&racers[i].thread);
        assert_true(racers[i].loss == wanted);
        assert_same(t, racers[i].grads);
    }
    race(&racers[0]); // on this thread, where OpenMP has been told 4
    assert_int_equal(omp_get_max_threads(), 4);
    assert_true(racers[0].loss == wanted);
    assert_same(t, racers[0].grads);
    omp_set_num_threads(before);
    for (int i = 0; i < 2; i++) {
        for (int p = 0; p < N_PARAMS; p++) {
            cadre_free(racers[i].grads[p]);
        }
    }
    cadre_net_worker_destroy(worker);
}

static void allocates_nothing_in_a_pass(void **state)
{
    trial *t = *state;
    cadre_net_worker *worker = worker_for(t);
    uint64_t before = cadre_alloc_calls();
    double loss;
    CHECK_OK(run(worker, t, 0, BATCH, t->grads, &loss));
    CHECK_OK(run(worker, t, 3, 2, t->grads, &loss));
    assert_int_equal(cadre_alloc_calls(), before);
    // A size that nobody has announced: once.
    CHECK_OK(run(worker, t, 0, 4, t->grads, &loss));
    before = cadre_alloc_calls();
    CHECK_OK(run(worker, t, 0, 4, t->grads, &loss));
    assert_int_equal(cadre_alloc_calls(), before);
    cadre_net_worker_destroy(worker);
}

static void every_allocation_may_fail(void **state)
{
    trial *t = *state;
    cadre_net_worker *worker = NULL;
    cadre_status status = CADRE_ERR_NO_MEMORY;
    int failures = 0;
    for (; status != CADRE_OK; failures++) {
        cadre_alloc_fail_after(failures);
        status =
            cadre_net_worker_create(t->net, (int64_t[]){BATCH, 2}, 2, &worker);
        cadre_alloc_fail_after(-1);
        assert_true(status == CADRE_OK || status == CADRE_ERR_NO_MEMORY);
        assert_in_range(failures, 0, 100);
    }
    assert_true(failures > 8);
    cadre_net_worker_destroy(worker);
}

// The gradient of the sum of losses, against differences of losses.  Dropout
// and all: the same pass drops the same elements.
static void gradients_are_those_of_the_loss(void **state)
{
    trial *t = *state;
    cadre_net_worker *worker = worker_for(t);
    double loss = 0.0;
    CHECK_OK(run(worker, t, 0, BATCH, t->grads, &loss));
    float *ignored[N_PARAMS];
    for (int p = 0; p < N_PARAMS; p++) {
        ignored[p] = floats(count_of(t, p));
    }
    for (int p = 0; p < N_PARAMS; p++) {
        float *at = &t->params[p][count_of(t, p) / 2];
        const float kept = *at;
        const float h = 1.0f / 2048;
        double up = 0.0;
        double down = 0.0;
        *at = kept + h;
        CHECK_OK(run(worker, t, 0, BATCH, ignored, &up));
        *at = kept - h;
        CHECK_OK(run(worker, t, 0, BATCH, ignored, &down));
        *at = kept;
        double slope = (up - down) / (2.0 * (double)h);
        double found = (double)t->grads[p][count_of(t, p) / 2];
        if (!(fabs(slope - found) <= 0.02 * fabs(slope) + 0.01)) {
            fail_msg("parameter %d: %g instead of %g", p, found, slope);
        }
    }
    for (int p = 0; p < N_PARAMS; p++) {
        cadre_free(ignored[p]);
    }
    cadre_net_worker_destroy(worker);
}

enum { CHANNELS = 10, EXTENT = 5, ELEMENTS = CHANNELS * EXTENT * EXTENT };

// Which elements of n samples of ones dropout keeps, as its y.
static void drop_ones(
    int64_t block, const cadre_pass *pass, int number, float *y)
{
    cadre_layer_plan plan = {.ops = &cadre_dropout,
        .in = {CHANNELS, EXTENT, EXTENT, block, 0},
        .number = number};
    const cadre_layer layer = {.kind = "dropout", .rate = 0.3f};
    CHECK_OK(cadre_dropout.plan(&layer, &plan));
    int64_t columns = cadre_shape_columns(plan.in);
    size_t count = (size_t)(columns * pass->n_samples);
    cadre_matrix m = {floats(count), pass->n_samples, columns, columns};
    for (size_t i = 0; i < count; i++) {
        m.data[i] = 1.0f;
    }
    const cadre_layer_call call = {
        .plan = &plan, .x = cadre_matrix_read(m), .pass = pass};
    CHECK_OK(cadre_dropout.forward(&call, m));
    cadre_layer_plan plain = {.in = plan.in, .out = plan.out};
    plain.out.block = 1;
    const cadre_layer_call moving = {.plan = &plain, .x = cadre_matrix_read(m)};
    const cadre_matrix to = {y, pass->n_samples, ELEMENTS, ELEMENTS};
    CHECK_OK(cadre_relayout.forward(&moving, to));
    cadre_free(m.data);
}

// Element e of a row takes word e % 4 of counter e / 4, forward and backward.
static void check_dropped(cadre_shape shape)
{
    enum { ROWS = 2 };
    const cadre_pass pass = {
        .n_samples = ROWS, .first_sample = 3, .seed = 1, .step = 2};
    const cadre_layer_plan plan = {
        .ops = &cadre_dropout, .in = shape, .rate = 0.3f, .number = 4};
    uint32_t key[4];
    cadre_random_words(1, CADRE_STREAM_DROPOUT, 4, 2, key);
    const int64_t columns = cadre_shape_columns(shape);
    const size_t count = (size_t)(ROWS * columns);
    float *x = floats(count);
    formula_fill(FORMULA_X, count, 1.0f, x);
    const cadre_matrix from = {x, ROWS, columns, columns};
    const cadre_matrix y = {floats(count), ROWS, columns, columns};
    const cadre_matrix dx = {floats(count), ROWS, columns, columns};
    const cadre_layer_call call = {.plan = &plan,
        .x = cadre_matrix_read(from),
        .dy = cadre_matrix_read(from),
        .pass = &pass};
    CHECK_OK(cadre_dropout.forward(&call, y));
    CHECK_OK(cadre_dropout.input_gradient(&call, dx));
    const int64_t pixels = shape.height * shape.width;
    for (int64_t i = 0; i < ROWS * cadre_shape_elements(shape); i++) {
        int64_t n = i / cadre_shape_elements(shape);
        int64_t e = i % cadre_shape_elements(shape);
        int64_t c = e / pixels;
        uint32_t words[4];
        cadre_random_words((uint64_t)key[0] << 32 | key[1],
            CADRE_STREAM_DROPOUT, (uint32_t)(3 + n), (uint64_t)(e / 4), words);
        int64_t at = n * columns + c / shape.block * pixels * shape.block +
                     e % pixels * shape.block + c % shape.block;
        float wanted = cadre_random_unit(words[e % 4]) >= 0.3f
                           ? x[at] * (1.0f / (1.0f - 0.3f))
                           : 0.0f;
        assert_true(y.data[at] == wanted);
        assert_true(dx.data[at] == wanted);
    }
    cadre_free(x);
    cadre_free(y.data);
    cadre_free(dx.data);
}

static void dropout_takes_the_word_of_each_element(void **state)
{
    use_isa(state);
    for (int64_t n = 1; n <= 300; n += 1 + n / 8) {
        check_dropped((cadre_shape){n, 1, 1, 1, 0});
    }
    for (int64_t block = 1; block <= 16; block = block == 1 ? 8 : 2 * block) {
        for (int64_t pixels = 1; pixels <= 70; pixels += 1 + pixels / 8) {
            check_dropped((cadre_shape){13, 1, pixels, block, 0});
            check_dropped((cadre_shape){32, pixels, 3, block, 0});
        }
    }
}

static void dropout_follows_the_counters(void **state)
{
    (void)state;
    enum { N = 8 };
    static float whole[N * ELEMENTS];
    static float other[N * ELEMENTS];
    const cadre_pass pass = {.n_samples = N, .seed = 1, .step = 2};
    drop_ones(1, &pass, 3, whole);
    int kept = 0;
    for (int i = 0; i < N * ELEMENTS; i++) {
        assert_true(whole[i] == 0.0f || whole[i] == 1.0f / (1.0f - 0.3f));
        kept += whole[i] > 0.0f;
    }
    // 0.7 of them, within 5 sigma.
    assert_true(
        fabs(kept - 0.7 * N * ELEMENTS) < 5 * sqrt(0.3 * 0.7 * N * ELEMENTS));

    // However images lie, and wherever a pass begins.
    drop_ones(8, &pass, 3, other);
    assert_memory_equal(other, whole, sizeof(whole));
    cadre_pass part = pass;
    part.n_samples = 3;
    part.first_sample = 5;
    drop_ones(16, &part, 3, other);
    assert_memory_equal(
        other, whole + 5 * ELEMENTS, 3 * ELEMENTS * sizeof(float));

    // Another seed, step or layer: others.
    cadre_pass changed = pass;
    changed.seed = 9;
    drop_ones(1, &changed, 3, other);
    assert_memory_not_equal(other, whole, sizeof(whole));
    changed = pass;
    changed.step = 9;
    drop_ones(1, &changed, 3, other);
    assert_memory_not_equal(other, whole, sizeof(whole));
    drop_ones(1, &pass, 4, other);
    assert_memory_not_equal(other, whole, sizeof(whole));
}

// A prediction drops nothing: its losses do not depend on what a pass was of.
static void a_prediction_drops_nothing(void **state)
{
    (void)state;
    const cadre_layer dropout = {.kind = "dropout", .rate = 0.5f};
    cadre_net *net = NULL;
    cadre_net_worker *worker = NULL;
    CHECK_OK(
        cadre_net_create(&dropout, 1, (cadre_shape){3, 1, 1, 1, 0}, 3, &net));
    CHECK_OK(cadre_net_worker_create(net, (int64_t[]){1}, 1, &worker));
    const float x[] = {1.0f, 2.0f, 3.0f};
    float loss;
    int32_t class;
    CHECK_OK(
        cadre_net_predict(worker, NULL, x, (int32_t[]){2}, 1, &loss, &class));
    assert_int_equal(class, 2);
    assert_true(fabs((double)loss - log(exp(-2.0) + exp(-1.0) + 1.0)) < 1e-6);
    cadre_net_worker_destroy(worker);
    cadre_net_destroy(net);
}

// x, y and dx of a 2 x 4 image in two windows, behind a ReLU or not.
static void pool_max(
    const float *x, const float *dy, bool relu, float *y, float *dx)
{
    cadre_layer_plan plan = {.in = {1, 2, 4, 1, 0}, .masks = relu};
    const cadre_layer layer = {.kind = "maxpool2d", .kernel = 2};
    CHECK_OK(cadre_maxpool2d.plan(&layer, &plan));
    const cadre_matrix out = {y, 1, 2, 2};
    const cadre_matrix down = {dx, 1, 8, 8};
    const cadre_layer_call call = {.plan = &plan,
        .x = {x, 1, 8, 8},
        .y = {y, 1, 2, 2},
        .dy = {dy, 1, 2, 2}};
    CHECK_OK(cadre_maxpool2d.forward(&call, out));
    CHECK_OK(cadre_maxpool2d.input_gradient(&call, down));
}

static void the_first_of_equal_elements_takes_the_gradient(void **state)
{
    (void)state;
    const float x[] = {1, 7, 5, 5, /**/ 7, 7, 5, 5};
    const float dy[] = {2, 3};
    float y[2];
    float dx[8];
    pool_max(x, dy, false, y, dx);
    const float wanted[] = {0, 2, 3, 0, /**/ 0, 0, 0, 0};
    assert_true(y[0] == 7.0f && y[1] == 5.0f);
    assert_memory_equal(dx, wanted, sizeof(wanted));
}

static void pooling_does_not_hide_nan(void **state)
{
    (void)state;
    const float x[] = {1, 2, 5, 4, /**/ NAN, 9, 1, 2};
    const float dy[] = {2, 3};
    float y[2];
    float dx[8];
    for (int relu = 0; relu < 2; relu++) {
        pool_max(x, dy, relu == 1, y, dx);
        assert_true(isnan(y[0]) && y[1] == 5.0f);
        assert_true(dx[4] == 2.0f && dx[2] == 3.0f);
    }
}

static void what_a_relu_cut_off_takes_no_gradient(void **state)
{
    (void)state;
    const float x[] = {0, 0, 0, 0, /**/ 0, 0, 0, 1};
    const float dy[] = {2, 3};
    float y[2];
    float dx[8];
    pool_max(x, dy, true, y, dx);
    const float wanted[] = {0, 0, 0, 0, /**/ 0, 0, 0, 3};
    assert_memory_equal(dx, wanted, sizeof(wanted));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(bits_do_not_depend_on_threads),
        CASE(allocates_nothing_in_a_pass),
        CASE(every_allocation_may_fail),
        CASE(gradients_are_those_of_the_loss),
        ON_EVERY_ISA(dropout_takes_the_word_of_each_element),
        cmocka_unit_test(dropout_follows_the_counters),
        cmocka_unit_test(a_prediction_drops_nothing),
        cmocka_unit_test(the_first_of_equal_elements_takes_the_gradient),
        cmocka_unit_test(pooling_does_not_hide_nan),
        cmocka_unit_test(what_a_relu_cut_off_takes_no_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
