// SPDX-License-Identifier: Apache-2.0
//
// One step of an engine: leaves are handed out, their gradients folded, and at
// the end all ranks decide and update alike.
//
// Threads with a leaf each call the hooks.  Whoever finds that folds can move
// moves them, one thread at a time; who needs a window and finds none waits for
// the one who does.

#include "parallel/engine.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/thread.h"
#include "parallel/compare.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_SKIPPED = 10,
    // How long a thread without a window sleeps before it looks whether the
    // group is still whole.
    LOOK_AGAIN_MS = 50,
};

// --- failures and time ---

// Keeps the step's first failure.  Other ranks would wait for this one, so the
// group ends with it.
static void keep_failure(cadre_engine *e, cadre_status status)
{
    char text[CADRE_FAIL_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", cadre_error_text());
    pthread_mutex_lock(&e->leaves.mu);
    bool first = e->failure == CADRE_OK;
    if (first) {
        e->failure = status;
        memcpy(e->failure_text, text, sizeof(text));
    }
    cadre_leaves_signal(&e->leaves);
    pthread_mutex_unlock(&e->leaves.mu);
}

static bool has_failed(cadre_engine *e)
{
    pthread_mutex_lock(&e->leaves.mu);
    bool failed = e->failure != CADRE_OK;
    pthread_mutex_unlock(&e->leaves.mu);
    return failed;
}

// A hook's stay in the engine: its sums are made with plain floats, whatever the
// caller's thread is set to, and its time is counted.
typedef struct stay {
    int64_t since_ns;
    cadre_floats floats;
} stay;

static stay enter(void)
{
    stay s = {.since_ns = cadre_now_ns()};
    cadre_floats_enter(&s.floats);
    return s;
}

static void leave(cadre_engine *e, const stay *s)
{
    cadre_floats_leave(&s->floats);
    // Relaxed: read after all threads' leaves are closed.
    atomic_fetch_add_explicit(
        &e->hook_ns, cadre_now_ns() - s->since_ns, memory_order_relaxed);
}

// --- folds ---

// Moves folds on, unless another thread does so now.
static void advance(cadre_engine *e, bool wait)
{
    pthread_mutex_lock(&e->leaves.mu);
    bool mine = !e->advancing && e->failure == CADRE_OK;
    if (mine) {
        e->advancing = true;
    }
    pthread_mutex_unlock(&e->leaves.mu);
    if (!mine) {
        return;
    }

    int finished = cadre_fold_finished(e->fold);
    cadre_status status = cadre_fold_advance(e->fold, wait);
    if (status == CADRE_OK) {
        status = cadre_group_progress(e->group);
    }
    if (status != CADRE_OK) {
        keep_failure(e, status);
    }
    pthread_mutex_lock(&e->leaves.mu);
    e->advancing = false;
    if (cadre_fold_finished(e->fold) > finished) {
        cadre_leaves_signal(&e->leaves);
    }
    pthread_mutex_unlock(&e->leaves.mu);
}

// --- hooks ---

static cadre_status no_engine(void)
{
    return cadre_fail(CADRE_ERR_INVALID_ARG, "the engine is NULL");
}

cadre_status cadre_step_begin(cadre_engine *engine)
{
    if (engine == NULL) {
        return no_engine();
    }
    // After a failed step the group is over, and so is the engine.
    CADRE_TRY(cadre_group_progress(engine->group));
    if (engine->open) {
        return cadre_fail(CADRE_ERR_STATE,
            "step_begin: a step is open; close it with cadre_step_end");
    }
    if (!engine->compared) {
        CADRE_TRY(cadre_compare_values(engine->model));
        engine->compared = true;
    }
    engine->model->grads = NULL;
    cadre_leaves_begin(&engine->leaves);
    cadre_fold_begin(engine->fold);
    cadre_group_sent(
        engine->group, &engine->payload_before, &engine->overhead_before);
    atomic_store_explicit(&engine->hook_ns, 0, memory_order_relaxed);
    engine->failure = CADRE_OK;
    engine->step++;
    engine->open = true;
    return CADRE_OK;
}

bool cadre_leaf_next(cadre_engine *engine, int *leaf)
{
    if (engine == NULL || leaf == NULL || !engine->open) {
        return false;
    }
    stay s = enter();
    bool opened = false;
    bool over = false;
    while (!over && !has_failed(engine)) {
        uint64_t seen = cadre_leaves_changes(&engine->leaves);
        switch (cadre_leaves_open(&engine->leaves, leaf)) {
        case CADRE_LEAF_OPENED:
            opened = true;
            over = true;
            break;
        case CADRE_LEAF_NONE_LEFT:
            over = true;
            break;
        case CADRE_LEAF_NO_WINDOW:
            advance(engine, true);
            cadre_leaves_wait(
                &engine->leaves, seen, cadre_deadline_in_ms(LOOK_AGAIN_MS));
            break;
        }
    }
    leave(engine, &s);
    return opened;
}

float *cadre_leaf_grad(cadre_engine *engine, int leaf, int index)
{
    return engine != NULL && engine->open
               ? cadre_leaves_grad(&engine->leaves, leaf, index)
               : NULL;
}

// A failed call of a hook ends the step.
static cadre_status hook_result(cadre_engine *e, cadre_status status)
{
    if (status != CADRE_OK) {
        keep_failure(e, status);
    }
    return status;
}

static cadre_status no_step(const char *call)
{
    return cadre_fail(CADRE_ERR_STATE,
        "%s: no step is open; open one with cadre_step_begin", call);
}

cadre_status cadre_grad_ready(cadre_engine *engine, int leaf, int index)
{
    if (engine == NULL) {
        return no_engine();
    }
    if (!engine->open) {
        return no_step("grad_ready");
    }
    return hook_result(
        engine, cadre_leaves_ready(&engine->leaves, leaf, index));
}

cadre_status cadre_leaf_end(
    cadre_engine *engine, int leaf, double loss, int64_t weight)
{
    if (engine == NULL) {
        return no_engine();
    }
    if (!engine->open) {
        return no_step("leaf_end");
    }
    stay s = enter();
    cadre_status status = hook_result(
        engine, cadre_leaves_close(&engine->leaves, leaf, loss, weight));
    if (status == CADRE_OK) {
        advance(engine, false);
    }
    leave(engine, &s);
    return status;
}

// --- the end of a step ---

// Waits until every rank's leaves are in the sum.
static cadre_status finish_folds(cadre_engine *e)
{
    if (!has_failed(e) && cadre_leaves_closed(&e->leaves) < e->leaves.n_own) {
        (void)hook_result(e,
            cadre_fail(CADRE_ERR_STATE,
                "step_end: %d of this rank's %d leaves were closed; take each "
                "from cadre_leaf_next and close it with cadre_leaf_end",
                cadre_leaves_closed(&e->leaves), e->leaves.n_own));
    }
    while (!has_failed(e) && !cadre_fold_done(e->fold)) {
        advance(e, true);
    }
    if (has_failed(e)) {
        return cadre_fail(e->failure, "%s", e->failure_text);
    }
    return CADRE_OK;
}

// This rank's losses and weights, for the control exchange.
static void add_outcomes(cadre_engine *e, cadre_control *control)
{
    const double most = 0x1p128; // from here on a loss counts as not finite
    for (int i = 0; i < e->leaves.n_own; i++) {
        double loss;
        int64_t weight;
        cadre_leaves_outcome(&e->leaves, i, &loss, &weight);
        control->finite = control->finite && fabs(loss) < most &&
                          cadre_exact_add(&control->loss, loss);
        if (__builtin_add_overflow(control->weight, weight, &control->weight)) {
            control->weight = -1; // refused by the exchange
        }
    }
}

// Decides from what all ranks know, and updates.
static void decide(cadre_engine *e, const cadre_control *all,
    const float *grads, cadre_step_report *report)
{
    report->weight = all->weight;
    report->stop = all->stop;
    report->lr = cadre_rate(&e->rate, e->updates + 1);
    report->skipped = all->weight == 0 || !all->finite;
    double total = (double)all->weight;
    if (report->skipped) {
        report->loss = NAN;
        report->grad_norm = NAN;
        e->skipped_in_row++;
        return;
    }
    e->skipped_in_row = 0;
    double norm = sqrt(cadre_exact_value(&all->squares)) / total;
    report->loss = cadre_exact_value(&all->loss) / total;
    report->grad_norm = norm;

    // docs/numerics.md sections 5 and 6: both factors in f64, rounded once.
    double clip =
        e->o.clip > 0.0 && norm > e->o.clip ? e->o.clip / (norm + 1e-6) : 1.0;
    e->updates++;
    if (e->optim == NULL) {
        e->model->grads = grads;
        return;
    }
    e->powers.beta1 *= e->hyper.beta1;
    e->powers.beta2 *= e->hyper.beta2;
    cadre_engine_update(e, grads, (float)(clip / total), report->lr);
}

static cadre_status finish_step(
    cadre_engine *e, int64_t since_ns, cadre_step_report *report)
{
    CADRE_TRY(finish_folds(e));
    uint64_t payload;
    uint64_t overhead;
    cadre_group_sent(e->group, &payload, &overhead);
    report->bytes_sent = payload - e->payload_before;

    cadre_fold_sum sum;
    cadre_fold_take(e->fold, &sum);
    cadre_control control = {
        .squares = sum.squares,
        .finite = sum.finite,
        .stop =
            atomic_exchange_explicit(&e->stop_bits, 0, memory_order_relaxed),
    };
    add_outcomes(e, &control);
    CADRE_TRY(cadre_control_run(e->control, &control));
    uint64_t control_payload;
    cadre_group_sent(e->group, &control_payload, &overhead);
    report->overhead_bytes =
        overhead - e->overhead_before + (control_payload - payload);

    // All threads wait for this one; the update is computing, not waiting.
    int64_t hooks = atomic_load_explicit(&e->hook_ns, memory_order_relaxed);
    report->exposed_ms = (double)hooks / 1e6 / e->o.threads +
                         (double)(cadre_now_ns() - since_ns) / 1e6;
    decide(e, &control, sum.grads, report);
    return CADRE_OK;
}

// Ends a step that failed here: other ranks must not wait for this one.
static cadre_status give_up(cadre_engine *e, cadre_status status)
{
    char text[CADRE_FAIL_TEXT_BYTES];
    char others[CADRE_FAIL_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", cadre_error_text());
    snprintf(others, sizeof(others), "rank %d gave up step %lld: %.900s",
        cadre_rank(e->group), (long long)e->step, text);
    cadre_status first = cadre_group_fail(e->group, CADRE_ERR_ABORTED, others);
    bool own =
        first == CADRE_ERR_ABORTED && strcmp(cadre_error_text(), others) == 0;
    cadre_fold_abandon(e->fold);
    return own ? cadre_fail(status, "%s", text) : first;
}

cadre_status cadre_step_end(cadre_engine *engine, cadre_step_report *out)
{
    if (engine == NULL) {
        return no_engine();
    }
    if (!engine->open) {
        return no_step("step_end");
    }
    stay s = enter();
    cadre_step_report report = {.step = engine->step};
    cadre_status status = finish_step(engine, s.since_ns, &report);
    cadre_floats_leave(&s.floats);
    engine->open = false;
    if (status != CADRE_OK) {
        return give_up(engine, status);
    }
    if (out != NULL) {
        *out = report;
    }
    if (engine->skipped_in_row >= MOST_SKIPPED) {
        return cadre_fail(CADRE_ERR_NOT_FINITE,
            "%d steps in a row were skipped, the last one %lld: gradients or "
            "losses are not finite, or there are no samples",
            MOST_SKIPPED, (long long)engine->step);
    }
    return CADRE_OK;
}
