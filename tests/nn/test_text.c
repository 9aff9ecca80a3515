// SPDX-License-Identifier: Apache-2.0
//
// The layers of texts, each alone, against what PyTorch computes
// (text_references.txt, made by tools/make_nn_references.py).

#include "nn/formula.h"
#include "nn/layer.h"
#include "nn/reference.h"
#include "nn/softmax_cross_entropy.h"

// What a call to a layer is made of.
typedef struct trial {
    cadre_layer_plan plan;
    cadre_layer_state *state;
    float *params[2];
    float *x;
    float *y;
    float *dy;
    float *dx;
    float *scratch;
    float *tokens; // of a text that is padded, else NULL
    int64_t n_rows;
} trial;

static cadre_matrix matrix(float *data, int64_t rows, int64_t columns)
{
    return (cadre_matrix){data, rows, columns, columns};
}

static bool is_padded(const reference *r)
{
    return strncmp(r->kind, "padded_", strlen("padded_")) == 0;
}

static void plan_alone(const reference *r, trial *t)
{
    bool embeds = strcmp(r->kind, "embedding") == 0;
    const cadre_layer layer = {
        .kind = r->kind + (is_padded(r) ? strlen("padded_") : 0),
        .width = embeds ? r->o : 0,
        .vocabulary = embeds ? r->i : 0,
        .heads = r->heads,
        .kv_heads = r->kv_heads};
    CHECK_OK(cadre_layer_find(&layer, &t->plan.ops));
    snprintf(t->plan.name, sizeof(t->plan.name), "alone");
    t->plan.in = (cadre_shape){embeds ? 1 : r->i, 1, 1, 1, r->tokens};
    CHECK_OK(t->plan.ops->plan(&layer, &t->plan));
    assert_int_equal(t->plan.out.channels, r->o);
    assert_int_equal(t->plan.out.tokens, r->tokens);
}

static void fill_input(const reference *r, trial *t)
{
    size_t count = (size_t)(t->n_rows * t->plan.in.channels);
    t->x = floats(count);
    if (strcmp(r->kind, "embedding") == 0) {
        int32_t *tokens = cadre_alloc_array(count, sizeof(*tokens));
        assert_non_null(tokens);
        formula_labels(count, r->i, tokens);
        for (size_t k = 0; k < count; k++) {
            t->x[k] = (float)tokens[k];
        }
        cadre_free(tokens);
        return;
    }
    bool gates = strcmp(r->kind, "gelu") == 0 || strcmp(r->kind, "silu") == 0 ||
                 strcmp(r->kind, "swiglu") == 0;
    bool attends = strstr(r->kind, "attention") != NULL;
    float scale = gates ? 4.0f : attends ? 2.0f : 1.0f;
    formula_fill(FORMULA_X, count, scale, t->x);
}

// A third of the tokens are none, and of several texts the whole last.
static void pad(const reference *r, trial *t)
{
    int32_t *draws = cadre_alloc_array((size_t)t->n_rows, sizeof(*draws));
    assert_non_null(draws);
    formula_labels((size_t)t->n_rows, 3, draws);
    t->tokens = floats((size_t)t->n_rows);
    for (int64_t k = 0; k < t->n_rows; k++) {
        bool last = r->n > 1 && k / r->tokens == r->n - 1;
        t->tokens[k] = last || draws[k] == 0 ? (float)CADRE_NO_TOKEN : 7.0f;
    }
    cadre_free(draws);
}

static size_t param_count(const trial *t, int p)
{
    cadre_net_param param = {.count = 1};
    t->plan.ops->param(&t->plan, p, &param);
    for (int d = 0; d < param.n_dims; d++) {
        param.count *= (size_t)param.shape[d];
    }
    return param.count;
}

static void begin(const reference *r, trial *t)
{
    plan_alone(r, t);
    t->n_rows = r->n * cadre_shape_rows(t->plan.in);
    fill_input(r, t);
    if (is_padded(r)) {
        pad(r, t);
    }
    size_t n_out = (size_t)(t->n_rows * r->o);
    t->y = floats(n_out);
    t->dy = floats(n_out);
    t->dx = floats((size_t)(t->n_rows * t->plan.in.channels));
    formula_fill(FORMULA_DY, n_out, 1.0f, t->dy);
    for (int p = 0; p < t->plan.ops->n_params; p++) {
        size_t count = param_count(t, p);
        t->params[p] = floats(count);
        formula_fill(
            p == 0 ? FORMULA_WEIGHT : FORMULA_BIAS, count, 1.0f, t->params[p]);
    }
    if (t->plan.ops->prepare != NULL) {
        CHECK_OK(t->plan.ops->prepare(&t->plan, r->n, &t->state));
    }
    t->scratch = floats(t->plan.scratch);
}

