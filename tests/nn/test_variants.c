// SPDX-License-Identifier: Apache-2.0
//
// Every variant of a layer's own kernels has the bits of the plain one, on runs
// that no register divides, and with numbers among them that are unlike others.
// Of a NaN only that it is one: which of two NaNs a sum keeps is the compiler's.
// And each writes all of its output, whatever was there.

#include "base/alloc.h"
#include "nn/formula.h"
#include "nn/layer.h"
#include "nn/softmax_cross_entropy.h"
#include "support/isa.h"
#include <float.h>
#include <math.h>

enum { N_SAMPLES = 3, MOST_PARAMS = 4 };

// A layer of a kind, and where it is.
typedef struct subject {
    cadre_layer layer;
    cadre_shape in;
    bool relu;   // it does the ReLU behind it, or that of the one before it
    bool hidden; // some tokens are CADRE_NO_TOKEN
} subject;

#define TEXT(channels, tokens)        \
    {                                 \
        (channels), 1, 1, 1, (tokens) \
    }
#define ROW(channels)          \
    {                          \
        (channels), 1, 1, 1, 0 \
    }
#define IMAGE(block)         \
    {                        \
        13, 7, 5, (block), 0 \
    }

static const subject subjects[] = {
    {.layer = {.kind = "gelu"}, .in = ROW(1021)},
    {.layer = {.kind = "gelu"}, .in = ROW(5)},
    {.layer = {.kind = "silu"}, .in = ROW(1021)},
    {.layer = {.kind = "silu"}, .in = ROW(5)},
    {.layer = {.kind = "swiglu"}, .in = ROW(2 * 333)},
    {.layer = {.kind = "swiglu"}, .in = ROW(2 * 3)},
    {.layer = {.kind = "layer_norm", .name = "l"}, .in = ROW(333)},
    {.layer = {.kind = "layer_norm", .name = "l"}, .in = ROW(16)},
    {.layer = {.kind = "layer_norm", .name = "l"}, .in = ROW(7)},
    {.layer = {.kind = "rms_norm", .name = "l"}, .in = ROW(333)},
    {.layer = {.kind = "rms_norm", .name = "l"}, .in = ROW(16)},
    {.layer = {.kind = "rms_norm", .name = "l"}, .in = ROW(7)},
    {.layer = {.kind = "rotary", .heads = 1}, .in = TEXT(3 * 46, 9)},
    {.layer = {.kind = "rotary", .heads = 4, .kv_heads = 2},
        .in = TEXT(8 * 6, 9)},
    {.layer = {.kind = "embedding", .name = "l", .width = 45, .vocabulary = 17},
        .in = TEXT(1, 21)},
    {.layer = {.kind = "positions", .name = "l"}, .in = TEXT(45, 21)},
    {.layer = {.kind = "attention", .heads = 4, .kv_heads = 2},
        .in = TEXT(8 * 7, 97)},
    {.layer = {.kind = "attention", .heads = 4, .kv_heads = 2},
        .in = TEXT(8 * 7, 97),
        .hidden = true},
    {.layer = {.kind = "causal_attention", .heads = 3}, .in = TEXT(9 * 7, 97)},
    {.layer = {.kind = "causal_attention", .heads = 3},
        .in = TEXT(9 * 7, 97),
        .hidden = true},
    {.layer = {.kind = "causal_attention", .heads = 1}, .in = TEXT(3 * 24, 1)},
    {.layer = {.kind = "relu"}, .in = IMAGE(8)},
    {.layer = {.kind = "gelu"}, .in = IMAGE(16)},
    {.layer = {.kind = "silu"}, .in = IMAGE(8)},
    {.layer = {.kind = "dropout", .rate = 0.4f}, .in = ROW(333)},
    {.layer = {.kind = "dropout", .rate = 0.4f}, .in = IMAGE(8)},
    {.layer = {.kind = "dropout", .rate = 0.4f}, .in = IMAGE(16)},
    {.layer = {.kind = "residual"}, .in = ROW(333)},
    {.layer = {.kind = "add"}, .in = ROW(333)},
    {.layer = {.kind = "add"}, .in = IMAGE(1), .relu = true},
    {.layer = {.kind = "local_response_norm"}, .in = IMAGE(1)},
    {.layer = {.kind = "maxpool2d", .kernel = 3, .stride = 2, .padding = 1},
        .in = IMAGE(1)},
    {.layer = {.kind = "maxpool2d", .kernel = 2, .stride = 2},
        .in = IMAGE(8),
        .relu = true},
    {.layer = {.kind = "maxpool2d", .kernel = 3, .stride = 2, .padding = 1},
        .in = IMAGE(16),
        .relu = true},
    {.layer = {.kind = "avgpool2d", .kernel = 3, .stride = 2, .padding = 1},
        .in = IMAGE(8)},
    {.layer = {.kind = "avgpool2d", .kernel = 2, .stride = 2}, .in = IMAGE(1)},
    {.layer = {.kind = "global_avgpool2d"}, .in = IMAGE(16)},
    {.layer = {.kind = "batch_norm2d", .name = "l"}, .in = IMAGE(1)},
    {.layer = {.kind = "batch_norm2d", .name = "l"},
        .in = IMAGE(8),
        .relu = true},
    {.layer = {.kind = "batch_norm2d", .name = "l"}, .in = IMAGE(16)},
};
enum { N_SUBJECTS = sizeof(subjects) / sizeof(subjects[0]) };

