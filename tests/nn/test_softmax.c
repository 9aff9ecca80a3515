// SPDX-License-Identifier: Apache-2.0
//
// Attention's softmax with bf16: its variants against each other and against that
// in f32, whose variants test_variants.c compares.

#include "kernel/bits.h"
#include "nn/attention.h"
#include "nn/formula.h"
#include "support/isa.h"
#include <math.h>
#include <string.h>

// More rows than go together, and keys that end within their lanes.
enum { QUERIES = 21, MOST_KEYS = 97, MOST = QUERIES * MOST_KEYS };

typedef struct trial {
    int64_t n;
    int64_t seen;
    int64_t more;
    bool hides;
} trial;

static const trial trials[] = {
    {MOST_KEYS, MOST_KEYS, 0, false},
    {MOST_KEYS, MOST_KEYS, 0, true},
    {MOST_KEYS, MOST_KEYS - QUERIES + 1, 1, false},
    {96, 1, 1, false},
    {64, 40, 1, true},
    {QUERIES, 1, 1, true},
    {1, 1, 0, false},
};

typedef struct results {
    cadre_softmax_row rows[QUERIES];
    uint16_t p[MOST];
    uint16_t p_again[MOST];
    uint16_t ds[MOST];
} results;

static cadre_matrix matrix_of(const trial *t, float *data)
{
    return (cadre_matrix){data, QUERIES, t->n, t->n};
}

static cadre_met_keys keys_of(const trial *t, float *tokens)
{
    for (int64_t i = 0; i < t->n; i++) {
        tokens[i] = i % 3 == 1 ? (float)CADRE_NO_TOKEN : 1.0f;
    }
    return (cadre_met_keys){
        t->n, t->seen, t->more, t->hides ? tokens : NULL, 0.25f};
}

// Numbers, and NaN for the keys that a query does not see.
static void fill(const trial *t, uint32_t tag, cadre_matrix m)
{
    formula_fill(tag, (size_t)(QUERIES * t->n), 9.0f, m.data);
    for (int64_t q = 0; q < QUERIES; q++) {
        for (int64_t i = t->seen + q * t->more; i < t->n; i++) {
            cadre_matrix_row(m, q)[i] = NAN;
        }
    }
}

static void compute(const trial *t, results *r)
{
    static float s_data[MOST];
    static float dp_data[MOST];
    static float tokens[MOST_KEYS];
    const cadre_matrix s = matrix_of(t, s_data);
    const cadre_matrix dp = matrix_of(t, dp_data);
    const cadre_met_keys keys = keys_of(t, tokens);
    memset(r, 0xff, sizeof(*r));
    fill(t, FORMULA_X, s);
    cadre_attention_softmax_bf16(s, keys, r->rows, r->p);
    fill(t, FORMULA_X, s);
    fill(t, FORMULA_DY, dp);
    cadre_attention_softmax_gradient_bf16(
        s, dp, keys, r->rows, r->p_again, r->ds);
}

static void variants_have_the_bits_of_the_plain_one(void **state)
{
    static results plain;
    static results wide;
    for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) {
        assert_true(cadre_isa_use(CADRE_ISA_PLAIN));
        compute(&trials[i], &plain);
        use_isa(state);
        compute(&trials[i], &wide);
        assert_memory_equal(&wide, &plain, sizeof(plain));
    }
}

static void shares_are_those_of_f32_rounded(void **state)
{
    static results r;
    static float s_data[MOST];
    static float tokens[MOST_KEYS];
    cadre_softmax_row rows[QUERIES];
    use_isa(state);
    for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) {
        const trial *t = &trials[i];
        const cadre_matrix s = matrix_of(t, s_data);
        fill(t, FORMULA_X, s);
        cadre_attention_softmax(s, keys_of(t, tokens), rows);
        compute(t, &r);
        for (int64_t k = 0; k < QUERIES * t->n; k++) {
            assert_int_equal(r.p[k], cadre_bf16_of_f32(s_data[k]));
            assert_int_equal(r.p_again[k], r.p[k]);
        }
    }
}

static void what_is_not_seen_has_no_share_and_no_gradient(void **state)
{
    static results r;
    use_isa(state);
    for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) {
        const trial *t = &trials[i];
        compute(t, &r);
        for (int64_t k = 0; k < QUERIES * t->n; k++) {
            const int64_t key = k % t->n;
            bool hidden = t->hides && key % 3 == 1;
            if (hidden || key >= t->seen + k / t->n * t->more) {
                assert_int_equal(r.p[k], 0);
                assert_int_equal(r.ds[k], 0);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_EVERY_ISA(variants_have_the_bits_of_the_plain_one),
        ON_EVERY_ISA(shares_are_those_of_f32_rounded),
        ON_EVERY_ISA(what_is_not_seen_has_no_share_and_no_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
