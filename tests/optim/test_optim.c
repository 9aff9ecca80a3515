// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"
#include "support/isa.h"

#include "base/random.h"
#include "optim/optim.h"
#include "optim/running.h"
#include <float.h>
#include <math.h>

enum { N = 1031 };

typedef struct arrays {
    float grad[N];
    float slot[CADRE_MAX_SLOTS][N];
    float params[N];
} arrays;

static const cadre_hyper hyper = {
    .lr = 1e-2,
    .weight_decay = 0.1,
    .momentum = 0.9,
    .beta1 = 0.9,
    .beta2 = 0.999,
    .eps = 1e-8,
};

static void fill(arrays *a, uint32_t what)
{
    for (int i = 0; i < N; i++) {
        uint32_t w[4];
        cadre_random_words(5, CADRE_STREAM_ORDER, what, (uint64_t)i, w);
        a->grad[i] = cadre_random_unit(w[0]) - 0.5f;
        a->slot[0][i] = cadre_random_unit(w[1]) - 0.5f;
        a->slot[1][i] = cadre_random_unit(w[2]);
        a->params[i] = cadre_random_unit(w[3]) - 0.5f;
    }
    a->grad[0] = 0.0f;
    a->grad[1] = -0.0f;
    a->grad[2] = 1e-42f; // subnormal
    a->slot[1][2] = 0.0f;
    a->grad[3] = FLT_MAX; // whose square is infinite
    a->grad[4] = -INFINITY;
    a->grad[5] = NAN;
    a->slot[0][6] = 0x1p-149f;
    a->slot[1][6] = 0x1p-140f;
    a->params[7] = -0.0f;
}

static void update(const cadre_optim_ops *ops, const cadre_scalars *s,
    arrays *a, size_t lo, size_t hi)
{
    float *slots[CADRE_MAX_SLOTS] = {a->slot[0] + lo, a->slot[1] + lo};
    ops->update(s, 0.25f, a->grad + lo, slots, a->params + lo, hi - lo);
}

// The optimizer's definition, one element at a time and one rounding per
// operation; volatile keeps the compiler from doing anything else.
static void reference_adamw(const cadre_scalars *s, arrays *a)
{
    for (int i = 0; i < N; i++) {
        volatile float g = a->grad[i] * 0.25f;
        volatile float left = s->value[0] * a->slot[0][i];
        volatile float right = s->value[1] * g;
        a->slot[0][i] = left + right;
        volatile float square = g * g;
        left = s->value[2] * a->slot[1][i];
        right = s->value[3] * square;
        a->slot[1][i] = left + right;
        volatile float root = sqrtf(a->slot[1][i]);
        volatile float scaled = root * s->value[6];
        volatile float below = scaled + s->value[7];
        volatile float ratio = a->slot[0][i] / below;
        volatile float step = s->value[5] * ratio;
        left = a->params[i] * s->value[4];
        a->params[i] = left - step;
    }
}

static void adamw_is_its_definition_bit_for_bit(void **state)
{
    use_isa(state);
    static arrays a;
    static arrays b;
    fill(&a, 1);
    fill(&b, 1);
    cadre_powers powers = {1.0, 1.0};
    for (int t = 1; t <= 5; t++) {
        powers.beta1 *= hyper.beta1;
        powers.beta2 *= hyper.beta2;
        cadre_scalars s = cadre_optim_adamw.scalars(&hyper, hyper.lr, &powers);
        update(&cadre_optim_adamw, &s, &a, 0, N);
        reference_adamw(&s, &b);
        assert_memory_equal(&a, &b, sizeof(a));
    }
}

static void reference_sgd(const cadre_scalars *s, bool momentum, arrays *a)
{
    for (int i = 0; i < N; i++) {
        volatile float g = a->grad[i] * 0.25f;
        volatile float decay = s->value[1] * a->params[i];
        g = g + decay;
        if (momentum) {
            volatile float kept = s->value[2] * a->slot[0][i];
            g = a->slot[0][i] = kept + g;
        }
        volatile float step = s->value[0] * g;
        a->params[i] = a->params[i] - step;
    }
}

