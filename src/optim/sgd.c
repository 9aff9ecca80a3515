// SPDX-License-Identifier: Apache-2.0
//
// Stochastic gradient descent with Polyak's momentum and L2 weight decay, in
// the form of PyTorch's SGD (no dampening, no Nesterov term):
//
//     g = g + wd p;   b = mu b + g;   p = p - lr b
//
// One rounding per operation, left to right (docs/numerics.md section 7).
// Without momentum there is no state.

#include "optim/optim.h"

#include "kernel/vector.h"

enum { LR, DECAY, MOMENTUM };

static int slots_used(const cadre_hyper *hyper)
{
    return hyper->momentum == 0.0 ? 0 : 1;
}

static cadre_scalars scalars(
    const cadre_hyper *hyper, double lr, const cadre_powers *powers)
{
    (void)powers;
    cadre_scalars s = {0};
    s.value[LR] = (float)lr;
    s.value[DECAY] = (float)hyper->weight_decay;
    s.value[MOMENTUM] = (float)hyper->momentum;
    return s;
}

CADRE_VECTOR_BODY void run_sgd_body(const float *s, float scale,
    const float *restrict grad_sum, float *restrict p, size_t count)
{
    const float lr = s[LR], decay = s[DECAY];
    for (size_t i = 0; i < count; i++) {
        float g = grad_sum[i] * scale + decay * p[i];
        p[i] = p[i] - lr * g;
    }
}
CADRE_VECTOR(run_sgd,
    (const float *s, float scale, const float *restrict grad_sum,
        float *restrict p, size_t count),
    (s, scale, grad_sum, p, count));

CADRE_VECTOR_BODY void run_sgd_momentum_body(const float *s, float scale,
    const float *restrict grad_sum, float *restrict b, float *restrict p,
    size_t count)
{
    const float lr = s[LR], decay = s[DECAY], momentum = s[MOMENTUM];
    for (size_t i = 0; i < count; i++) {
        float g = grad_sum[i] * scale + decay * p[i];
        b[i] = momentum * b[i] + g;
        p[i] = p[i] - lr * b[i];
    }
}
CADRE_VECTOR(run_sgd_momentum,
    (const float *s, float scale, const float *restrict grad_sum,
        float *restrict b, float *restrict p, size_t count),
    (s, scale, grad_sum, b, p, count));

static void update(const cadre_scalars *s, float scale, const float *grad_sum,
    float *const slots[], float *params, size_t count)
{
    cadre_isa isa = cadre_isa_in_use();
    if (s->value[MOMENTUM] == 0.0f) {
        run_sgd[isa](s->value, scale, grad_sum, params, count);
    } else {
        run_sgd_momentum[isa](
            s->value, scale, grad_sum, slots[0], params, count);
    }
}

const cadre_optim_ops cadre_optim_sgd = {
    .name = "sgd",
    .n_slots = 1,
    .slot_names = {"momentum"},
    .slots_used = slots_used,
    .scalars = scalars,
    .update = update,
};
