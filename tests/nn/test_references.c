// SPDX-License-Identifier: Apache-2.0
//
// Each layer alone, forward and backward, and the first steps of the MLP
// against what PyTorch computes (references.txt, made by
// tools/make_nn_references.py).

#include "base/alloc.h"
#include "base/number.h"
#include "data/dataset.h"
#include "nn/formula.h"
#include "nn/layer.h"
#include "nn/softmax_cross_entropy.h"
#include "support/check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_STORED = 8192 };

typedef char word[32];

// An entry of references.txt.
typedef struct reference {
    word kind;
    word tensor;
    int n;
    int i;
    int o;
    size_t step;
    size_t count;
    double norm;
    float values[MOST_STORED];
} reference;

static FILE *references_open(void)
{
    FILE *file = fopen(CADRE_NN_REFERENCES, "re");
    assert_non_null(file);
    return file;
}

static int64_t read_int(FILE *file)
{
    word text;
    int64_t value = 0;
    assert_int_equal(fscanf(file, "%31s", text), 1);
    assert_true(cadre_parse_int(text, 0, INT32_MAX, &value));
    return value;
}

static float read_pattern(FILE *file)
{
    word text;
    char *end = NULL;
    assert_int_equal(fscanf(file, "%31s", text), 1);
    uint32_t pattern = (uint32_t)strtoul(text, &end, 16);
    assert_true(end == text + 8);
    float value;
    memcpy(&value, &pattern, sizeof(value));
    return value;
}

static bool read_reference(FILE *file, reference *r)
{
    if (fscanf(file, "%31s", r->kind) != 1) {
        return false;
    }
    r->n = (int)read_int(file);
    r->i = (int)read_int(file);
    r->o = (int)read_int(file);
    assert_int_equal(fscanf(file, "%31s", r->tensor), 1);
    r->step = (size_t)read_int(file);
    r->count = (size_t)read_int(file);
    word norm;
    assert_int_equal(fscanf(file, "%31s", norm), 1);
    assert_true(cadre_parse_double(norm, &r->norm));
    assert_in_range(r->count, 1, MOST_STORED);
    for (size_t k = 0; k < r->count; k++) {
        r->values[k] = read_pattern(file);
    }
    return true;
}

// ||ours - theirs|| / ||theirs|| over the stored elements, and the norms of all
// of them, within 1e-5.
static void compare(const reference *r, const float *ours, size_t count)
{
    assert_int_equal((count - 1) / r->step + 1, r->count);
    double difference = 0.0;
    double theirs = 0.0;
    double all = 0.0;
    for (size_t k = 0; k < r->count; k++) {
        double d = (double)ours[k * r->step] - (double)r->values[k];
        difference += d * d;
        theirs += (double)r->values[k] * (double)r->values[k];
    }
    for (size_t k = 0; k < count; k++) {
        all += (double)ours[k] * (double)ours[k];
    }
    double error = sqrt(difference) / sqrt(theirs);
    double norm_error = fabs(sqrt(all) - r->norm) / r->norm;
    if (!(error <= 1e-5) || !(norm_error <= 1e-5)) {
        fail_msg("%s %d x %d -> %d: %s is off by %g, its norm by %g", r->kind,
            r->n, r->i, r->o, r->tensor, error, norm_error);
    }
}

static float *floats(size_t count)
{
    float *values = cadre_alloc_array(count, sizeof(*values));
    assert_non_null(values);
    return values;
}

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

// Computes the tensor that the reference names, with the layer's own table.
static void check_layer(const reference *r)
{
    const cadre_layer_ops *ops = NULL;
    CHECK_OK(cadre_layer_find(r->kind, &ops));
    bool trained = ops->n_params > 0;
    cadre_layer layer = {.kind = r->kind, .width = trained ? r->o : 0};
    cadre_layer_plan plan = {.ops = ops, .name = "alone", .in = r->i};
    CHECK_OK(ops->plan(&layer, &plan));
    assert_int_equal(plan.out, r->o);

    float bound = (float)(1.0 / sqrt((double)r->i));
    size_t n_weights = (size_t)r->i * (size_t)r->o;
    float *weight = floats(n_weights);
    float *bias = floats((size_t)r->o);
    formula_fill(FORMULA_WEIGHT, n_weights, bound, weight);
    formula_fill(FORMULA_BIAS, (size_t)r->o, bound, bias);
    const float *params[] = {weight, bias};
    cadre_matrix x = matrix(FORMULA_X, r->n, r->i, 1.0f);
    cadre_matrix dy = matrix(FORMULA_DY, r->n, r->o, 1.0f);
    cadre_matrix y = matrix(0, r->n, r->o, 1.0f);
    cadre_matrix dx = matrix(0, r->n, r->i, 1.0f);

    CHECK_OK(ops->forward(&plan, params, cadre_matrix_read(x), y));
    if (strcmp(r->tensor, "y") == 0) {
        compare_matrix(r, y);
    } else if (strcmp(r->tensor, "dx") == 0) {
        float *scratch = floats(plan.scratch);
        CHECK_OK(ops->input_gradient(&plan, params, cadre_matrix_read(y),
            cadre_matrix_read(dy), dx, scratch));
        compare_matrix(r, dx);
        cadre_free(scratch);
    } else {
        int which = strcmp(r->tensor, "dw") == 0 ? 0 : 1;
        size_t count = which == 0 ? n_weights : (size_t)r->o;
        float *grad = floats(count);
        CHECK_OK(ops->param_gradient(
            &plan, which, cadre_matrix_read(x), cadre_matrix_read(dy), grad));
        compare(r, grad, count);
        cadre_free(grad);
    }
    cadre_free(weight);
    cadre_free(bias);
    cadre_free(x.data);
    cadre_free(dy.data);
    cadre_free(y.data);
    cadre_free(dx.data);
}

