// SPDX-License-Identifier: Apache-2.0

#include "train/setup.h"

#include "base/fail.h"
#include "base/log.h"
#include "train/config.h"
#include <inttypes.h>
#include <string.h>

static cadre_status check_order(
    const cadre_group *world, const cadre_train_config *config)
{
    const char *order = cadre_order_name(world);
    return strcmp(order, config->order) == 0
               ? CADRE_OK
               : cadre_fail(CADRE_ERR_INVALID_ARG,
                     "parallel.order is '%s', but the group reduces in order "
                     "'%s': make it with the same",
                     config->order, order);
}

cadre_status cadre_setup_task(cadre_group *world, cadre_train_config *config,
    cadre_resume_point *point, cadre_task *task, int64_t *n_steps)
{
    if (config->resume[0] != '\0') {
        CADRE_TRY(cadre_resume_open(world, config, point));
    }
    CADRE_TRY(cadre_config_check(config, cadre_world_size(world)));
    CADRE_TRY(check_order(world, config));
    CADRE_TRY(cadre_task_open(world, config, true, task));
    CADRE_TRY(cadre_config_steps(config, task->train, n_steps));
    bool falls =
        config->schedule == CADRE_COSINE || config->schedule == CADRE_LINEAR;
    if (falls && config->total_steps == 0) {
        config->total_steps = *n_steps;
    }
    return CADRE_OK;
}

// A hyper-parameter of 0 means 0 here, and the default there.
static double hyper(double value)
{
    return value == 0 ? CADRE_ZERO : value;
}

cadre_engine_options cadre_setup_options(const cadre_train_config *config)
{
    const cadre_train_config *c = config;
    double bucket_bytes = c->bucket_mb * 1024 * 1024;
    return (cadre_engine_options){
        .mode = c->mode,
        .leaves = c->leaves,
        .threads = c->threads,
        .fold = c->fold,
        .bucket_bytes = bucket_bytes < 1 ? 1 : (size_t)bucket_bytes,
        .overlap = c->overlap,
        .progress_thread = c->progress_thread,
        .optimizer = c->optimizer,
        .lr = hyper(c->lr),
        .weight_decay = hyper(c->weight_decay),
        .momentum = c->momentum,
        .beta1 = hyper(c->beta1),
        .beta2 = hyper(c->beta2),
        .eps = hyper(c->eps),
        .clip = c->clip,
        .schedule = c->schedule,
        .warmup_steps = c->warmup_steps,
        .total_steps = c->total_steps,
        .min_lr_factor = c->min_lr_factor,
        .step_every = c->step_every,
        .step_factor = hyper(c->step_factor),
        .record = c->trace_count > 0,
    };
}

cadre_status cadre_setup_engine(
    const cadre_train_config *config, cadre_model *model, cadre_engine **out)
{
    const cadre_engine_options options = cadre_setup_options(config);
    return cadre_engine_create(model, &options, out);
}

cadre_dealing cadre_setup_dealing(
    const cadre_group *world, const cadre_engine *engine)
{
    return (cadre_dealing){
        .n_leaves = cadre_leaf_count(engine),
        .block = cadre_engine_fold(engine),
        .world_size = cadre_world_size(world),
    };
}

void cadre_setup_log(const cadre_train_config *config, int64_t n_steps,
    const cadre_dealing *dealing)
{
    const cadre_dealing *d = dealing;
    int n_rounds = cadre_dealing_rounds(d);
    int slots = cadre_dealing_rank_leaves(d, 0) * d->world_size;
    cadre_log(CADRE_LOG_INFO, "train",
        "%" PRId64 " steps of %" PRId64 " samples on %d ranks x %d threads",
        n_steps, config->global_batch, d->world_size, config->threads);
    cadre_log(CADRE_LOG_INFO, "train",
        "%d leaves in blocks of %d: %d %s per step, %d%% of the ranks' time "
        "without one",
        d->n_leaves, d->block, n_rounds,
        n_rounds == 1 ? "reduction" : "reductions",
        (slots - d->n_leaves) * 100 / slots);
}

cadre_status cadre_setup_loader(const cadre_train_config *config, int rank,
    int64_t n_steps, const cadre_dealing *dealing, const cadre_dataset *data,
    cadre_loader **out)
{
    const cadre_loader_options options = {
        .dataset = data,
        .seed = config->seed,
        .global_batch = config->global_batch,
        .drop_last = config->data_drop_last,
        .first_step = config->resume_step,
        .n_steps = n_steps - config->resume_step,
        .n_leaves = dealing->n_leaves,
        .block = dealing->block,
        .rank = rank,
        .world_size = dealing->world_size,
        .n_threads = data->decodes ? config->threads : 1,
    };
    return cadre_loader_create(&options, out);
}
