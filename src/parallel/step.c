// SPDX-License-Identifier: Apache-2.0
//
// One step of an engine: leaves are handed out, their gradients folded, and at
// the end all ranks decide and update alike.
//
// Threads with a leaf each call the hooks, which move exchanges on
// (parallel/moving.h); who needs a window and finds none waits for one.

#include "parallel/engine.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/thread.h"
#include "parallel/compare.h"
#include "parallel/moving.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_SKIPPED = 10,
    ALL_BUCKETS = -1,
    // How long a thread without a window sleeps before it looks whether the
    // group is still whole.
    LOOK_AGAIN_MS = 50,
};

// --- time and events ---

// A hook's stay in the engine: its sums are made with plain floats, whatever the
// caller's thread is set to, and its time is counted.
typedef struct stay {
    int64_t since_ns;
    bool busy;
    cadre_floats floats;
} stay;

// Relaxed, as all of these: they are read after all threads' leaves are closed,
// and whether exchanges are under way is a hint.
static bool is_busy(cadre_engine *e)
{
    return atomic_load_explicit(&e->busy, memory_order_relaxed);
}

static stay enter(cadre_engine *e)
{
    stay s = {.since_ns = cadre_now_ns(), .busy = is_busy(e)};
    cadre_floats_enter(&s.floats);
    return s;
}

static void leave(cadre_engine *e, const stay *s)
{
    cadre_floats_leave(&s->floats);
    int64_t ns = cadre_now_ns() - s->since_ns;
    atomic_fetch_add_explicit(&e->hook_ns, ns, memory_order_relaxed);
    if (s->busy || is_busy(e)) {
        atomic_fetch_add_explicit(&e->busy_hook_ns, ns, memory_order_relaxed);
    }
}

static void note(cadre_engine *e, cadre_event_kind kind, int leaf, int index)
{
    cadre_record_note(e->record, (cadre_event){.kind = kind,
                                     .leaf = leaf,
                                     .index = index,
                                     .bucket = -1,
                                     .round = -1});
}

static void note_bucket(cadre_engine *e, cadre_event_kind kind, int bucket)
{
    cadre_record_note(e->record, (cadre_event){.kind = kind,
                                     .leaf = -1,
                                     .index = -1,
                                     .bucket = bucket,
                                     .round = -1});
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
    cadre_fold_begin(engine->fold, engine->record);
    cadre_record_begin(engine->record);
    cadre_group_sent(
        engine->group, &engine->payload_before, &engine->overhead_before);
    atomic_store_explicit(&engine->hook_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&engine->busy_hook_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&engine->busy, false, memory_order_relaxed);
    atomic_store(&engine->news, false);
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
    stay s = enter(engine);
    bool opened = false;
    bool over = false;
    while (!over && !cadre_moving_has_failed(engine)) {
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
            cadre_moving_offer(engine, true, false);
            cadre_leaves_wait(
                &engine->leaves, seen, cadre_deadline_in_ms(LOOK_AGAIN_MS));
            break;
        }
    }
    leave(engine, &s);
    if (opened) {
        note(engine, CADRE_EVENT_LEAF_BEGIN, *leaf, -1);
    }
    return opened;
}

// A gradient is asked for between two long computations, of its layer's input and
// of itself: so that is a moment to look after what is under way.
float *cadre_leaf_grad(cadre_engine *engine, int leaf, int index)
{
    if (engine == NULL || !engine->open) {
        return NULL;
    }
    if (engine->o.overlap == CADRE_OVERLAP_ON && is_busy(engine)) {
        stay s = enter(engine);
        cadre_moving_offer(engine, false, false);
        leave(engine, &s);
    }
    return cadre_leaves_grad(&engine->leaves, leaf, index);
}

