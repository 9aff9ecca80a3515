// SPDX-License-Identifier: Apache-2.0
//
// The step loop: the one place where computing and communicating meet.  The
// crew's threads take leaves from the engine, send the loader's samples through
// the net, and tell the engine of each gradient as backward finishes it.

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"
#include "base/thread.h"
#include "parallel/verdict.h"
#include "train/config.h"
#include "train/evaluate.h"
#include "train/identity.h"
#include "train/passes.h"
#include "train/records.h"
#include "train/save.h"
#include "train/setup.h"
#include "train/summary.h"
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

// Bits of a request to stop, as the engine carries them to all ranks.
enum { STOP_INTERRUPT = 1, STOP_TERMINATE = 2 };

typedef struct run {
    cadre_group *world;
    const cadre_train_config *config; // settled
    cadre_train_config settled;       // with what a checkpoint decides
    const cadre_train_hooks *hooks;
    int64_t began_ns;
    int64_t n_steps;
    uint64_t identity;
    cadre_resume_point resume; // where the run goes on, if it does
    cadre_task task;
    cadre_engine *engine;
    cadre_crew *crew;
    cadre_loader *loader;
    cadre_tally tally;
    cadre_records records;
    bool evaluated; // eval is of the present parameters
    cadre_eval_result eval;
    int stopped_by;
} run;

static bool is_resumed(const run *r)
{
    return r->config->resume[0] != '\0';
}

static cadre_status resume(run *r)
{
    if (!is_resumed(r)) {
        return CADRE_OK;
    }
    cadre_note *note = &r->resume.note;
    CADRE_TRY(cadre_resume_load(
        r->world, r->config, &r->task, r->engine, &r->resume));
    cadre_tally_resume(&r->tally, r->config->resume_step, note->n_skipped,
        note->losses, note->n_losses);
    if (note->identity != r->identity) {
        note->identity_since = r->config->resume_step;
    }
    if (note->identity != r->identity && cadre_rank(r->world) == 0) {
        cadre_log(CADRE_LOG_WARN, "train",
            "a new identity begins after step %" PRId64
            ": the bits are no longer those of one run",
            note->identity_since);
    }
    return CADRE_OK;
}

// All ranks have accepted the run: it may begin to write.
static cadre_status begin(run *r, const cadre_dealing *dealing)
{
    const char *problem = NULL;
    bool first = cadre_rank(r->world) == 0;
    if (first && r->hooks->begin != NULL) {
        problem = r->hooks->begin(r->hooks->ctx);
    }
    if (problem != NULL) {
        return cadre_fail(CADRE_ERR_IO, "%s", problem);
    }
    if (first) {
        cadre_setup_log(r->config, r->n_steps, dealing);
    }
    return cadre_records_open(
        &r->records, r->world, r->config, r->engine, r->task.model);
}

static cadre_status set_up(run *r)
{
    const cadre_train_config *c = r->config;
    CADRE_TRY(cadre_setup_task(
        r->world, &r->settled, &r->resume, &r->task, &r->n_steps));
    CADRE_TRY(cadre_setup_engine(c, r->task.model, &r->engine));
    const cadre_dealing dealing = cadre_setup_dealing(r->world, r->engine);
    r->identity = cadre_identity_hash(c, &r->task, &dealing);
    const cadre_claim claim = {
        .identity = r->identity,
        .n_steps = r->n_steps,
        .rhythm = cadre_config_rhythm(c),
        .test_hash = r->task.test->content_hash,
        .n_test = r->task.test->n_samples,
    };
    CADRE_TRY(cadre_claim_compare(r->world, &claim));
    CADRE_TRY(cadre_setup_loader(c, cadre_rank(r->world), r->n_steps, &dealing,
        r->task.train, &r->loader));
    cadre_pass_sizes list =
        cadre_pass_sizes_of(c, r->task.train->n_samples, dealing.n_leaves);
    CADRE_TRY(cadre_crew_create(
        r->task.net, c->threads, list.sizes, list.n, &r->crew));
    CADRE_TRY(
        cadre_tally_init(&r->tally, r->n_steps, cadre_config_sample_weight(c)));
    CADRE_TRY(resume(r));
    return cadre_share_verdict(r->world, begin(r, &dealing));
}

