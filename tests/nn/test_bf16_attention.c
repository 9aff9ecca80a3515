// SPDX-License-Identifier: Apache-2.0
//
// Attention with bf16 alone, against the same in f64, with the same factors
// rounded.

#include "nn/attention.h"
#include "nn/bf16.h"
#include "nn/formula.h"
#include <stdio.h>

enum { TEXTS = 3 };

// What is tried.
typedef struct trial {
    const char *kind;
    int64_t tokens;
    int64_t heads;
    int64_t kv_heads;
    int64_t depth;
    bool hides; // some tokens of the second text are none
} trial;

// And what it computes, or should: of x and dy rounded.
typedef struct results {
    double *y;
    double *dx;
} results;

static double *doubles(int64_t count)
{
    double *values = cadre_alloc_array((size_t)count, sizeof(*values));
    assert_non_null(values);
    return values;
}

static cadre_matrix filled(uint32_t tag, int64_t rows, int64_t columns)
{
    const int64_t stride = cadre_matrix_stride(columns);
    cadre_matrix m = {floats((size_t)(rows * stride)), rows, columns, stride};
    for (int64_t i = 0; i < rows * columns; i++) {
        cadre_matrix_row(m, i / columns)[i % columns] =
            formula_value(tag, (size_t)i, 2.0f);
    }
    return m;
}

static int64_t columns_of_x(const trial *t)
{
    return (t->heads + 2 * t->kv_heads) * t->depth;
}

static void fill_tokens(const trial *t, float *tokens)
{
    for (int64_t i = 0; i < TEXTS * t->tokens; i++) {
        bool hidden = t->hides && i / t->tokens == 1 && i % 3 != 1;
        tokens[i] = hidden ? (float)CADRE_NO_TOKEN : 1.0f;
    }
}

static bool sees(
    const trial *t, const float *tokens, int64_t text, int64_t q, int64_t k)
{
    bool causal = strcmp(t->kind, "causal_attention") == 0;
    return tokens[text * t->tokens + k] >= 0 && (!causal || k <= q);
}

// Row t of a text, from channel on.
static const float *at(
    cadre_matrix m, const trial *t, int64_t text, int64_t row, int64_t channel)
{
    return cadre_matrix_row(m, text * t->tokens + row) + channel;
}

static double dot(const float *a, const float *b, int64_t depth)
{
    double sum = 0.0;
    for (int64_t i = 0; i < depth; i++) {
        sum += rounded(a[i]) * rounded(b[i]);
    }
    return sum;
}

// One query: its row of y, and what it adds to dx.
static void want_query(const trial *t, const float *tokens, cadre_matrix x,
    cadre_matrix dy, int64_t text, int64_t head, int64_t q, results *w)
{
    const int64_t kv = head / (t->heads / t->kv_heads);
    const int64_t d = t->depth;
    const int64_t columns = columns_of_x(t);
    const int64_t channel[] = {
        head * d, (t->heads + kv) * d, (t->heads + t->kv_heads + kv) * d};
    const double scale = 1.0 / sqrt((double)d);
    const float *query = at(x, t, text, q, channel[0]);
    const float *dy_row = at(dy, t, text, q, head * d);
    double *p = doubles(t->tokens);
    double *dp = doubles(t->tokens);
    double sum = 0.0;
    double common = 0.0;
    for (int64_t k = 0; k < t->tokens; k++) {
        double s = dot(query, at(x, t, text, k, channel[1]), d) * scale;
        p[k] = sees(t, tokens, text, q, k) ? exp(s) : 0.0;
        sum += p[k];
    }
    for (int64_t k = 0; k < t->tokens; k++) {
        p[k] = sum > 0 ? p[k] / sum : 0.0;
        dp[k] = dot(dy_row, at(x, t, text, k, channel[2]), d);
        common += p[k] * dp[k];
    }
    double *y = w->y + (text * t->tokens + q) * t->heads * d + head * d;
    double *dx_text = w->dx + text * t->tokens * columns;
    for (int64_t k = 0; k < t->tokens; k++) {
        const float *key = at(x, t, text, k, channel[1]);
        const float *value = at(x, t, text, k, channel[2]);
        double share = rounded((float)p[k]);
        double ds = rounded((float)(p[k] * (dp[k] - common) * scale));
        for (int64_t i = 0; i < d; i++) {
            y[i] += share * rounded(value[i]);
            dx_text[q * columns + channel[0] + i] += ds * rounded(key[i]);
            dx_text[k * columns + channel[1] + i] += ds * rounded(query[i]);
            dx_text[k * columns + channel[2] + i] += share * rounded(dy_row[i]);
        }
    }
    cadre_free(p);
    cadre_free(dp);
}

// Sums are of f32, and what is next to the middle of two numbers is rounded to
// either.
static void check_near(const char *what, cadre_matrix m, const double *wanted)
{
    size_t count = (size_t)(m.rows * m.columns);
    float *found = floats(count);
    for (int64_t i = 0; i < m.rows * m.columns; i++) {
        found[i] = cadre_matrix_row(m, i / m.columns)[i % m.columns];
    }
    double error = distance(found, wanted, count);
    if (!(error <= 2e-4)) {
        fail_msg("%s is off by %g", what, error);
    }
    cadre_free(found);
}

static void plan_trial(const trial *t, cadre_layer_plan *plan)
{
    const cadre_layer layer = {
        .kind = t->kind, .heads = t->heads, .kv_heads = t->kv_heads};
    *plan = (cadre_layer_plan){
        .in = {columns_of_x(t), 1, 1, 1, t->tokens}, .passes_down = true};
    CHECK_OK(cadre_layer_find(&layer, &plan->ops));
    CHECK_OK(plan->ops->plan(&layer, plan));
    plan->bf16 = true;
}