// A failed call of a hook ends the step.
static cadre_status hook_result(cadre_engine *e, cadre_status status)
{
    if (status != CADRE_OK) {
        cadre_moving_fail(e, status);
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
    note(engine, CADRE_EVENT_GRAD_READY, leaf, index);
    stay s = enter(engine);
    bool complete = false;
    cadre_status status = hook_result(
        engine, cadre_leaves_ready(&engine->leaves, leaf, index, &complete));
    if (status == CADRE_OK && engine->o.overlap == CADRE_OVERLAP_ON &&
        (complete || is_busy(engine))) {
        cadre_moving_offer(engine, false, complete);
    }
    leave(engine, &s);
    return status;
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
    note(engine, CADRE_EVENT_LEAF_END, leaf, -1);
    stay s = enter(engine);
    cadre_status status = hook_result(
        engine, cadre_leaves_close(&engine->leaves, leaf, loss, weight));
    if (status == CADRE_OK) {
        cadre_moving_offer(engine, false, true);
    }
    leave(engine, &s);
    return status;
}

// --- the end of a step ---

static cadre_status first_failure(cadre_engine *e)
{
    return cadre_moving_has_failed(e)
               ? cadre_fail(e->failure, "%s", e->failure_text)
               : CADRE_OK;
}

// Waits until every rank's leaves are in the owners' sums.
static cadre_status finish_folds(cadre_engine *e)
{
    if (!cadre_moving_has_failed(e) &&
        cadre_leaves_closed(&e->leaves) < e->leaves.n_own) {
        (void)hook_result(e,
            cadre_fail(CADRE_ERR_STATE,
                "step_end: %d of this rank's %d leaves were closed; take each "
                "from cadre_leaf_next and close it with cadre_leaf_end",
                cadre_leaves_closed(&e->leaves), e->leaves.n_own));
    }
    while (!cadre_moving_has_failed(e) && !cadre_fold_summed(e->fold)) {
        cadre_moving_go_on(e, true);
    }
    return first_failure(e);
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

// Decides from what all ranks know.  Returns what the sums are to be multiplied
// with; of no use when the step is skipped.
static cadre_factors decide(
    cadre_engine *e, const cadre_control *all, cadre_step_report *report)
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
        return (cadre_factors){0};
    }
    e->skipped_in_row = 0;
    double norm = sqrt(cadre_exact_value(&all->squares)) / total;
    report->loss = cadre_exact_value(&all->loss) / total;
    report->grad_norm = norm;
    e->updates++;

    // docs/numerics.md sections 5 and 6: both factors in f64, rounded once.
    double clip =
        e->o.clip > 0.0 && norm > e->o.clip ? e->o.clip / (norm + 1e-6) : 1.0;
    return (cadre_factors){
        .scale = (float)(clip / total), .mean = (float)(1.0 / total)};
}

// Moves what comes behind the control exchange: until all of it is done, or with
// a bucket, until that one's sums are here, but once in any case, since peers may
// wait for this rank.  *waited_ns grows by the time.
static cadre_status finish_moving(
    cadre_engine *e, int bucket, int64_t *waited_ns)
{
    int64_t since_ns = cadre_now_ns();
    if (!cadre_moving_has_failed(e) && !cadre_fold_done(e->fold)) {
        cadre_moving_go_on(e, false);
    }
    while (!cadre_moving_has_failed(e) &&
           (bucket == ALL_BUCKETS ? !cadre_fold_done(e->fold)
                                  : !cadre_fold_gathered(e->fold, bucket))) {
        cadre_moving_go_on(e, true);
    }
    *waited_ns += cadre_now_ns() - since_ns;
    return first_failure(e);
}

// Updates this rank's part bucket by bucket, each published while the next one
// is updated.  Ends with the group, so that peers who know of that soon have
// their memory to themselves.  *waited_ns: what was no updating.
static cadre_status update_and_publish(
    cadre_engine *e, const cadre_update *update, int64_t *waited_ns)
{
    for (int b = 0; b < e->buckets.n_buckets; b++) {
        CADRE_TRY(cadre_engine_update_bucket(e, update, b));
        note_bucket(e, CADRE_EVENT_UPDATE, b);
        int64_t since_ns = cadre_now_ns();
        cadre_fold_publish(e->fold);
        cadre_moving_go_on(e, false);
        *waited_ns += cadre_now_ns() - since_ns;
        CADRE_TRY(first_failure(e));
    }
    return finish_moving(e, ALL_BUCKETS, waited_ns);
}

// Updates everything, each bucket when its sums are here.
static cadre_status gather_and_update(
    cadre_engine *e, const cadre_update *update, int64_t *waited_ns)
{
    for (int b = 0; b < e->buckets.n_buckets; b++) {
        CADRE_TRY(finish_moving(e, b, waited_ns));
        CADRE_TRY(cadre_engine_update_bucket(e, update, b));
    }
    if (e->optim == NULL) {
        e->model->grads = cadre_fold_result(e->fold);
        return CADRE_OK;
    }
    note(e, CADRE_EVENT_UPDATE, -1, -1);
    return CADRE_OK;
}

