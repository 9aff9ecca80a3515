// SPDX-License-Identifier: Apache-2.0

#include "train/records.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"
#include "train/config.h"
#include <math.h>
#include <unistd.h>

static cadre_status remove_file(const char *folder, const char *name)
{
    char *path = cadre_path_join(folder, name);
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    (void)unlink(path);
    cadre_free(path);
    return CADRE_OK;
}

// A run that goes on is no longer a whole one.  What a run that was cut off has
// left would pass for that of a new one.
static cadre_status open_files(
    cadre_records *records, const cadre_train_config *config)
{
    const char *folder = config->out;
    if (config->resume[0] != '\0') {
        CADRE_TRY(remove_file(folder, "summary.json"));
        CADRE_TRY(cadre_metrics_resume(folder, config->resume_step,
            &records->lacks_eval, &records->metrics));
    } else {
        CADRE_TRY(cadre_metrics_open(folder, &records->metrics));
        CADRE_TRY(remove_file(folder, "trace.json"));
        cadre_tensorboard_clear(folder);
    }
    return cadre_tensorboard_open(folder, &records->tensorboard);
}

cadre_status cadre_records_open(cadre_records *records, cadre_group *world,
    const cadre_train_config *config, const cadre_engine *engine,
    const cadre_model *model)
{
    bool has_folder = config->out[0] != '\0';
    records->model = model;
    records->tokens = config->model_context;
    records->sample_weight = cadre_config_sample_weight(config);
    records->ranks.rss_rank = -1;
    CADRE_TRY(cadre_watch_create(world, &records->watch));
    if (has_folder && cadre_rank(world) == 0) {
        CADRE_TRY(open_files(records, config));
    }
    if (config->trace_count == 0) {
        return CADRE_OK;
    }
    if (!has_folder) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "a trace needs a folder to be written into, and out is empty");
    }
    const cadre_trace_options trace = {
        .world = world,
        .engine = engine,
        .model = model,
        .folder = config->out,
        .first_step = config->trace_first,
        .n_steps = config->trace_count,
    };
    return cadre_trace_create(&trace, &records->trace);
}

void cadre_records_close(cadre_records *records)
{
    cadre_tensorboard_close(records->tensorboard);
    cadre_metrics_close(records->metrics);
    cadre_trace_destroy(records->trace);
    cadre_watch_destroy(records->watch);
    *records = (cadre_records){0};
}

cadre_status cadre_records_take(
    cadre_records *records, const cadre_records_step *step)
{
    cadre_watch_add(records->watch, step->report, step->ns);
    if (step->logged) {
        CADRE_TRY(cadre_watch_gather(records->watch, &records->ranks));
    }
    return records->trace == NULL
               ? CADRE_OK
               : cadre_trace_add(records->trace, step->report->step);
}

// A run is none the worse for what only shows it.
static void give_up(const char *what)
{
    cadre_log(CADRE_LOG_WARN, "train", "%s: %s", what, cadre_error_text());
}

static void write_scalars(cadre_records *records, int64_t step,
    const cadre_scalar *scalars, int n_scalars)
{
    if (records->tensorboard != NULL &&
        cadre_tensorboard_write(
            records->tensorboard, step, scalars, n_scalars) != CADRE_OK) {
        give_up("no more for TensorBoard");
        cadre_tensorboard_close(records->tensorboard);
        records->tensorboard = NULL;
    }
}

// Of an evaluation there are two.
static void set_eval(const cadre_records *records,
    const cadre_eval_result *eval, cadre_scalar scalars[2])
{
    bool is_text = records->tokens > 0;
    scalars[0] = (cadre_scalar){"eval/loss", eval->loss};
    scalars[1] = is_text
                     ? (cadre_scalar){"eval/bits_per_byte", eval->bits_per_byte}
                     : (cadre_scalar){"eval/accuracy", eval->accuracy};
}

static void write_line(cadre_records *records, const cadre_metrics_line *line)
{
    enum { OF_STEP = 6, OF_EVAL = 2 };
    cadre_scalar scalars[OF_STEP + OF_EVAL] = {
        {"loss", line->report->loss},
        {"lr", line->report->lr},
        {"grad_norm", line->report->grad_norm},
        {"samples_per_second", line->samples_per_second},
        {"exposed_ms", line->report->exposed_ms},
        {"hidden_ms", line->report->hidden_ms},
    };
    if (line->eval != NULL) {
        set_eval(records, line->eval, scalars + OF_STEP);
    }
    write_scalars(records, line->report->step, scalars,
        line->eval != NULL ? OF_STEP + OF_EVAL : OF_STEP);
}

cadre_status cadre_records_write(cadre_records *records,
    const cadre_records_step *step, const cadre_records_extra *extra)
{
    if (records->metrics == NULL) {
        return CADRE_OK;
    }
    int64_t tokens = records->tokens;
    double samples_per_second = (double)step->report->weight * 1e9 /
                                (double)step->ns /
                                (double)records->sample_weight;
    uint64_t hash = extra->hashed ? cadre_model_hash(records->model) : 0;
    const cadre_metrics_line line = {
        .report = step->report,
        .step_ms = (double)step->ns * 1e-6,
        .samples_per_second = samples_per_second,
        .tokens_per_second =
            tokens > 0 ? samples_per_second * (double)tokens : (double)NAN,
        .ranks = &records->ranks,
        .eval = extra->eval,
        .params_hash = extra->hashed ? &hash : NULL,
        .new_identity = extra->new_identity,
    };
    CADRE_TRY(cadre_metrics_write(records->metrics, &line));
    write_line(records, &line);
    return CADRE_OK;
}

cadre_status cadre_records_amend(
    cadre_records *records, int64_t step, const cadre_eval_result *eval)
{
    if (records->metrics == NULL) {
        return CADRE_OK;
    }
    CADRE_TRY(cadre_metrics_amend(records->metrics, step, eval));
    cadre_scalar scalars[2];
    set_eval(records, eval, scalars);
    write_scalars(records, step, scalars, 2);
    return CADRE_OK;
}

void cadre_records_finish(cadre_records *records)
{
    if (records->trace != NULL &&
        cadre_trace_finish(records->trace) != CADRE_OK) {
        give_up("no trace");
    }
}
