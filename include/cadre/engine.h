// SPDX-License-Identifier: Apache-2.0
//
// An engine runs training steps on a model.  The batch of a step is cut into V
// leaves; an engine hands every rank its share of them, adds up their
// gradients along one fixed tree, and makes the same update everywhere.  The
// bits of the result depend on V and not on the number of ranks or threads
// (docs/numerics.md).
//
//     cadre_engine *e;
//     cadre_engine_create(m,
//         &(cadre_engine_options){.optimizer = CADRE_ADAMW, .lr = 1e-3}, &e);
//     cadre_step_begin(e);
//     for (int leaf; cadre_leaf_next(e, &leaf);) {
//         float *g = cadre_leaf_grad(e, leaf, weight);
//         loss = forward_backward(part(leaf, cadre_leaf_count(e)), w, g);
//         cadre_grad_ready(e, leaf, weight);
//         cadre_leaf_end(e, leaf, loss, n_samples);
//     }
//     cadre_step_end(e, &report);
//
// Losses and gradients are *sums* over samples (or tokens).  The engine divides
// once, at the end, by the total weight.
//
// Threads: cadre_leaf_next(), cadre_leaf_grad(), cadre_grad_ready() and
// cadre_leaf_end() may be called from up to `threads` threads at once, each
// with a leaf of its own.  Everything else: one thread at a time, with no leaf
// open.  Between cadre_step_begin() and cadre_step_end() the group belongs to
// the engine.

#ifndef CADRE_ENGINE_H
#define CADRE_ENGINE_H

#include "cadre/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cadre_engine cadre_engine;

typedef enum cadre_mode {
    CADRE_DDP = 0,   // parameters, gradients, optimizer state on every rank
    CADRE_ZERO1 = 1, // optimizer state sharded: every rank updates its share
} cadre_mode;

typedef enum cadre_overlap {
    CADRE_OVERLAP_ON = 0,  // gradients travel while backward goes on
    CADRE_OVERLAP_OFF = 1, // not before the leaves of a block are closed
} cadre_overlap;

typedef enum cadre_optimizer {
    CADRE_NONE = 0, // the caller's own; see cadre_model_grad(); ddp only
    CADRE_SGD = 1,
    CADRE_ADAMW = 2, // Loshchilov, Hutter, "Decoupled Weight Decay", 2019
} cadre_optimizer;

typedef enum cadre_schedule {
    CADRE_CONSTANT = 0, // lr, after a linear rise over warmup_steps
    CADRE_COSINE = 1,   // down to min_lr_factor lr at total_steps
    CADRE_LINEAR = 2,   // likewise, along a line
    CADRE_STEP = 3,     // times step_factor after every step_every steps
} cadre_schedule;

/** For a hyper-parameter whose value is to be 0: there 0 means the default. */
#define CADRE_ZERO (-1.0)

enum {
    CADRE_FOLD_DEFERRED = -1, // few, large reductions: most memory
    CADRE_FOLD_EAGER = -2,    // a reduction per leaf or `threads` leaves
};

typedef struct cadre_engine_options {
    cadre_mode mode;

    // V, the number of leaves, at least one per rank, at most 65536.
    // 0: ranks x threads (rank 0's value).  Set it to compare runs of
    // different numbers of ranks.
    int leaves;
    int threads; // leaves that may be open at once on this rank; 0: 1

    // Leaves that a rank adds up before ranks reduce: a power of two, or one
    // of the two words above.  0: deferred.  Memory and traffic, never bits.
    int fold;
    // Most of the gradients that travel together; large models have smaller
    // ones.  0: 25 MiB.
    size_t bucket_bytes;
    cadre_overlap overlap;

    // A thread of the engine's moves gradients, in place of the compute threads.
    // For links that are slow compared with a layer's backward.
    bool progress_thread;

    cadre_optimizer optimizer;
    double lr;           // 0: 1e-3 (adamw), 1e-1 (sgd)
    double weight_decay; // 0: 1e-2 (adamw), none (sgd)
    double momentum;     // sgd; 0: none
    double beta1;        // adamw; 0: 0.9
    double beta2;        // adamw; 0: 0.999
    double eps;          // adamw; 0: 1e-8
    double clip;         // limit of the mean gradient's norm; 0: none
    cadre_schedule schedule;
    int64_t warmup_steps;
    int64_t total_steps;  // cosine, linear: warm-up and fall together
    double min_lr_factor; // cosine, linear: from 0 to 1; 0: down to nothing
    int64_t step_every;   // step: counted after the warm-up
    double step_factor;   // step: from 0 to 1; 0: 0.1

    bool record; // events, for cadre_engine_events()
} cadre_engine_options;