static void check_loss(const reference *r)
{
    cadre_matrix z = matrix(FORMULA_X, r->n, r->i, 8.0f);
    cadre_matrix dz = matrix(0, r->n, r->i, 1.0f);
    float *losses = floats((size_t)r->n);
    int32_t *labels = cadre_alloc_array((size_t)r->n, sizeof(*labels));
    formula_labels((size_t)r->n, r->i, labels);

    cadre_softmax_cross_entropy(cadre_matrix_read(z), labels, losses, dz);
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
    int linear = 0;
    int relu = 0;
    int loss = 0;
    FILE *file = references_open();
    while (read_reference(file, &r)) {
        if (strcmp(r.kind, "mlp") == 0) {
            continue;
        }
        if (strcmp(r.kind, "softmax_cross_entropy") == 0) {
            check_loss(&r);
            loss++;
        } else {
            check_layer(&r);
            linear += strcmp(r.kind, "linear") == 0;
            relu += strcmp(r.kind, "relu") == 0;
        }
    }
    fclose(file);
    assert_int_equal(linear, 4 * 4);
    assert_int_equal(relu, 3 * 2);
    assert_int_equal(loss, 4 * 2);
}

// The MLP, with AdamW as its paper writes it.

enum { N_PARAMS = 6, BATCH = 128, STEPS = 5, PIXELS = 784 };

typedef struct trained {
    size_t counts[N_PARAMS];
    float *params[N_PARAMS];
    float *grads[N_PARAMS];
    double *m[N_PARAMS];
    double *v[N_PARAMS];
} trained;

static float *grad_of(void *ctx, int index)
{
    trained *t = ctx;
    return t->grads[index];
}

static cadre_status ready(void *ctx, int index)
{
    (void)ctx;
    (void)index;
    return CADRE_OK;
}

static void start(const cadre_net *net, trained *t)
{
    for (int p = 0; p < N_PARAMS; p++) {
        const cadre_net_param *param = cadre_net_param_at(net, p);
        t->counts[p] = param->count;
        t->params[p] = floats(param->count);
        t->grads[p] = floats(param->count);
        t->m[p] = cadre_alloc_array(param->count, sizeof(double));
        t->v[p] = cadre_alloc_array(param->count, sizeof(double));
        formula_fill(FORMULA_MLP + (uint32_t)p, param->count, param->init_bound,
            t->params[p]);
    }
}

static void finish(trained *t)
{
    for (int p = 0; p < N_PARAMS; p++) {
        cadre_free(t->params[p]);
        cadre_free(t->grads[p]);
        cadre_free(t->m[p]);
        cadre_free(t->v[p]);
    }
}

static void adamw(trained *t, int step)
{
    const double lr = 1e-3;
    const double decay = 0.01;
    const double beta1 = 0.9;
    const double beta2 = 0.999;
    double unbias1 = 1.0 - pow(beta1, step);
    double unbias2 = 1.0 - pow(beta2, step);
    for (int p = 0; p < N_PARAMS; p++) {
        for (size_t k = 0; k < t->counts[p]; k++) {
            double g = (double)t->grads[p][k] / BATCH;
            double *m = &t->m[p][k];
            double *v = &t->v[p][k];
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * g * g;
            double update = *m / unbias1 / (sqrt(*v / unbias2) + 1e-8);
            double value = (double)t->params[p][k];
            t->params[p][k] = (float)(value - lr * (update + decay * value));
        }
    }
}

// The mean loss of a step over the samples in the order of their file.
static double train_step(cadre_net_worker *worker, trained *t,
    const cadre_dataset *dataset, int step)
{
    static float x[BATCH][PIXELS];
    int32_t labels[BATCH];
    for (int n = 0; n < BATCH; n++) {
        cadre_dataset_read(dataset, step * BATCH + n, x[n], &labels[n]);
    }
    cadre_grad_listener listener = {t, grad_of, ready};
    double loss = 0.0;
    CHECK_OK(cadre_net_pass(worker, (const float *const *)t->params, x[0],
        labels, BATCH, true, true, &listener, &loss));
    adamw(t, step + 1);
    return loss / BATCH;
}

static void first_losses_agree(void **state)
{
    (void)state;
    const cadre_layer layers[] = {
        {"linear", "fc1", 512},
        {"relu", NULL, 0},
        {"linear", "fc2", 256},
        {"relu", NULL, 0},
        {"linear", "fc3", 10},
    };
    cadre_net *net = NULL;
    cadre_net_worker *worker = NULL;
    cadre_dataset *dataset = NULL;
    trained t;
    CHECK_OK(cadre_net_create(layers, 5, PIXELS, 10, &net));
    CHECK_OK(cadre_net_worker_create(net, (int64_t[]){BATCH}, 1, &worker));
    CHECK_OK(cadre_dataset_open("fashion", NULL, CADRE_SPLIT_TRAIN, &dataset));
    start(net, &t);

    static reference r;
    int step = 0;
    FILE *file = references_open();
    while (read_reference(file, &r)) {
        if (strcmp(r.kind, "mlp") == 0) {
            assert_int_equal(r.n, BATCH);
            assert_int_equal(r.i, step);
            double loss = train_step(worker, &t, dataset, step);
            if (!(fabs(loss - r.norm) <= 1e-4 * r.norm)) {
                fail_msg(
                    "step %d: loss %.9g instead of %.9g", step, loss, r.norm);
            }
            step++;
        }
    }
    fclose(file);
    assert_int_equal(step, STEPS);

    finish(&t);
    cadre_dataset_close(dataset);
    cadre_net_worker_destroy(worker);
    cadre_net_destroy(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_alone_agree),
        cmocka_unit_test(first_losses_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