// One of them is put here and there; the first stands for none.
static const float unlike[] = {1.0f, -0.0f, 0x1p-149f, -0x1.8p-130f, FLT_MAX,
    (float)INFINITY, -(float)INFINITY, (float)NAN};
enum { N_UNLIKE = sizeof(unlike) / sizeof(unlike[0]) };

static void fill(uint32_t tag, size_t count, float special, float *values)
{
    formula_fill(tag, count, 2.0f, values);
    for (size_t i = 0; i < count && special != 1.0f; i++) {
        if (formula_word(tag + 100, i) % 53 == 0) {
            values[i] = special;
        }
    }
}

static float *floats(size_t count)
{
    float *values = cadre_alloc_array(count, sizeof(*values));
    assert_non_null(values);
    return values;
}

static float *filled(uint32_t tag, size_t count, float special)
{
    float *values = floats(count);
    fill(tag, count, special, values);
    return values;
}

// What others left in memory that is to be written.
static float *used(size_t count)
{
    float *values = floats(count);
    for (size_t i = 0; i < count; i++) {
        values[i] = NAN;
    }
    return values;
}

// Whether element i of rows of that shape lies in a place without a channel: the
// last block has some.
static bool is_spare(cadre_shape s, int64_t i)
{
    int64_t at = i % cadre_shape_columns(s);
    int64_t channel =
        at / (s.height * s.width * s.block) * s.block + at % s.block;
    return channel >= s.channels;
}

static void clear_spare_places(cadre_shape s, int64_t rows, float *values)
{
    for (int64_t i = 0; i < rows * cadre_shape_columns(s); i++) {
        if (is_spare(s, i)) {
            values[i] = 0.0f;
        }
    }
}

// A layer's place, and what it is called with and finds.
typedef struct trial {
    cadre_layer_plan plan;
    cadre_layer_state *state;
    int64_t rows;
    size_t n_in;
    size_t n_out;
    size_t n_params[MOST_PARAMS];
    float *params[MOST_PARAMS];
    float *grads[MOST_PARAMS];
    float *x;
    float *y;
    float *dy;
    float *dx;
    float *past;
    float *tokens;
    float *scratch;
} trial;

static void plan_alone(const subject *s, trial *t)
{
    CHECK_OK(cadre_layer_find(&s->layer, &t->plan.ops));
    const cadre_layer_ops *ops = t->plan.ops;
    const cadre_layer *layer = &s->layer;
    t->plan.in = s->in;
    t->plan.kernel = layer->kernel;
    t->plan.stride = layer->stride;
    t->plan.padding = layer->padding;
    t->plan.n_params = ops->n_params;
    t->plan.then_relu = s->relu && ops->takes_relu;
    t->plan.masks = s->relu && ops->masks_input;
    CHECK_OK(ops->plan(layer, &t->plan));
    t->rows = N_SAMPLES * cadre_shape_rows(s->in);
    t->n_in = (size_t)(t->rows * cadre_shape_columns(s->in));
    t->n_out = (size_t)(t->rows * cadre_shape_columns(t->plan.out));
    if (ops->prepare != NULL) {
        CHECK_OK(ops->prepare(&t->plan, N_SAMPLES, &t->state));
    }
}

