// SPDX-License-Identifier: Apache-2.0
//
// Which activations of a net with bf16 are rounded, and which are in bf16 alone
// (docs/adr/0016): set in the plans of its layers, before anything is placed.
//
// Threads: any, with a net of their own.

#ifndef CADRE_NN_ROUNDING_H
#define CADRE_NN_ROUNDING_H

#include "nn/plan.h"

/** Sets what plans say of bf16, but for plan->bf16 itself, which is set. */
void cadre_rounding_plan(cadre_net *net);

/** Whether a layer reads its input in bf16, or in f32, forward. */
static inline bool cadre_reads_narrow(const cadre_layer_plan *plan)
{
    return plan->bf16 || plan->takes_narrow;
}

static inline bool cadre_reads_wide(const cadre_layer_plan *plan)
{
    return !cadre_reads_narrow(plan) && plan->ops != &cadre_shortcut;
}

/** And in backward, if it reads it at all. */
static inline bool cadre_reads_input(const cadre_layer_plan *plan)
{
    return !plan->ops->in_place && !plan->ops->forgets_input;
}

static inline bool cadre_reads_narrow_back(const cadre_layer_plan *plan)
{
    return cadre_reads_narrow(plan) && !plan->wide_gradient;
}

static inline bool cadre_reads_wide_back(const cadre_layer_plan *plan)
{
    return cadre_reads_input(plan) && !cadre_reads_narrow_back(plan);
}

/**
 * Whether its backward reads its output.  Of a ReLU that it does itself a layer
 * in place has nothing else to tell by; attention with bf16 knows without.
 */
static inline bool cadre_reads_output(const cadre_layer_plan *plan)
{
    const cadre_layer_ops *ops = plan->ops;
    bool masks = plan->then_relu && ops->masks_gradient && ops->in_place;
    return masks || (ops->keeps_output && !ops->passes_on && !plan->masked &&
                        !plan->bf16);
}

#endif // CADRE_NN_ROUNDING_H
