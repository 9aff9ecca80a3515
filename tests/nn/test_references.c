// SPDX-License-Identifier: Apache-2.0
//
// Each layer alone, forward and backward, and the first steps of the recipes'
// nets against what PyTorch computes (references.txt, made by
// tools/make_nn_references.py).

#include "base/alloc.h"
#include "data/dataset.h"
#include "nn/formula.h"
#include "nn/layer.h"
#include "nn/reference.h"
#include "nn/softmax_cross_entropy.h"
#include "nn/training.h"
#include "support/check.h"
#include "train/recipe.h"
#include <math.h>
#include <stdio.h>

// A matrix of the formula's values, whose rows lie further apart than they
// must; what is between them is NaN, which would show in any result.
static cadre_matrix matrix(uint32_t tag, int rows, int columns, float scale)
{
    int stride = columns + 3;
    cadre_matrix m = {
        floats((size_t)rows * (size_t)stride), rows, columns, stride};
    for (int k = 0; k < rows * stride; k++) {
        m.data[k] = NAN;
    }
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < columns; c++) {
            cadre_matrix_row(m, r)[c] = formula_value(
                tag, (size_t)r * (size_t)columns + (size_t)c, scale);
        }
    }
    return m;
}

static void compare_matrix(const reference *r, cadre_matrix m)
{
    size_t count = (size_t)(m.rows * m.columns);
    float *dense = floats(count);
    for (int64_t row = 0; row < m.rows; row++) {
        memcpy(dense + row * m.columns, cadre_matrix_row(m, row),
            (size_t)m.columns * sizeof(*dense));
    }
    compare(r, dense, count);
    cadre_free(dense);
}

enum { LAYER_PARAMS = 4 };

// What a call to a layer is made of.
typedef struct trial {
    cadre_layer_plan plan;
    cadre_layer_state *state;
    const float *params[LAYER_PARAMS];
    cadre_matrix x;
    cadre_matrix y;
    cadre_matrix dy;
    cadre_matrix dx;
    float *scratch;
} trial;

static cadre_layer_call call_of(const trial *t)
{
    static const cadre_pass trained;
    return (cadre_layer_call){
        .pass = &trained,
        .plan = &t->plan,
        .state = t->state,
        .params = t->params,
        .x = cadre_matrix_read(t->x),
        .y = cadre_matrix_read(t->y),
        .dy = cadre_matrix_read(t->dy),
        .scratch = t->scratch,
    };
}

static size_t count_of(const cadre_net_param *param)
{
    size_t count = 1;
    for (int d = 0; d < param->n_dims; d++) {
        count *= (size_t)param->shape[d];
    }
    return count;
}

// Parameter p of the layer as the layer describes it.
static cadre_net_param describe(const trial *t, int p)
{
    cadre_net_param param = {0};
    t->plan.ops->param(&t->plan, p, &param);
    return param;
}

// What the references call a parameter's gradient.
static const char *tensor_of(const cadre_net_param *param)
{
    const char *name = strrchr(param->name, '.') + 1;
    return strcmp(name, "weight") == 0         ? "dw"
           : strcmp(name, "bias") == 0         ? "db"
           : strcmp(name, "running_mean") == 0 ? "mean"
                                               : "var";
}

// Computes the tensor that the reference names; the two matrices are its y and
// its dx.
static void compute(const reference *r, trial *t)
{
    const cadre_layer_ops *ops = t->plan.ops;
    size_t scratch = t->plan.scratch;
    if (ops->prepare != NULL) {
        t->plan.passes_down = true;
        CHECK_OK(ops->prepare(&t->plan, r->n, &t->state));
        scratch = t->state->scratch;
    }
    t->scratch = floats(scratch);
    cadre_layer_call call = call_of(t);
    CHECK_OK(ops->forward(&call, t->y));
    for (int p = 0; p < t->plan.n_params; p++) {
        const cadre_net_param param = describe(t, p);
        size_t count = count_of(&param);
        float *grad = floats(count);
        CHECK_OK(ops->param_gradient(&call, p, grad));
        if (strcmp(r->tensor, tensor_of(&param)) == 0) {
            compare(r, grad, count);
        }
        cadre_free(grad);
    }
    CHECK_OK(ops->input_gradient(&call, t->dx));
    if (ops->release != NULL) {
        ops->release(t->state);
    }
    cadre_free(t->scratch);
}

// With PyTorch's bounds, where the layer has one.
static void fill_params(trial *t)
{
    for (int p = 0; p < t->plan.n_params; p++) {
        const cadre_net_param param = describe(t, p);
        float bound = param.init_bound > 0 ? param.init_bound : 1.0f;
        float *values = floats(count_of(&param));
        formula_fill(
            FORMULA_WEIGHT + (uint32_t)p, count_of(&param), bound, values);
        t->params[p] = values;
    }
}