typedef struct cadre_step_report {
    int64_t step; // from 1
    bool skipped; // a gradient or loss was not finite, or the weight is 0: no
                  // state changed
    double loss;  // mean over samples
    double grad_norm;  // of the mean gradient, before clipping
    double lr;         // of this step
    int64_t weight;    // samples (tokens) of this step, over all ranks
    uint32_t stop;     // all ranks' bits of cadre_engine_request_stop(), or-ed
    double exposed_ms; // time in hooks and waits, mean of this rank's threads
    double hidden_ms;  // time with communication under way, less what of it is
                       // in exposed_ms; at least 0
    double update_ms;  // time in the optimizer; in zero1, where ranks share
                       // memory, with what it writes into that of the others
    uint64_t bytes_sent;     // gradients, or parameters, that left this rank
    uint64_t overhead_bytes; // headers and control that left it
} cadre_step_report;

/**
 * Creates the engine of a sealed model.  Collective; options are compared.
 *
 * model is borrowed for the engine's life.  Allocates all that a step needs.
 *
 * Errors: CADRE_ERR_INVALID_ARG  an option makes no sense, or there are more
 *                                ranks than leaves; the text says which
 *         CADRE_ERR_STATE        the model is not sealed or has an engine
 *         CADRE_ERR_DESYNC       ranks have different options
 *         CADRE_ERR_NO_MEMORY, and those of a collective
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_engine_create(cadre_model *model,
    const cadre_engine_options *options, cadre_engine **out);

/**
 * NULL is allowed.  Before its model.  With a step open, the group ends: other
 * ranks would wait for this one.
 */
CADRE_API void cadre_engine_destroy(cadre_engine *engine);

/**
 * Opens a step.  The first one compares the parameters of all ranks.
 *
 * Errors: CADRE_ERR_DESYNC  parameters differ; all ranks get the same text,
 *                           naming the first parameter that does
 *         CADRE_ERR_STATE   a step is open
 *         and those of a collective
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_step_begin(cadre_engine *engine);

/** V, the number of leaves over all ranks. */
CADRE_API int cadre_leaf_count(const cadre_engine *engine);

/** Leaves that a rank adds up before a reduction: the k of docs/numerics.md. */
CADRE_API int cadre_engine_fold(const cadre_engine *engine);

/**
 * Gives the caller the next leaf of this rank.
 *
 * May wait until memory for a gradient is free.  False after the last leaf, or
 * when something failed; cadre_step_end() says what.
 */
CADRE_API CADRE_MUST_CHECK bool cadre_leaf_next(
    cadre_engine *engine, int *leaf);

/**
 * Where the gradient of parameter index in this leaf goes, row-major.  Best
 * asked for when it is about to be computed, since what is under way is moved
 * on here as well; never waits.
 *
 * All zero at the first call for this leaf and index; the same memory after.
 * Valid until cadre_grad_ready() for it.  NULL for a frozen parameter.
 */
CADRE_API float *cadre_leaf_grad(cadre_engine *engine, int leaf, int index);

/**
 * Says that the last write to this gradient of this leaf is done.  May add up
 * and send what is complete with it, and move what is under way; never waits.
 *
 * A parameter that a leaf did not use is neither asked for nor marked; it
 * counts as zero.
 *
 * Errors: CADRE_ERR_STATE  marked twice, or never asked for
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_grad_ready(
    cadre_engine *engine, int leaf, int index);

/**
 * Closes a leaf.
 *
 * loss is the sum over the leaf's samples, weight their number, both possibly
 * 0.  A leaf without samples is closed like any other.
 *
 * Errors: CADRE_ERR_STATE        a gradient was asked for and not marked ready;
 *                                the text names the parameter
 *         CADRE_ERR_INVALID_ARG  weight is negative
 *         and those of a collective
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_leaf_end(
    cadre_engine *engine, int leaf, double loss, int64_t weight);

/**
 * Waits for all ranks' gradients, decides (clip, skip) and updates.
 *
 * All ranks decide from the same bits.  out may be NULL.  After an error, but
 * for CADRE_ERR_NOT_FINITE, the step is closed and the group is over: the other
 * ranks were told why, and cadre_step_begin() says so.  It may have come in the
 * middle of the update, which the parameters then show; in zero1 other ranks may
 * still write to them for a while.
 *
 * Errors: CADRE_ERR_STATE  no step is open, or a leaf was not closed
 *         CADRE_ERR_NOT_FINITE  ten steps in a row were skipped
 *         the first error of this step's leaves; those of a collective
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_step_end(
    cadre_engine *engine, cadre_step_report *out);

/**
 * Puts bits into the next report's `stop`, on every rank: how ranks agree to
 * stop after the same step.  Any thread; also from a signal handler.
 */
CADRE_API void cadre_engine_request_stop(cadre_engine *engine, uint32_t bits);

/** One plane of this rank's state. */
typedef struct cadre_plane_bytes {
    const char *name; // "params", "grads", "fold", "exp_avg", ...
    uint64_t nbytes;
} cadre_plane_bytes;