static void fill_params(trial *t, float special)
{
    for (int p = 0; p < t->plan.n_params; p++) {
        cadre_net_param param = {0};
        t->plan.ops->param(&t->plan, p, &param);
        size_t count = 1;
        for (int d = 0; d < param.n_dims; d++) {
            count *= (size_t)param.shape[d];
        }
        t->n_params[p] = count;
        t->params[p] = filled(FORMULA_PARAM + (uint32_t)p, count, special);
        t->grads[p] = used(count);
    }
}

static void fill_tokens(const subject *s, trial *t)
{
    const int n = s->layer.vocabulary > 0 ? (int)s->layer.vocabulary : 7;
    int32_t *drawn = cadre_alloc_array((size_t)t->rows, sizeof(*drawn));
    assert_non_null(drawn);
    formula_labels((size_t)t->rows, n, drawn);
    t->tokens = floats((size_t)t->rows);
    for (int64_t i = 0; i < t->rows; i++) {
        bool hidden = s->hidden && drawn[i] % 3 == 0;
        t->tokens[i] = (float)(hidden ? CADRE_NO_TOKEN : drawn[i]);
    }
    cadre_free(drawn);
}

static void begin(const subject *s, float special, trial *t)
{
    *t = (trial){0};
    plan_alone(s, t);
    fill_params(t, special);
    if (s->in.tokens > 0) {
        fill_tokens(s, t);
    }
    t->x = filled(FORMULA_X, t->n_in, special);
    if (t->plan.ops == &cadre_embedding) {
        memcpy(t->x, t->tokens, t->n_in * sizeof(*t->x));
    }
    t->past = filled(FORMULA_BIAS, t->n_in, special);
    t->dy = filled(FORMULA_DY, t->n_out, special);
    clear_spare_places(t->plan.in, t->rows, t->x);
    clear_spare_places(t->plan.in, t->rows, t->past);
    clear_spare_places(t->plan.out, t->rows, t->dy);
    t->y = used(t->n_out);
    t->dx = used(t->n_in);
    t->scratch =
        used(t->plan.scratch + (t->state != NULL ? t->state->scratch : 0) + 1);
}

static void end(trial *t)
{
    if (t->plan.ops->release != NULL) {
        t->plan.ops->release(t->state);
    }
    for (int p = 0; p < MOST_PARAMS; p++) {
        cadre_free(t->params[p]);
        cadre_free(t->grads[p]);
    }
    float *all[] = {t->x, t->y, t->dy, t->dx, t->past, t->tokens, t->scratch};
    for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++) {
        cadre_free(all[k]);
    }
}

static cadre_matrix matrix(const trial *t, float *data, cadre_shape shape)
{
    int64_t columns = cadre_shape_columns(shape);
    return (cadre_matrix){data, t->rows, columns, columns};
}

static void compute(trial *t)
{
    static const cadre_pass trained;
    const cadre_layer_ops *ops = t->plan.ops;
    const cadre_matrix y = matrix(t, t->y, t->plan.out);
    const cadre_layer_call call = {
        .plan = &t->plan,
        .state = t->state,
        .params = (const float *const *)t->params,
        .x = cadre_matrix_read(matrix(t, t->x, t->plan.in)),
        .y = cadre_matrix_read(y),
        .dy = cadre_matrix_read(matrix(t, t->dy, t->plan.out)),
        .past = matrix(t, t->past, t->plan.in),
        .pass = &trained,
        .tokens = t->tokens,
        .scratch = t->scratch,
    };
    CHECK_OK(ops->forward(&call, y));
    for (int p = 0; p < t->plan.n_params; p++) {
        CHECK_OK(ops->param_gradient(&call, p, t->grads[p]));
    }
    if (ops->input_gradient != NULL) {
        CHECK_OK(ops->input_gradient(&call, matrix(t, t->dx, t->plan.in)));
    }
}

static void check_same(const char *what, const char *array, float special,
    const float *found, const float *wanted, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bool same = memcmp(&found[i], &wanted[i], sizeof(*found)) == 0 ||
                    (isnan(found[i]) && isnan(wanted[i]));
        if (!same) {
            fail_msg("%s with %g: %s %zu is %a, plain %a", what,
                (double)special, array, i, (double)found[i], (double)wanted[i]);
        }
    }
}