static void sgd_is_its_definition_bit_for_bit(void **state)
{
    use_isa(state);
    static arrays a;
    static arrays b;
    const cadre_powers none = {1.0, 1.0};
    for (int momentum = 0; momentum < 2; momentum++) {
        cadre_hyper h = hyper;
        h.momentum = momentum ? hyper.momentum : 0.0;
        cadre_scalars s = cadre_optim_sgd.scalars(&h, h.lr, &none);
        fill(&a, 1);
        fill(&b, 1);
        for (int t = 1; t <= 5; t++) {
            update(&cadre_optim_sgd, &s, &a, 0, N);
            reference_sgd(&s, momentum != 0, &b);
            assert_memory_equal(&a, &b, sizeof(a));
        }
    }
}

static void running_means_are_their_definition_bit_for_bit(void **state)
{
    use_isa(state);
    static arrays a;
    static arrays b;
    fill(&a, 3);
    fill(&b, 3);
    cadre_running_update(0.25f, a.grad, a.params, N - 70);
    cadre_running_update(0.25f, a.grad + N - 70, a.params + N - 70, 70);
    for (int i = 0; i < N; i++) {
        volatile float mean = b.grad[i] * 0.25f;
        volatile float left = 0.9f * b.params[i];
        volatile float right = 0.1f * mean;
        b.params[i] = left + right;
    }
    assert_memory_equal(&a, &b, sizeof(a));
}

// One step by hand, in f64: m = 0.1 g, v = 0.001 g^2, both corrected.
static void adamw_first_step_is_the_learning_rate(void **state)
{
    (void)state;
    float grad = 0.5f;
    float m = 0;
    float v = 0;
    float p = 1.0f;
    float *slots[2] = {&m, &v};
    cadre_hyper h = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
    cadre_powers powers = {h.beta1, h.beta2};
    cadre_scalars s = cadre_optim_adamw.scalars(&h, h.lr, &powers);
    cadre_optim_adamw.update(&s, 1.0f, &grad, slots, &p, 1);
    assert_true(fabs((double)p - 0.99) < 1e-6);
}

static void sgd_has_momentum_and_decay(void **state)
{
    (void)state;
    float grad = 2.0f;
    float b = 1.0f;
    float p = 4.0f;
    float *slots[1] = {&b};
    cadre_powers none = {1.0, 1.0};
    cadre_hyper h = {.lr = 0.5, .momentum = 0.5, .weight_decay = 0.25};
    cadre_scalars s = cadre_optim_sgd.scalars(&h, h.lr, &none);
    cadre_optim_sgd.update(&s, 0.5f, &grad, slots, &p, 1);
    assert_true(b == 2.5f); // 0.5 * 1 + (2 * 0.5 + 0.25 * 4)
    assert_true(p == 2.75f);
    assert_int_equal(cadre_optim_sgd.slots_used(&h), 1);

    h.momentum = 0.0;
    p = 4.0f;
    s = cadre_optim_sgd.scalars(&h, h.lr, &none);
    cadre_optim_sgd.update(&s, 0.5f, &grad, NULL, &p, 1);
    assert_true(p == 3.0f);
    assert_int_equal(cadre_optim_sgd.slots_used(&h), 0);
}

static void updating_parts_is_updating_the_whole(void **state)
{
    use_isa(state);
    const cadre_optim_ops *const all[] = {&cadre_optim_adamw, &cadre_optim_sgd};
    static arrays whole;
    static arrays parts;
    for (int o = 0; o < 2; o++) {
        cadre_powers powers = {0.9, 0.999};
        cadre_scalars s = all[o]->scalars(&hyper, hyper.lr, &powers);
        for (size_t cut = 0; cut <= 70; cut++) {
            fill(&whole, 2);
            fill(&parts, 2);
            update(all[o], &s, &whole, 0, N);
            update(all[o], &s, &parts, cut, N);
            update(all[o], &s, &parts, 0, cut);
            assert_memory_equal(&whole, &parts, sizeof(whole));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_EVERY_ISA(adamw_is_its_definition_bit_for_bit),
        cmocka_unit_test(adamw_first_step_is_the_learning_rate),
        ON_EVERY_ISA(sgd_is_its_definition_bit_for_bit),
        cmocka_unit_test(sgd_has_momentum_and_decay),
        ON_EVERY_ISA(running_means_are_their_definition_bit_for_bit),
        ON_EVERY_ISA(updating_parts_is_updating_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