/** Fills in up to capacity planes and returns how many there are. */
CADRE_API int cadre_engine_state_bytes(
    const cadre_engine *engine, cadre_plane_bytes *planes, int capacity);

/** What an event tells of. */
typedef enum cadre_event_kind {
    CADRE_EVENT_LEAF_BEGIN = 1,
    CADRE_EVENT_GRAD_READY,
    CADRE_EVENT_LEAF_END,
    CADRE_EVENT_POSTED, // this and the next two: a chunk's exchange
    CADRE_EVENT_STARTED,
    CADRE_EVENT_FINISHED,
    CADRE_EVENT_CONTROL, // the control exchange is done
    CADRE_EVENT_UPDATE,  // the update is done
    CADRE_EVENT_STEP_END,
} cadre_event_kind;

typedef struct cadre_event {
    int64_t ns; // of the host's monotonic clock
    cadre_event_kind kind;
    int32_t leaf;    // or -1
    int32_t index;   // parameter of GRAD_READY; number of a chunk's exchange
                     // in its step; or -1
    int32_t bucket;  // also of an UPDATE that is an owner's; or -1
    int32_t round;   // or -1
    bool gather;     // of a chunk: sums, or parameters, travel to all, and not
                     // parts to an owner
    uint64_t nbytes; // of a chunk: what this rank sends
} cadre_event;

/**
 * What this rank recorded in the last closed step, by time.
 *
 * Fills in up to capacity events and returns how many there are; 0 if the
 * engine does not record.
 */
CADRE_API int cadre_engine_events(
    const cadre_engine *engine, cadre_event *events, int capacity);

/**
 * Compares the parameters of all ranks.  Collective, between steps.
 *
 * Errors: CADRE_ERR_STATE  a step is open
 *         and those of a collective; a difference is *equal == false, no error
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_engine_replicas_equal(
    cadre_engine *engine, bool *equal);

/**
 * Keeps a text of the caller's, in UTF-8, for the next checkpoints: where a
 * loop of its own stands in its data, for example.  NULL: none.  Copied.
 *
 * Errors: CADRE_ERR_INVALID_ARG  not UTF-8, or longer than 16 MiB
 *         CADRE_ERR_NO_MEMORY
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_engine_set_note(
    cadre_engine *engine, const char *note);

/** The last note set, or loaded on any rank; NULL without.  Borrowed. */
CADRE_API const char *cadre_engine_note(const cadre_engine *engine);

/**
 * Writes parameters, optimizer state, step and note into the folder dir.
 * Collective, between steps; rank 0's dir and note count.
 *
 * Rank 0 writes the folder aside, flushes it to the disk and renames it: dir is
 * complete or what it was, whenever the machine stops.  A checkpoint that has
 * the name is replaced, anything else is not.
 *
 * Errors, on all ranks alike, with the group whole:
 *         CADRE_ERR_INVALID_ARG  dir is something else than a checkpoint
 *         CADRE_ERR_STATE        a step is open
 *         CADRE_ERR_IO, CADRE_ERR_NO_MEMORY; and those of a collective
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_checkpoint_save(
    cadre_engine *engine, const char *dir);

/**
 * Goes on from a checkpoint: by any number of ranks, in any mode.  Collective,
 * between steps; rank 0 reads, from its dir.
 *
 * With the same leaves, the next steps have the bits that they would have had
 * without the interruption.  Another number of leaves, and so other bits, is
 * taken only if the engine's options gave one.
 *
 * Errors, on all ranks alike, with the group whole:
 *         CADRE_ERR_NOT_FOUND    there is no checkpoint
 *         CADRE_ERR_CORRUPT      it is damaged, or of another model
 *         CADRE_ERR_INVALID_ARG  made with other settings; the text names the
 *                                first
 *         CADRE_ERR_STATE        a step is open
 *         CADRE_ERR_IO, CADRE_ERR_NO_MEMORY: parameters may have been
 *                                overwritten; and those of a collective
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_checkpoint_load(
    cadre_engine *engine, const char *dir);

typedef struct cadre_checkpoint_info {
    int64_t step;   // steps done
    int leaves;     // V
    int world_size; // ranks that made it
    char *note;     // or NULL
} cadre_checkpoint_info;

/**
 * Looks into a checkpoint and verifies it as a whole.  Local.
 *
 * *out is set on success only; give it to cadre_checkpoint_info_release().
 *
 * Errors: CADRE_ERR_NOT_FOUND, CADRE_ERR_CORRUPT, CADRE_ERR_IO,
 *         CADRE_ERR_NO_MEMORY
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_checkpoint_inspect(
    const char *dir, cadre_checkpoint_info *out);
CADRE_API void cadre_checkpoint_info_release(cadre_checkpoint_info *info);

#ifdef __cplusplus
}
#endif

#endif // CADRE_ENGINE_H
