// SPDX-License-Identifier: Apache-2.0

#include "train/config.h"

#include "base/fail.h"
#include "base/hash.h"
#include "data/deal.h"
#include "data/masked.h"
#include "nn/net.h"
#include "parallel/settings.h"
#include "train/resume.h"
#include "train/setup.h"
#include "train/task.h"
#include <inttypes.h>
#include <string.h>

// A trace of more is no longer looked at, and fills disks.
enum { MOST_TRACED = 1000, MOST_BUCKET_MB = 65536 };

static cadre_status check_at_least(
    const char *key, int64_t value, int64_t lowest)
{
    return value >= lowest
               ? CADRE_OK
               : cadre_fail(CADRE_ERR_INVALID_ARG,
                     "%s is %" PRId64 ", at least %" PRId64 " is needed", key,
                     value, lowest);
}

static cadre_status check_trace(const cadre_train_config *config)
{
    if (config->trace_count == 0) {
        return CADRE_OK;
    }
    CADRE_TRY(check_at_least("trace's first step", config->trace_first, 1));
    CADRE_TRY(check_at_least("trace's steps", config->trace_count, 0));
    if (config->trace_count > MOST_TRACED) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "%" PRId64 " steps are to be traced, at most %d can be",
            config->trace_count, MOST_TRACED);
    }
    return CADRE_OK;
}

static cadre_status check_model(const cadre_train_config *c)
{
    CADRE_TRY(check_at_least("model.layers", c->model_layers, 0));
    CADRE_TRY(check_at_least("model.width", c->model_width, 0));
    CADRE_TRY(check_at_least("model.heads", c->model_heads, 0));
    CADRE_TRY(check_at_least("model.kv_heads", c->model_kv_heads, 0));
    CADRE_TRY(check_at_least("model.context", c->model_context, 0));
    return check_at_least("data.side", c->data_side, 0);
}

// Of the enums that the engine does not know.
static cadre_status check_choices(const cadre_train_config *c)
{
    bool known =
        c->optimizer != CADRE_NONE &&
        (c->decay == CADRE_DECAY_ALL || c->decay == CADRE_DECAY_WEIGHTS) &&
        (c->data_damaged == CADRE_DAMAGED_REFUSE ||
            c->data_damaged == CADRE_DAMAGED_SKIP);
    return known ? CADRE_OK
                 : cadre_fail(CADRE_ERR_INVALID_ARG,
                       "optim.name is %d, optim.decay %d and data.damaged %d: "
                       "one of them is none that a run can have",
                       (int)c->optimizer, (int)c->decay, (int)c->data_damaged);
}

// What the engine would refuse is refused before anything starts.  There -1 is
// a way to say 0, here it is none.
static cadre_status check_engine(const cadre_train_config *c)
{
    const struct {
        const char *key;
        double value;
    } numbers[] = {
        {"optim.lr", c->lr},
        {"optim.weight_decay", c->weight_decay},
        {"optim.momentum", c->momentum},
        {"optim.beta1", c->beta1},
        {"optim.beta2", c->beta2},
        {"optim.eps", c->eps},
        {"optim.clip", c->clip},
        {"optim.min_lr_factor", c->min_lr_factor},
        {"optim.step_factor", c->step_factor},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (!(numbers[i].value >= 0)) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "%s is %g, at least 0 is needed", numbers[i].key,
                numbers[i].value);
        }
    }
    cadre_engine_options options = cadre_setup_options(c);
    // 0 stands for the steps of the run, which the data decides.
    options.total_steps = c->total_steps > 0 ? c->total_steps : 1;
    return cadre_settings_fill_in(&options);
}

cadre_status cadre_config_check(
    const cadre_train_config *config, int world_size)
{
    CADRE_TRY(check_model(config));
    CADRE_TRY(check_choices(config));
    CADRE_TRY(check_at_least("threads", config->threads, 1));
    CADRE_TRY(check_at_least("steps", config->steps, 0));
    CADRE_TRY(check_at_least("epochs", config->epochs, 0));
    CADRE_TRY(check_at_least("train.global_batch", config->global_batch, 1));
    CADRE_TRY(check_at_least("train.micro_batch", config->micro_batch, 0));
    CADRE_TRY(check_at_least("train.eval_every", config->eval_every, 0));
    CADRE_TRY(check_at_least("train.log_every", config->log_every, 1));
    CADRE_TRY(check_at_least("parallel.leaves", config->leaves, 0));
    CADRE_TRY(check_at_least("optim.total_steps", config->total_steps, 0));
    CADRE_TRY(check_at_least("optim.step_every", config->step_every,
        config->schedule == CADRE_STEP ? 1 : 0));
    CADRE_TRY(check_at_least("checkpoint.every", config->checkpoint_every, 0));
    CADRE_TRY(check_at_least("checkpoint.keep", config->checkpoint_keep, 0));
    if (config->steps == 0 && config->epochs == 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "neither steps nor epochs are given: there is nothing to do");
    }
    if (config->threads_per_leaf != 1) {
        return cadre_fail(CADRE_ERR_UNSUPPORTED,
            "train.threads_per_leaf is %d: anything but 1 is not built yet",
            config->threads_per_leaf);
    }
    if (strcmp(config->order, "canonical") != 0 &&
        strcmp(config->order, "ring") != 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "parallel.order is '%s'; it can be canonical or ring",
            config->order);
    }
    if (!(config->label_smoothing >= 0 && config->label_smoothing < 1)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "train.label_smoothing is %g; 0 to below 1 is possible",
            config->label_smoothing);
    }
    if (!(config->bucket_mb > 0 && config->bucket_mb <= MOST_BUCKET_MB)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "parallel.bucket_mb is %g, more than 0 and at most %d is needed",
            config->bucket_mb, MOST_BUCKET_MB);
    }
    CADRE_TRY(check_engine(config));
    CADRE_TRY(check_trace(config));
    if (config->leaves > 0 && world_size > config->leaves) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "%d ranks but %d leaves: every rank needs a leaf, so start fewer "
            "ranks or set parallel.leaves to %d or more",
            world_size, config->leaves, world_size);
    }
    return CADRE_OK;
}