static void tear_down(run *r)
{
    cadre_records_close(&r->records);
    cadre_resume_close(&r->resume);
    cadre_tally_fini(&r->tally);
    cadre_crew_destroy(r->crew);
    cadre_loader_destroy(r->loader);
    cadre_engine_destroy(r->engine);
    cadre_task_close(&r->task);
}

// A leaf in the hands of a compute thread: how the net's gradients reach the
// engine.
typedef struct open_leaf {
    cadre_engine *engine;
    int leaf;
} open_leaf;

static float *leaf_grad(void *ctx, int index)
{
    const open_leaf *l = ctx;
    return cadre_leaf_grad(l->engine, l->leaf, index);
}

static cadre_status leaf_ready(void *ctx, int index)
{
    const open_leaf *l = ctx;
    return cadre_grad_ready(l->engine, l->leaf, index);
}

static cadre_status run_leaf(const run *r, cadre_net_worker *worker, int leaf)
{
    open_leaf open = {.engine = r->engine, .leaf = leaf};
    const cadre_grad_listener listener = {
        .ctx = &open, .grad = leaf_grad, .ready = leaf_ready};
    const cadre_leaf_data data = cadre_loader_leaf(r->loader, leaf);
    const int64_t width = r->task.train->sample_elements;
    const int64_t n_labels = cadre_dataset_labels(r->task.train);
    const int64_t micro_batch =
        r->config->micro_batch > 0 ? r->config->micro_batch : data.n_samples;

    double loss = 0;
    int64_t n_samples;
    for (int64_t first = 0; first < data.n_samples; first += n_samples) {
        int64_t left = data.n_samples - first;
        n_samples = left < micro_batch ? left : micro_batch;
        const cadre_pass pass = {
            .x = data.x + first * width,
            .labels = data.labels + first * n_labels,
            .n_samples = n_samples,
            .label_smoothing = (float)r->config->label_smoothing,
            .first = first == 0,
            .last = n_samples == left,
            .seed = r->config->seed,
            .step = data.step,
            .first_sample = data.first_sample + first,
        };
        double pass_loss;
        CADRE_TRY(cadre_net_pass(
            worker, r->task.params, &pass, &listener, &pass_loss));
        loss += pass_loss;
    }
    return cadre_leaf_end(r->engine, leaf, loss,
        data.n_samples * cadre_dataset_weight(r->task.train));
}

static cadre_status run_leaves(cadre_net_worker *worker, int thread, void *ctx)
{
    (void)thread;
    const run *r = ctx;
    for (int leaf; cadre_leaf_next(r->engine, &leaf);) {
        CADRE_TRY(run_leaf(r, worker, leaf));
    }
    return CADRE_OK;
}

// Asks for a stop shortly before ranks agree, so that it is after this step.
static void pass_on_stop(run *r)
{
    int signal_number = r->hooks->stop_signal == NULL
                            ? 0
                            : r->hooks->stop_signal(r->hooks->ctx);
    if (signal_number != 0) {
        cadre_engine_request_stop(r->engine,
            signal_number == SIGINT ? STOP_INTERRUPT : STOP_TERMINATE);
    }
}

// A step as the display and metrics.jsonl see it.
typedef struct step_view {
    cadre_step_report report;
    cadre_step_times times;
    bool evaluates; // an evaluation follows it
    bool evaluated;
    bool last;
} step_view;