static void check_layer(void **state, const subject *s, float special)
{
    trial plain;
    trial wide;
    assert_true(cadre_isa_use(CADRE_ISA_PLAIN));
    begin(s, special, &plain);
    compute(&plain);
    use_isa(state);
    begin(s, special, &wide);
    compute(&wide);
    const char *kind = s->layer.kind;
    check_same(kind, "y", special, wide.y, plain.y, plain.n_out);
    check_same(kind, "dx", special, wide.dx, plain.dx, plain.n_in);
    check_same(kind, "past", special, wide.past, plain.past, plain.n_in);
    for (int p = 0; p < plain.plan.n_params; p++) {
        check_same(kind, "gradient", special, wide.grads[p], plain.grads[p],
            plain.n_params[p]);
    }
    end(&plain);
    end(&wide);
}

static void layers_have_the_bits_of_the_plain_kernels(void **state)
{
    use_isa(state);
    for (int i = 0; i < N_SUBJECTS; i++) {
        for (int k = 0; k < N_UNLIKE; k++) {
            check_layer(state, &subjects[i], unlike[k]);
        }
    }
}

static void check_written(const char *what, const char *array, cadre_shape s,
    int64_t rows, const float *values)
{
    for (int64_t i = 0; i < rows * cadre_shape_columns(s); i++) {
        bool right = is_spare(s, i) ? values[i] == 0.0f : isfinite(values[i]);
        if (!right) {
            fail_msg("%s: %s %lld is %g", what, array, (long long)i,
                (double)values[i]);
        }
    }
}

static void outputs_are_written_with_all_their_places(void **state)
{
    use_isa(state);
    for (int i = 0; i < N_SUBJECTS; i++) {
        trial t;
        const char *kind = subjects[i].layer.kind;
        begin(&subjects[i], unlike[0], &t);
        compute(&t);
        check_written(kind, "y", t.plan.out, t.rows, t.y);
        if (t.plan.ops->input_gradient != NULL) {
            check_written(kind, "dx", t.plan.in, t.rows, t.dx);
        }
        for (int p = 0; p < t.plan.n_params; p++) {
            const cadre_shape row = ROW((int64_t)t.n_params[p]);
            check_written(kind, "gradient", row, 1, t.grads[p]);
        }
        end(&t);
    }
}

// --- the loss ---

enum { N_ROWS = 5, MOST_CLASSES = 333 };

typedef struct outcome {
    float dz[N_ROWS * MOST_CLASSES];
    float losses[N_ROWS];
} outcome;

static void find_loss(
    int64_t n_classes, float smoothing, float special, outcome *out)
{
    int32_t labels[N_ROWS];
    fill(FORMULA_X, (size_t)(N_ROWS * n_classes), special, out->dz);
    formula_labels(N_ROWS, (int)n_classes, labels);
    labels[3] = CADRE_NO_LABEL;
    const cadre_matrix z = {out->dz, N_ROWS, n_classes, n_classes};
    cadre_softmax_cross_entropy(
        cadre_matrix_read(z), labels, smoothing, out->losses, z);
}

static void losses_have_the_bits_of_the_plain_kernel(void **state)
{
    use_isa(state);
    static const int64_t classes[] = {2, 10, 16, 257, MOST_CLASSES};
    static outcome plain;
    static outcome wide;
    for (size_t c = 0; c < sizeof(classes) / sizeof(classes[0]); c++) {
        for (int k = 0; k < 2 * N_UNLIKE; k++) {
            const float smoothing = k % 2 == 0 ? 0.0f : 0.1f;
            const float special = unlike[k / 2];
            assert_true(cadre_isa_use(CADRE_ISA_PLAIN));
            find_loss(classes[c], smoothing, special, &plain);
            use_isa(state);
            find_loss(classes[c], smoothing, special, &wide);
            check_same("loss", "dz", special, wide.dz, plain.dz,
                (size_t)(N_ROWS * classes[c]));
            check_same(
                "loss", "loss", special, wide.losses, plain.losses, N_ROWS);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_EVERY_ISA(layers_have_the_bits_of_the_plain_kernels),
        ON_EVERY_ISA(outputs_are_written_with_all_their_places),
        ON_EVERY_ISA(losses_have_the_bits_of_the_plain_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
