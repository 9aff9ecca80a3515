// SPDX-License-Identifier: Apache-2.0
//
// AdamW: Loshchilov, Hutter, "Decoupled Weight Decay Regularization", ICLR 2019,
// algorithm 2, with the learning rate in the decay as PyTorch has it.
//
//     m = b1 m + (1 - b1) g
//     v = b2 v + (1 - b2) g^2
//     p = p (1 - lr wd) - lr / (1 - b1^t) * m / (sqrt(v / (1 - b2^t)) + eps)
//
// One rounding per operation, left to right, as docs/numerics.md section 7
// writes it; the scalars are rounded once from f64.

#include "optim/optim.h"

#include "kernel/vector.h"
#include <math.h>

enum { B1, C1, B2, C2, DECAY, STEP, ROOT, EPS };

static int slots_used(const cadre_hyper *hyper)
{
    (void)hyper;
    return 2;
}

static cadre_scalars scalars(
    const cadre_hyper *hyper, double lr, const cadre_powers *powers)
{
    cadre_scalars s;
    s.value[B1] = (float)hyper->beta1;
    s.value[C1] = (float)(1.0 - hyper->beta1);
    s.value[B2] = (float)hyper->beta2;
    s.value[C2] = (float)(1.0 - hyper->beta2);
    s.value[DECAY] = (float)(1.0 - lr * hyper->weight_decay);
    s.value[STEP] = (float)(lr / (1.0 - powers->beta1));
    s.value[ROOT] = (float)(1.0 / sqrt(1.0 - powers->beta2));
    s.value[EPS] = (float)hyper->eps;
    return s;
}

CADRE_VECTOR_BODY void run_adamw_body(const float *s, float scale,
    const float *restrict grad_sum, float *restrict m, float *restrict v,
    float *restrict p, size_t count)
{
    const float b1 = s[B1], c1 = s[C1], b2 = s[B2], c2 = s[C2];
    const float decay = s[DECAY], step = s[STEP], root = s[ROOT], eps = s[EPS];
    for (size_t i = 0; i < count; i++) {
        float g = grad_sum[i] * scale;
        m[i] = b1 * m[i] + c1 * g;
        v[i] = b2 * v[i] + c2 * (g * g);
        p[i] = p[i] * decay - step * (m[i] / (sqrtf(v[i]) * root + eps));
    }
}
CADRE_VECTOR(run_adamw,
    (const float *s, float scale, const float *restrict grad_sum,
        float *restrict m, float *restrict v, float *restrict p, size_t count),
    (s, scale, grad_sum, m, v, p, count));

static void update(const cadre_scalars *s, float scale, const float *grad_sum,
    float *const slots[], float *params, size_t count)
{
    run_adamw[cadre_isa_in_use()](
        s->value, scale, grad_sum, slots[0], slots[1], params, count);
}

const cadre_optim_ops cadre_optim_adamw = {
    .name = "adamw",
    .n_slots = 2,
    .slot_names = {"exp_avg", "exp_avg_sq"},
    .slots_used = slots_used,
    .scalars = scalars,
    .update = update,
};