static void end(trial *t)
{
    if (t->plan.ops->release != NULL) {
        t->plan.ops->release(t->state);
    }
    float *all[] = {t->params[0], t->params[1], t->x, t->y, t->dy, t->dx,
        t->scratch, t->tokens};
    for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++) {
        cadre_free(all[k]);
    }
}

static cadre_layer_call call_of(const trial *t)
{
    int64_t in = t->plan.in.channels;
    int64_t out = t->plan.out.channels;
    return (cadre_layer_call){
        .plan = &t->plan,
        .state = t->state,
        .params = (const float *const *)t->params,
        .x = cadre_matrix_read(matrix(t->x, t->n_rows, in)),
        .y = cadre_matrix_read(matrix(t->y, t->n_rows, out)),
        .dy = cadre_matrix_read(matrix(t->dy, t->n_rows, out)),
        .tokens = t->tokens,
        .scratch = t->scratch,
    };
}

// Forward and backward; the gradient of parameter p goes to grads[p].
static void compute(trial *t, float *grads[2])
{
    const cadre_layer_ops *ops = t->plan.ops;
    cadre_layer_call call = call_of(t);
    CHECK_OK(
        ops->forward(&call, matrix(t->y, t->n_rows, t->plan.out.channels)));
    for (int p = 0; p < ops->n_params; p++) {
        grads[p] = floats(param_count(t, p));
        CHECK_OK(ops->param_gradient(&call, p, grads[p]));
    }
    if (ops->input_gradient != NULL) {
        CHECK_OK(ops->input_gradient(
            &call, matrix(t->dx, t->n_rows, t->plan.in.channels)));
    }
}

static void check_alone(const reference *r)
{
    trial t = {0};
    float *grads[2] = {NULL, NULL};
    begin(r, &t);
    compute(&t, grads);
    if (strcmp(r->tensor, "y") == 0) {
        compare(r, t.y, (size_t)(t.n_rows * r->o));
    } else if (strcmp(r->tensor, "dx") == 0) {
        compare(r, t.dx, (size_t)(t.n_rows * r->i));
    } else {
        int p = strcmp(r->tensor, "db") == 0;
        if (grads[p] == NULL) {
            fail_msg("%s has no %s", r->kind, r->tensor);
            return;
        }
        compare(r, grads[p], param_count(&t, p));
    }
    cadre_free(grads[0]);
    cadre_free(grads[1]);
    end(&t);
}

// The loss of labels that are shared, and that every third sample lacks; its
// gradient is written over the scores.
static void smoothed_loss(const reference *r, float *z, float *losses)
{
    int32_t *labels = cadre_alloc_array((size_t)r->n, sizeof(*labels));
    assert_non_null(labels);
    formula_fill(FORMULA_X, (size_t)r->n * (size_t)r->i, 8.0f, z);
    formula_labels((size_t)r->n, r->i, labels);
    for (int n = 0; n < r->n; n += 3) {
        labels[n] = CADRE_NO_LABEL;
    }
    cadre_matrix m = matrix(z, r->n, r->i);
    cadre_softmax_cross_entropy(cadre_matrix_read(m), labels, 0.1f, losses, m);
    cadre_free(labels);
}

static void check_loss(const reference *r)
{
    float *z = floats((size_t)r->n * (size_t)r->i);
    float *losses = floats((size_t)r->n);
    smoothed_loss(r, z, losses);
    if (strcmp(r->tensor, "loss") == 0) {
        compare(r, losses, (size_t)r->n);
    } else {
        compare(r, z, (size_t)r->n * (size_t)r->i);
    }
    cadre_free(z);
    cadre_free(losses);
}

static void layers_alone_agree(void **state)
{
    (void)state;
    static reference r;
    int seen = 0;
    FILE *file = references_open();
    while (read_reference(file, &r)) {
        if (is_net(&r)) {
            continue;
        }
        if (strcmp(r.kind, "smoothed_cross_entropy") == 0) {
            check_loss(&r);
        } else {
            check_alone(&r);
        }
        seen++;
    }
    fclose(file);
    assert_int_equal(
        seen, 3 * 2 + 3 * 4 + 2 + 3 + 13 * 2 + 3 * (3 + 2 + 2) + 2 * 2 + 3 * 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_alone_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