static cadre_status run_step(run *r, step_view *s)
{
    int64_t waited_ns = cadre_loader_waited_ns(r->loader);
    cadre_batch batch;
    CADRE_TRY(cadre_loader_acquire(r->loader, &batch));
    s->times.data_ns = cadre_loader_waited_ns(r->loader) - waited_ns;
    cadre_pass_times before = cadre_crew_times(r->crew);
    CADRE_TRY(cadre_step_begin(r->engine));
    CADRE_TRY(cadre_crew_run(r->crew, run_leaves, r));
    cadre_pass_times after = cadre_crew_times(r->crew);
    s->times.forward_ns = after.forward_ns - before.forward_ns;
    s->times.backward_ns = after.backward_ns - before.backward_ns;
    pass_on_stop(r);
    CADRE_TRY(cadre_step_end(r->engine, &s->report));
    cadre_loader_release(r->loader);
    r->evaluated = false;
    return CADRE_OK;
}

// The first step of a new identity says so.
static bool begins_identity(const run *r, const step_view *s)
{
    int64_t since = r->resume.note.identity_since;
    return since > 0 && s->report.step == since + 1;
}

// Such a step has a line in metrics.jsonl, and all ranks tell of themselves.
static bool is_logged(const run *r, const step_view *s)
{
    return s->report.step % r->config->log_every == 0 || s->evaluates ||
           s->last || begins_identity(r, s);
}

static double samples_per_second(const run *r, const step_view *s)
{
    double weight = (double)cadre_config_sample_weight(r->config);
    return (double)s->report.weight / weight * 1e9 / (double)s->times.ns;
}

static void show(const run *r, const step_view *s)
{
    if (r->hooks->progress == NULL || cadre_rank(r->world) != 0) {
        return;
    }
    double step_ms = (double)s->times.ns * 1e-6;
    double communication_ms = s->report.exposed_ms + s->report.hidden_ms;
    const cadre_train_progress progress = {
        .step = s->report.step,
        .n_steps = r->n_steps,
        .loss = s->report.loss,
        .lr = s->report.lr,
        .grad_norm = s->report.grad_norm,
        .step_ms = step_ms,
        .samples_per_second = samples_per_second(r, s),
        .exposed_fraction = s->report.exposed_ms / step_ms,
        .hidden_fraction = communication_ms > 0
                               ? s->report.hidden_ms / communication_ms
                               : (double)NAN,
        .bytes_sent = s->report.bytes_sent,
        .skipped = s->report.skipped,
        .world_size = cadre_world_size(r->world),
        .slowest_rank = r->records.ranks.slowest_rank,
        .slowest_excess = r->records.ranks.slowest_excess,
        .rss_bytes = r->records.ranks.rss_bytes,
        .rss_rank = r->records.ranks.rss_rank,
        .evaluated = s->evaluated,
        .eval_loss = s->evaluated ? r->eval.loss : 0,
        .eval_accuracy = s->evaluated ? r->eval.accuracy : 0,
        .eval_bits_per_byte = s->evaluated ? r->eval.bits_per_byte : 0,
    };
    r->hooks->progress(&progress, r->hooks->ctx);
}

static cadre_records_step record_of(const run *r, const step_view *s)
{
    return (cadre_records_step){
        .report = &s->report, .ns = s->times.ns, .logged = is_logged(r, s)};
}

static cadre_status log_step(run *r, const step_view *s)
{
    const cadre_records_step step = record_of(r, s);
    const cadre_new_identity identity = {
        .hash = r->identity, .leaves = cadre_leaf_count(r->engine)};
    const cadre_records_extra extra = {
        .eval = s->evaluated ? &r->eval : NULL,
        .hashed = s->evaluated || s->last,
        .new_identity = begins_identity(r, s) ? &identity : NULL,
    };
    return step.logged ? cadre_records_write(&r->records, &step, &extra)
                       : CADRE_OK;
}

// Counts a step, and gathers what ranks have to tell of it.
static cadre_status observe(run *r, const step_view *s)
{
    cadre_tally_add(&r->tally, &s->report, &s->times);
    const cadre_records_step step = record_of(r, s);
    return cadre_records_take(&r->records, &step);
}

