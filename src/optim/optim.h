// SPDX-License-Identifier: Apache-2.0
//
// Optimizers: pure functions on equally long runs of floats.  Updating [0, n)
// gives the bits of updating [0, k) and [k, n), so a shard, a unit and a whole
// plane are all the same to them.
//
// Scale, clip and update are one pass: a run of summed gradients G comes in
// with the factor s, and g = G * s is one f32 multiplication
// (docs/numerics.md sections 5 and 7).
//
// Threads: any, for different runs.

#ifndef CADRE_OPTIM_OPTIM_H
#define CADRE_OPTIM_OPTIM_H

#include <stdbool.h>
#include <stddef.h>

/** Hyper-parameters as the user gave them. */
typedef struct cadre_hyper {
    double lr;
    double weight_decay;
    double momentum;
    double beta1;
    double beta2;
    double eps;
} cadre_hyper;

/** Powers that an optimizer carries from step to step. */
typedef struct cadre_powers {
    double beta1; // beta1^t, by t multiplications
    double beta2;
} cadre_powers;

enum { CADRE_MAX_SLOTS = 2, CADRE_MAX_SCALARS = 8 };

/** What one update is made with: f32 numbers, each rounded once from f64. */
typedef struct cadre_scalars {
    float value[CADRE_MAX_SCALARS];
} cadre_scalars;

typedef struct cadre_optim_ops {
    const char *name; // "sgd", "adamw"
    int n_slots;      // state floats per parameter at most
    const char *slot_names[CADRE_MAX_SLOTS];

    /** How many of the slots these hyper-parameters really need. */
    int (*slots_used)(const cadre_hyper *hyper);

    /** The scalars of the step with learning rate lr; powers are after it. */
    cadre_scalars (*scalars)(
        const cadre_hyper *hyper, double lr, const cadre_powers *powers);

    /** Updates count parameters and their slots from summed gradients. */
    void (*update)(const cadre_scalars *scalars, float scale,
        const float *grad_sum, float *const slots[], float *params,
        size_t count);
} cadre_optim_ops;

extern const cadre_optim_ops cadre_optim_sgd;   // Polyak momentum, L2 decay
extern const cadre_optim_ops cadre_optim_adamw; // decoupled weight decay

#endif // CADRE_OPTIM_OPTIM_H