// Made in bf16 alone it is the same, rounded.
static void check_rounded(const cadre_layer_plan *plan,
    const cadre_layer_call *of, cadre_matrix y, cadre_matrix dx)
{
    cadre_layer_plan rounding = *plan;
    cadre_layer_call call = *of;
    rounding.makes_narrow = true;
    rounding.narrow_dx = true;
    call.plan = &rounding;
    call.narrow_y =
        narrowed(cadre_matrix_read(dx)); // of no meaning, and as large at least
    call.narrow_y.columns = y.columns;
    call.narrow_y.stride = y.stride;
    call.narrow_dx = narrowed(cadre_matrix_read(dx));
    memset(call.narrow_dx.data, 0,
        (size_t)(dx.rows * dx.stride) * sizeof(*call.narrow_dx.data));
    CHECK_OK(plan->ops->forward(&call, y));
    CHECK_OK(plan->ops->input_gradient(&call, dx));
    const cadre_narrow_matrix wanted_y = narrowed(cadre_matrix_read(y));
    const cadre_narrow_matrix wanted_dx = narrowed(cadre_matrix_read(dx));
    for (int64_t n = 0; n < y.rows; n++) {
        assert_memory_equal(call.narrow_y.data + n * y.stride,
            wanted_y.data + n * y.stride, (size_t)y.columns * sizeof(uint16_t));
        assert_memory_equal(call.narrow_dx.data + n * dx.stride,
            wanted_dx.data + n * dx.stride,
            (size_t)dx.columns * sizeof(uint16_t));
    }
    uint16_t *all[] = {
        call.narrow_y.data, call.narrow_dx.data, wanted_y.data, wanted_dx.data};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        cadre_free(all[i]);
    }
}

static void compute(const trial *t, const float *tokens, cadre_matrix x,
    cadre_matrix dy, cadre_matrix y, cadre_matrix dx)
{
    cadre_layer_plan plan;
    cadre_layer_state *state = NULL;
    plan_trial(t, &plan);
    CHECK_OK(plan.ops->prepare(&plan, TEXTS, &state));
    float *scratch = floats(state->scratch);
    const cadre_narrow_matrix narrow_x = narrowed(cadre_matrix_read(x));
    const cadre_narrow_matrix narrow_dy = narrowed(cadre_matrix_read(dy));
    const cadre_layer_call call = {
        .plan = &plan,
        .state = state,
        .narrow_x = cadre_narrow_read(narrow_x),
        .narrow_dy = cadre_narrow_read(narrow_dy),
        .tokens = tokens,
        .scratch = scratch,
    };
    uint64_t calls = cadre_alloc_calls();
    CHECK_OK(plan.ops->forward(&call, y));
    CHECK_OK(plan.ops->input_gradient(&call, dx));
    assert_int_equal(cadre_alloc_calls(), calls);
    check_rounded(&plan, &call, y, dx);
    cadre_free(narrow_x.data);
    cadre_free(narrow_dy.data);
    cadre_free(scratch);
    plan.ops->release(state);
}

static void check(const trial *t)
{
    const int64_t rows = TEXTS * t->tokens;
    const int64_t columns = t->heads * t->depth;
    cadre_matrix x = filled(FORMULA_X, rows, columns_of_x(t));
    cadre_matrix dy = filled(FORMULA_DY, rows, columns);
    cadre_matrix y = filled(FORMULA_BIAS, rows, columns);
    cadre_matrix dx = filled(FORMULA_BIAS, rows, columns_of_x(t));
    float *tokens = floats((size_t)rows);
    fill_tokens(t, tokens);
    compute(t, tokens, x, dy, y, dx);
    results w = {doubles(rows * columns), doubles(rows * columns_of_x(t))};
    for (int64_t i = 0; i < TEXTS * t->heads * t->tokens; i++) {
        want_query(t, tokens, x, dy, i / (t->heads * t->tokens),
            i / t->tokens % t->heads, i % t->tokens, &w);
    }
    check_near("y", y, w.y);
    check_near("dx", dx, w.dx);
    void *all[] = {x.data, dy.data, y.data, dx.data, tokens, w.y, w.dx};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        cadre_free(all[i]);
    }
}

static void attention_is_within_rounding(void **state)
{
    (void)state;
    static const trial trials[] = {
        {"causal_attention", 1, 1, 1, 4, false},
        {"causal_attention", 7, 2, 2, 3, false},
        {"attention", 7, 2, 1, 5, false},
        {"causal_attention", 64, 2, 2, 16, false},
        {"attention", 64, 2, 2, 16, true},
        {"causal_attention", 130, 4, 2, 8, false},
        {"causal_attention", 130, 3, 1, 32, true},
        {"attention", 130, 4, 2, 8, true},
        {"causal_attention", 256, 1, 1, 64, false},
    };
    for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) {
        check(&trials[i]);
    }
}

static void no_memory_anywhere_is_an_error_and_no_leak(void **state)
{
    (void)state;
    cadre_layer_plan plan;
    plan_trial(&(trial){"causal_attention", 70, 2, 2, 4, false}, &plan);
    // The state, its blocks, and 7 products.
    assert_int_equal(prepare_without_memory(&plan), 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_within_rounding),
        cmocka_unit_test(no_memory_anywhere_is_an_error_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