static void drop_params(trial *t)
{
    for (int p = 0; p < t->plan.n_params; p++) {
        float *values;
        memcpy(&values, &t->params[p], sizeof(values));
        cadre_free(values);
    }
}

static void drop_matrices(trial *t)
{
    cadre_free(t->x.data);
    cadre_free(t->y.data);
    cadre_free(t->dy.data);
    cadre_free(t->dx.data);
}

static void plan_alone(const reference *r, cadre_shape in, trial *t)
{
    cadre_layer layer = {.kind = r->kind,
        .kernel = r->kernel,
        .stride = r->stride,
        .padding = r->padding,
        .dilation = r->dilation,
        .groups = r->groups};
    bool trained =
        strcmp(r->kind, "linear") == 0 || strcmp(r->kind, "conv2d") == 0;
    layer.width = trained ? r->o : 0;
    CHECK_OK(cadre_layer_find(&layer, &t->plan.ops));
    snprintf(t->plan.name, sizeof(t->plan.name), "alone");
    t->plan.in = in;
    t->plan.n_params = t->plan.ops->n_params;
    CHECK_OK(t->plan.ops->plan(&layer, &t->plan));
    assert_int_equal(t->plan.out.channels, r->o);
}

static void check_rows(const reference *r)
{
    trial t = {0};
    plan_alone(r, (cadre_shape){r->i, 1, 1, 1, 0}, &t);
    fill_params(&t);
    t.x = matrix(FORMULA_X, r->n, r->i, 1.0f);
    t.dy = matrix(FORMULA_DY, r->n, r->o, 1.0f);
    t.y = matrix(0, r->n, r->o, 1.0f);
    t.dx = matrix(0, r->n, r->i, 1.0f);
    compute(r, &t);
    if (strcmp(r->tensor, "y") == 0) {
        compare_matrix(r, t.y);
    } else if (strcmp(r->tensor, "dx") == 0) {
        compare_matrix(r, t.dx);
    }
    drop_params(&t);
    drop_matrices(&t);
}

static cadre_matrix images(int n, cadre_shape shape)
{
    int64_t columns = cadre_shape_columns(shape);
    return (cadre_matrix){floats((size_t)(n * columns)), n, columns, columns};
}

// The same images in another block.
static cadre_matrix moved(
    cadre_matrix from, cadre_shape shape, int64_t from_block, int64_t to_block)
{
    cadre_layer_plan plan = {.in = shape, .out = shape};
    plan.in.block = from_block;
    plan.out.block = to_block;
    cadre_matrix to = images((int)from.rows, plan.out);
    if (from_block == to_block) {
        memcpy(to.data, from.data,
            (size_t)(to.rows * to.columns) * sizeof(*to.data));
        return to;
    }
    const cadre_layer_call call = {.plan = &plan, .x = cadre_matrix_read(from)};
    CHECK_OK(cadre_relayout.forward(&call, to));
    return to;
}

static cadre_matrix formula_images(
    uint32_t tag, int n, cadre_shape shape, float scale, bool quarters)
{
    cadre_shape plain = shape;
    plain.block = 1;
    cadre_matrix m = images(n, plain);
    size_t count = (size_t)(m.rows * m.columns);
    formula_fill(tag, count, scale, m.data);
    for (size_t k = 0; k < count && quarters; k++) {
        m.data[k] = floorf(m.data[k] * 4.0f) / 4.0f;
    }
    cadre_matrix laid = moved(m, shape, 1, shape.block);
    cadre_free(m.data);
    return laid;
}

static void compare_images(
    const reference *r, cadre_matrix m, cadre_shape shape)
{
    cadre_matrix plain = moved(m, shape, shape.block, 1);
    compare(r, plain.data, (size_t)(plain.rows * plain.columns));
    cadre_free(plain.data);
}

static void check_images_in(const reference *r, int64_t block)
{
    trial t = {0};
    plan_alone(r, (cadre_shape){r->i, r->height, r->width, block, 0}, &t);
    fill_params(&t);
    bool pool = strstr(r->kind, "pool") != NULL;
    bool large = t.plan.ops == &cadre_local_response_norm;
    t.x =
        formula_images(FORMULA_X, r->n, t.plan.in, large ? 200.0f : 1.0f, pool);
    t.dy = formula_images(FORMULA_DY, r->n, t.plan.out, 1.0f, false);
    t.y = images(r->n, t.plan.out);
    t.dx = images(r->n, t.plan.in);
    compute(r, &t);
    if (strcmp(r->tensor, "y") == 0) {
        compare_images(r, t.y, t.plan.out);
    } else if (strcmp(r->tensor, "dx") == 0) {
        compare_images(r, t.dx, t.plan.in);
    }
    drop_params(&t);
    drop_matrices(&t);
}