static cadre_status evaluate(run *r, step_view *s)
{
    CADRE_TRY(cadre_task_evaluate(r->world, &r->task, r->crew, &r->eval));
    r->evaluated = true;
    s->evaluated = true;
    show(r, s);
    return CADRE_OK;
}

static cadre_status save_checkpoint(const run *r)
{
    const cadre_save save = {
        .world = r->world,
        .config = r->config,
        .task = &r->task,
        .engine = r->engine,
        .tally = &r->tally,
        .identity = r->identity,
        .identity_since = r->resume.note.identity_since,
    };
    return cadre_save_checkpoint(&save);
}

static bool saves(const run *r, const step_view *s)
{
    int64_t every = r->config->checkpoint_every;
    return r->config->out[0] != '\0' &&
           (s->last || (every > 0 && s->report.step % every == 0));
}

// After the last step and its evaluation: a run that ends with parameters that
// are no numbers is no success, and its checkpoint must not take the place of
// one that is of use.
static cadre_status check_end(const run *r)
{
    bool sound =
        isfinite(cadre_tally_loss(&r->tally)) && isfinite(r->eval.loss);
    return sound ? CADRE_OK
                 : cadre_fail(CADRE_ERR_NOT_FINITE,
                       "after step %" PRId64 ", the last one, the loss is not "
                       "finite: no model is written; a smaller optim.lr, or "
                       "optim.clip, may help",
                       r->n_steps);
}

static bool is_evaluated(const run *r, int64_t step)
{
    int64_t every = r->config->eval_every;
    return step == r->n_steps || (every > 0 && step % every == 0);
}

// A run that was stopped, or cut off in its end, may lack the evaluation after
// the step that it is resumed from.  Rank 0 knows, from metrics.jsonl.
static cadre_status catch_up(run *r)
{
    int64_t step = r->config->resume_step;
    int64_t lacks = step == r->n_steps || r->records.lacks_eval;
    if (!is_resumed(r) || !is_evaluated(r, step)) {
        return CADRE_OK;
    }
    CADRE_TRY(cadre_broadcast(r->world, &lacks, 1, CADRE_I64, 0, NULL));
    if (lacks == 0) {
        return CADRE_OK;
    }
    if (cadre_rank(r->world) == 0) {
        cadre_log(CADRE_LOG_INFO, "train",
            "the evaluation after step %" PRId64 " is made, which was missing",
            step);
    }
    CADRE_TRY(cadre_task_evaluate(r->world, &r->task, r->crew, &r->eval));
    r->evaluated = true;
    CADRE_TRY(cadre_records_amend(&r->records, step, &r->eval));
    return step == r->n_steps ? check_end(r) : CADRE_OK;
}

static cadre_status run_steps(run *r)
{
    CADRE_TRY(catch_up(r));
    int64_t mark = cadre_now_ns();
    for (int64_t step = r->config->resume_step + 1;
         step <= r->n_steps && r->stopped_by == 0; step++) {
        step_view s = {0};
        CADRE_TRY(run_step(r, &s));
        int64_t now = cadre_now_ns();
        s.times.ns = now > mark ? now - mark : 1;
        mark = now;
        if (s.report.stop != 0) {
            r->stopped_by = s.report.stop & STOP_TERMINATE ? SIGTERM : SIGINT;
        }
        s.last = step == r->n_steps || r->stopped_by != 0;
        // Who asks to stop does not want to wait for an evaluation, which the
        // run makes when it is resumed.
        s.evaluates = r->stopped_by == 0 && is_evaluated(r, step);
        CADRE_TRY(observe(r, &s));
        show(r, &s);
        if (s.evaluates) {
            CADRE_TRY(evaluate(r, &s));
            mark = cadre_now_ns();
        }
        CADRE_TRY(log_step(r, &s));
        if (s.last && r->stopped_by == 0) {
            CADRE_TRY(check_end(r));
        }
        if (saves(r, &s)) {
            CADRE_TRY(save_checkpoint(r));
            mark = cadre_now_ns();
        }
    }
    return CADRE_OK;
}