bool cadre_config_uses_bf16(const cadre_train_config *config)
{
    return config->precision == CADRE_PRECISION_BF16 &&
           cadre_compute_has_bf16();
}

const char *cadre_train_precision(const cadre_train_config *config)
{
    return cadre_config_uses_bf16(config) ? "bf16" : "f32";
}

cadre_status cadre_config_steps(const cadre_train_config *config,
    const cadre_dataset *train, int64_t *n_steps)
{
    if (config->global_batch > train->n_samples) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "train.global_batch is %" PRId64 ", but the data has %" PRId64
            " samples",
            config->global_batch, train->n_samples);
    }
    int64_t per_epoch = cadre_deal_steps(
        train->n_samples, config->global_batch, config->data_drop_last);
    if (config->steps == 0 && config->epochs > INT64_MAX / per_epoch) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "epochs is %" PRId64 ": more steps than can be counted",
            config->epochs);
    }
    *n_steps = config->steps > 0 ? config->steps : config->epochs * per_epoch;
    // A run that was cut off after its last step lacks its end.
    int64_t least = config->resume_step + config->resume_ended;
    if (config->resume[0] != '\0' && *n_steps < least) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "the checkpoint in '%s' has made %" PRId64 " steps, of %" PRId64
            ": nothing is left to do; give more steps or epochs",
            config->resume, config->resume_step, *n_steps);
    }
    if (config->trace_count > 0 && config->trace_first > *n_steps) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "the trace is to begin at step %" PRId64
            ", but the run has %" PRId64 " steps",
            config->trace_first, *n_steps);
    }
    if (config->trace_count > 0 && config->trace_first <= config->resume_step &&
        config->trace_count <= config->resume_step - config->trace_first + 1) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "the trace is to end at step %" PRId64
            ", but the checkpoint in '%s' has made %" PRId64 " steps",
            config->trace_first + config->trace_count - 1, config->resume,
            config->resume_step);
    }
    return CADRE_OK;
}

int64_t cadre_config_sample_weight(const cadre_train_config *config)
{
    if (config->model_context == 0) {
        return 1;
    }
    const cadre_recipe *recipe;
    bool masked = cadre_recipe_find(config->recipe, &recipe) == CADRE_OK &&
                  recipe->family == CADRE_BERT;
    return masked ? cadre_masked_count(config->model_context)
                  : config->model_context;
}

uint64_t cadre_config_rhythm(const cadre_train_config *config)
{
    const int64_t words[] = {config->eval_every, config->log_every,
        config->trace_first, config->trace_count, config->checkpoint_every};
    return cadre_hash(words, sizeof(words), 0);
}

// Whether there is a net of that size for such samples.
static cadre_status check_net(const cadre_recipe *recipe,
    const cadre_train_config *config, const cadre_dataset *data)
{
    cadre_net *net = NULL;
    CADRE_TRY(cadre_recipe_net(
        recipe, config, cadre_task_sample(data), data->n_classes, &net));
    cadre_net_destroy(net);
    return CADRE_OK;
}

// A damaged test split is better found now than after the training.
cadre_status cadre_train_check(const cadre_train_config *config, int world_size)
{
    if (config == NULL) {
        return cadre_fail(
            CADRE_ERR_INVALID_ARG, "cadre_train_check needs a configuration");
    }
    CADRE_TRY(cadre_config_check(config, world_size));
    const cadre_recipe *recipe;
    CADRE_TRY(cadre_recipe_find(config->recipe, &recipe));
    CADRE_TRY(cadre_recipe_check_size(recipe, config));

    cadre_dataset *data;
    CADRE_TRY(cadre_task_data(recipe, config, CADRE_SPLIT_TEST, &data));
    cadre_dataset_close(data);
    CADRE_TRY(cadre_task_data(recipe, config, CADRE_SPLIT_TRAIN, &data));
    int64_t n_steps;
    cadre_status status = cadre_config_steps(config, data, &n_steps);
    if (status == CADRE_OK) {
        status = check_net(recipe, config, data);
    }
    if (status == CADRE_OK && config->resume[0] != '\0') {
        const cadre_task task = {.recipe = recipe, .train = data};
        status = cadre_resume_check(config, &task);
    }
    cadre_dataset_close(data);
    return status;
}