static void check_images(const reference *r)
{
    const cadre_layer kind = {.kind = r->kind, .kernel = r->kernel};
    const cadre_layer_ops *ops;
    CHECK_OK(cadre_layer_find(&kind, &ops));
    if (ops->input_block != NULL) {
        cadre_shape in = {r->i, r->height, r->width, 1, 0};
        check_images_in(r, ops->input_block(&kind, in));
        return;
    }
    static const int64_t blocks[] = {1, 8, 16};
    for (size_t k = 0; k < sizeof(blocks) / sizeof(blocks[0]); k++) {
        check_images_in(r, blocks[k]);
    }
}

static void check_loss(const reference *r)
{
    cadre_matrix z = matrix(FORMULA_X, r->n, r->i, 8.0f);
    cadre_matrix dz = matrix(0, r->n, r->i, 1.0f);
    float *losses = floats((size_t)r->n);
    int32_t *labels = cadre_alloc_array((size_t)r->n, sizeof(*labels));
    formula_labels((size_t)r->n, r->i, labels);

    cadre_softmax_cross_entropy(cadre_matrix_read(z), labels, 0, losses, dz);
    if (strcmp(r->tensor, "loss") == 0) {
        compare(r, losses, (size_t)r->n);
    } else {
        compare_matrix(r, dz);
    }
    cadre_free(z.data);
    cadre_free(dz.data);
    cadre_free(losses);
    cadre_free(labels);
}

static void layers_alone_agree(void **state)
{
    (void)state;
    static reference r;
    int rows = 0;
    int images_seen = 0;
    int loss = 0;
    FILE *file = references_open();
    while (read_reference(file, &r)) {
        if (is_net(&r)) {
            continue;
        }
        if (strcmp(r.kind, "softmax_cross_entropy") == 0) {
            check_loss(&r);
            loss++;
        } else if (is_image(&r)) {
            check_images(&r);
            images_seen++;
        } else {
            check_rows(&r);
            rows++;
        }
    }
    fclose(file);
    assert_int_equal(rows, 4 * 4 + 3 * 2);
    assert_int_equal(
        images_seen, 15 * 4 + (2 * 3 + 1) * 2 + 3 * 2 + 3 * 2 + 4 * 6);
    assert_int_equal(loss, 4 * 2);
}

enum { MOST_BATCH = 128, PIXELS = 784 };

// The mean loss of a step over the samples in the order of their file.
static double step_of_images(void *ctx, training *t, int step)
{
    const cadre_dataset *dataset = ctx;
    static float x[MOST_BATCH][PIXELS];
    int32_t labels[MOST_BATCH];
    for (int n = 0; n < t->batch; n++) {
        const cadre_place place = {.sample = step * t->batch + n};
        CHECK_OK(cadre_dataset_read(dataset, place, x[n], &labels[n]));
    }
    const cadre_pass whole = {
        x[0], labels, t->batch, .first = true, .last = true};
    return training_pass(t, &whole) / t->batch;
}

// PyTorch's bounds, which a batch norm takes from the layer before it, around 1
// for its weights.
static void fill_net(training *t)
{
    float bound = 1.0f;
    for (int p = 0; p < t->n_params; p++) {
        const cadre_net_param *param = cadre_net_param_at(t->net, p);
        bound = param->init_bound > 0 ? param->init_bound : bound;
        formula_fill(
            FORMULA_PARAM + (uint32_t)p, t->counts[p], bound, t->params[p]);
        for (size_t k = 0; k < t->counts[p]; k++) {
            t->params[p][k] += param->init_value;
        }
    }
}

// A recipe's net.
static void check_net(const char *name, int batch, int warmup, int n_grads)
{
    const cadre_recipe *recipe;
    cadre_net *net;
    cadre_dataset *dataset;
    training t;
    CHECK_OK(cadre_recipe_find(name, &recipe));
    const cadre_shape image = {1, 28, 28, 1, 0};
    CHECK_OK(cadre_recipe_net(recipe, &recipe->config, image, 10, &net));
    const cadre_dataset_options options = {.split = CADRE_SPLIT_TRAIN};
    CHECK_OK(cadre_dataset_open("fashion", &options, &dataset));
    training_start(&t, net, batch, batch);
    t.warmup = warmup;
    fill_net(&t);
    assert_int_equal(
        training_check(&t, name, step_of_images, dataset), n_grads);
    training_finish(&t);
    cadre_dataset_close(dataset);
}

static void the_mlp_agrees(void **state)
{
    (void)state;
    check_net("mlp-fashion", 128, 0, 0);
}

static void the_cnn_agrees(void **state)
{
    (void)state;
    check_net("cnn-fashion", 16, 0, 12);
}

static void lenet_agrees(void **state)
{
    (void)state;
    check_net("lenet-fashion", 16, 0, 10);
}

static void the_resnet_agrees(void **state)
{
    (void)state;
    check_net("resnet18-fashion", 16, 25, 47);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_alone_agree),
        cmocka_unit_test(the_mlp_agrees),
        cmocka_unit_test(the_cnn_agrees),
        cmocka_unit_test(lenet_agrees),
        cmocka_unit_test(the_resnet_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
