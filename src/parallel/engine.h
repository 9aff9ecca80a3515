// SPDX-License-Identifier: Apache-2.0
//
// The inside of an engine: what making one (engine.c), stepping with it (step.c)
// and updating (update.c) share.

#ifndef CADRE_PARALLEL_ENGINE_H
#define CADRE_PARALLEL_ENGINE_H

#include "base/fail.h"
#include "base/thread.h"
#include "cadre/engine.h"
#include "group/reach.h"
#include "optim/optim.h"
#include "optim/schedule.h"
#include "parallel/control.h"
#include "parallel/fold.h"
#include "parallel/leaves.h"
#include "parallel/model.h"
#include "parallel/record.h"
#include "state/placement.h"
#include <stdatomic.h>

struct cadre_engine {
    cadre_model *model;           // borrowed
    cadre_group *group;           // borrowed
    cadre_engine_options o;       // with defaults filled in, 0 meaning 0
    const cadre_optim_ops *optim; // NULL: the caller's own
    cadre_hyper hyper;
    cadre_rate_plan rate;

    const cadre_placement_row *placement; // of the mode

    void
        *gradients; // an arena: a word per bucket (fold.h), the leaves' windows
    size_t gradients_bytes;
    cadre_reach *gradients_reach; // or NULL: these travel in frames
    cadre_buckets buckets;
    cadre_leaves leaves;
    cadre_fold *fold;
    cadre_control_exchange *control;
    cadre_record *record;               // NULL: nothing is recorded
    cadre_plane slots[CADRE_MAX_SLOTS]; // the optimizer's state
    int n_slots;
    // Where that is sharded; else NULL.
    cadre_plane_part *slot_parts; // per unit
    float **values;               // per segment: its parameters
    cadre_reach *params_reach;    // or NULL: they travel in frames

    cadre_thread mover; // with progress_thread
    atomic_bool mover_ends;

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
    atomic_int_fast64_t hook_ns;      // that threads spent in hooks and waits
    atomic_int_fast64_t busy_hook_ns; // of it, with exchanges under way
    atomic_bool busy;                 // exchanges are under way
    atomic_bool moving;   // some thread has the right to move exchanges
    atomic_bool news;     // a chunk was completed since it looked
    atomic_bool claimed;  // some thread wants that right for itself
    cadre_status failure; // the step's first; guarded by leaves.mu
    char failure_text[CADRE_FAIL_TEXT_BYTES]; // guarded by leaves.mu
};

/** The numbers of one step's update. */
typedef struct cadre_update {
    cadre_scalars scalars[2]; // of segments with decay, and without
    float scale;              // gradients are their sums times this
    float mean;               // and a mean over samples is their sum times this
} cadre_update;

/** What sums are multiplied with. */
typedef struct cadre_factors {
    float scale;
    float mean;
} cadre_factors;

/** Begins the update of a step at rate lr. */
cadre_update cadre_engine_begin_update(
    cadre_engine *engine, cadre_factors factors, double lr);

/**
 * Updates a bucket's parameters: where the optimizer's state is sharded, this
 * rank's, from what its folds came to, here and at the peers if they are reached;
 * else all, once they are gathered.  Without an optimizer the buffers alone.
 *
 * Errors: CADRE_ERR_PEER_LOST
 */
cadre_status cadre_engine_update_bucket(
    cadre_engine *engine, const cadre_update *update, int bucket);

#endif // CADRE_PARALLEL_ENGINE_H
