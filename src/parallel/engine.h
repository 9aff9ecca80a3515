// SPDX-License-Identifier: Apache-2.0
//
// The inside of an engine: what making one (engine.c) and stepping with it
// (step.c) share.

#ifndef CADRE_PARALLEL_ENGINE_H
#define CADRE_PARALLEL_ENGINE_H

#include "base/fail.h"
#include "cadre/engine.h"
#include "optim/optim.h"
#include "optim/schedule.h"
#include "parallel/control.h"
#include "parallel/fold.h"
#include "parallel/leaves.h"
#include "parallel/model.h"
#include <stdatomic.h>

struct cadre_engine {
    cadre_model *model;           // borrowed
    cadre_group *group;           // borrowed
    cadre_engine_options o;       // with defaults filled in, 0 meaning 0
    const cadre_optim_ops *optim; // NULL: the caller's own
    cadre_hyper hyper;
    cadre_rate_plan rate;

    float *gradients; // the leaves' windows, in the arena
    size_t gradients_bytes;
    cadre_leaves leaves;
    cadre_fold *fold;
    cadre_control_exchange *control;
    cadre_plane slots[CADRE_MAX_SLOTS]; // the optimizer's state
    int n_slots;

    // State that goes from step to step.
    int64_t step;    // begun so far
    int64_t updates; // made so far
    cadre_powers powers;
    int skipped_in_row;
    bool compared;     // the parameters of all ranks, at the first step
    bool leaves_given; // by the options, and not what ranks and threads make
    char *note;        // what checkpoints keep for the caller; or NULL
    atomic_uint stop_bits;

    // The open step.
    bool open;
    uint64_t payload_before;
    uint64_t overhead_before;
    atomic_int_fast64_t hook_ns; // that threads spent in hooks and waits
    bool advancing;       // some thread moves folds; guarded by leaves.mu
    cadre_status failure; // the step's first; guarded by leaves.mu
    char failure_text[CADRE_FAIL_TEXT_BYTES]; // guarded by leaves.mu
};

/** Makes the update of a step: rate lr, gradients' sums times scale. */
void cadre_engine_update(
    cadre_engine *engine, const float *grads, float scale, double lr);

#endif // CADRE_PARALLEL_ENGINE_H