static cadre_status write_text(
    const char *folder, const char *name, const char *text)
{
    char *path = cadre_path_join(folder, name);
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_new_file file;
    cadre_status status = cadre_new_file_open(path, &file);
    if (status == CADRE_OK) {
        // What fails here is seen again, and reported, by commit.
        (void)fprintf(file.stream, "%s\n", text);
        status = cadre_new_file_commit(&file);
    }
    cadre_free(path);
    return status;
}

// The summary comes last: its presence says that the run is whole.
static cadre_status write_files(const run *r, const char *summary)
{
    char *path = cadre_path_join(r->config->out, "model.safetensors");
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = cadre_model_save(r->task.model, path);
    cadre_free(path);
    return status != CADRE_OK
               ? status
               : write_text(r->config->out, "summary.json", summary);
}

// A run is none the worse for a report that could not be written, and no rank
// waits for it.
static void write_report(const run *r)
{
    if (r->records.metrics != NULL && cadre_report(r->config) != CADRE_OK) {
        cadre_log(CADRE_LOG_WARN, "train", "no report: %s", cadre_error_text());
    }
}

static cadre_status finish(run *r, cadre_train_summary *out)
{
    bool replicas_equal;
    CADRE_TRY(cadre_engine_replicas_equal(r->engine, &replicas_equal));
    const cadre_outcome outcome = {
        .config = r->config,
        .task = &r->task,
        .engine = r->engine,
        .world = r->world,
        .tally = &r->tally,
        .activation_bytes = cadre_crew_activation_bytes(r->crew),
        .wall_ns = cadre_now_ns() - r->began_ns,
        .stopped_by = r->stopped_by,
        .identity_since = r->resume.note.identity_since,
        .eval = r->evaluated ? &r->eval : NULL,
        .replicas_equal = replicas_equal,
    };
    cadre_records_finish(&r->records);
    char *json;
    CADRE_TRY(cadre_summary_make(&outcome, &json));
    // All ranks leave together, when the files are there.
    cadre_status status = cadre_share_verdict(
        r->world, r->records.metrics != NULL ? write_files(r, json) : CADRE_OK);
    if (status != CADRE_OK) {
        cadre_free(json);
        return status;
    }
    write_report(r);
    *out = (cadre_train_summary){
        .steps = r->tally.n_steps,
        .stopped_by = r->stopped_by,
        .loss = cadre_tally_loss(&r->tally),
        .eval_loss = r->evaluated ? r->eval.loss : (double)NAN,
        .eval_accuracy = r->evaluated ? r->eval.accuracy : (double)NAN,
        .eval_bits_per_byte =
            r->evaluated ? r->eval.bits_per_byte : (double)NAN,
        .samples_per_second = cadre_tally_samples_per_second(&r->tally),
        .step_ms_median = cadre_tally_median_ms(&r->tally),
        .params_hash = cadre_model_hash(r->task.model),
        .replicas_equal = replicas_equal,
        .json = json,
    };
    return CADRE_OK;
}

cadre_status cadre_train(cadre_group *world, const cadre_train_config *config,
    const cadre_train_hooks *hooks, cadre_train_summary *out)
{
    static const cadre_train_hooks nobody;
    if (world == NULL || config == NULL || out == NULL) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "cadre_train needs a group, a configuration and out");
    }
    run r = {
        .world = world,
        .settled = *config,
        .hooks = hooks == NULL ? &nobody : hooks,
        .began_ns = cadre_now_ns(),
    };
    r.config = &r.settled;
    cadre_thread_plain_floats();
    cadre_status status = set_up(&r);
    if (status == CADRE_OK) {
        status = run_steps(&r);
    }
    if (status == CADRE_OK) {
        status = finish(&r, out);
    }
    tear_down(&r);
    return status;
}

void cadre_train_summary_release(cadre_train_summary *summary)
{
    if (summary != NULL) {
        cadre_free(summary->json);
        *summary = (cadre_train_summary){0};
    }
}