// Does with the sums what was decided.
static cadre_status carry_out(cadre_engine *e, cadre_factors factors,
    const cadre_step_report *report, int64_t *waited_ns)
{
    bool publishes = e->placement->optimizer == CADRE_SHARDED;
    if (report->skipped) {
        // What is gathered still has to arrive; nothing is published.
        return publishes ? CADRE_OK : finish_moving(e, ALL_BUCKETS, waited_ns);
    }
    cadre_update u = cadre_engine_begin_update(e, factors, report->lr);
    return publishes ? update_and_publish(e, &u, waited_ns)
                     : gather_and_update(e, &u, waited_ns);
}

// What of the step's time went where.
typedef struct spent {
    int64_t since_ns;     // when step_end began
    int64_t decided_ns;   // when all was known
    int64_t busy_at_end;  // time with exchanges under way, up to step_end,
    int64_t busy_decided; // and up to the decisions
    int64_t waited_ns;    // waits for sums or parameters after them
} spent;

// All threads wait for this one; the update is computing, not waiting.
static void report_times(
    cadre_engine *e, const spent *s, cadre_step_report *report)
{
    double threads = e->o.threads;
    double hooks =
        (double)atomic_load_explicit(&e->hook_ns, memory_order_relaxed);
    double busy_hooks =
        (double)atomic_load_explicit(&e->busy_hook_ns, memory_order_relaxed);
    double at_end = (double)(s->decided_ns - s->since_ns + s->waited_ns);
    report->exposed_ms = (hooks / threads + at_end) / 1e6;

    double seen = busy_hooks / threads +
                  (double)(s->busy_decided - s->busy_at_end + s->waited_ns);
    double hidden = (double)cadre_fold_busy_ns(e->fold) - seen;
    report->hidden_ms = hidden > 0.0 ? hidden / 1e6 : 0.0;
    report->update_ms =
        (double)(cadre_now_ns() - s->decided_ns - s->waited_ns) / 1e6;
}

// Bytes that left this rank in the step; those of the control exchange count as
// overhead.
static void report_bytes(
    cadre_engine *e, uint64_t control_bytes, cadre_step_report *report)
{
    uint64_t payload;
    uint64_t overhead;
    cadre_group_sent(e->group, &payload, &overhead);
    report->bytes_sent = payload - e->payload_before - control_bytes;
    report->overhead_bytes = overhead - e->overhead_before + control_bytes;
}

// The control exchange, with the last gather behind it; *bytes: what it sent.
static cadre_status run_control(cadre_engine *e, const cadre_fold_sum *sum,
    cadre_control *control, uint64_t *bytes)
{
    uint64_t before;
    uint64_t after;
    uint64_t overhead;
    *control = (cadre_control){
        .squares = sum->squares,
        .finite = sum->finite,
        .stop =
            atomic_exchange_explicit(&e->stop_bits, 0, memory_order_relaxed),
    };
    add_outcomes(e, control);
    cadre_group_sent(e->group, &before, &overhead);
    CADRE_TRY(cadre_control_begin(e->control, control));
    cadre_group_sent(e->group, &after, &overhead);
    *bytes = after - before;
    cadre_fold_go_on(e->fold);
    cadre_moving_go_on(e, false);
    CADRE_TRY(cadre_control_end(e->control, control));
    note(e, CADRE_EVENT_CONTROL, -1, -1);
    return CADRE_OK;
}

static cadre_status finish_step(
    cadre_engine *e, int64_t since_ns, cadre_step_report *report)
{
    spent s = {
        .since_ns = since_ns, .busy_at_end = cadre_fold_busy_ns(e->fold)};
    CADRE_TRY(finish_folds(e));
    cadre_fold_sum sum;
    cadre_fold_take(e->fold, &sum);
    cadre_control control;
    uint64_t control_bytes;
    CADRE_TRY(run_control(e, &sum, &control, &control_bytes));
    s.decided_ns = cadre_now_ns();
    s.busy_decided = cadre_fold_busy_ns(e->fold);

    cadre_factors factors = decide(e, &control, report);
    CADRE_TRY(carry_out(e, factors, report, &s.waited_ns));
    report_times(e, &s, report);
    report_bytes(e, control_bytes, report);
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
    stay s = enter(engine);
    cadre_step_report report = {.step = engine->step};
    cadre_moving_claim(engine);
    cadre_status status = finish_step(engine, s.since_ns, &report);
    if (status != CADRE_OK) {
        status = give_up(engine, status);
    }
    cadre_moving_release(engine);
    cadre_floats_leave(&s.floats);
    note(engine, CADRE_EVENT_STEP_END, -1, -1);
    cadre_record_end(engine->record);
    engine->open = false;
    if (status != CADRE_OK) {
        return status;
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
