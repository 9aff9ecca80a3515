// SPDX-License-Identifier: Apache-2.0

#include "train/task.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "data/tokens.h"
#include "train/config.h"
#include <assert.h>

static_assert((int)CADRE_DATA_NO_LABEL == (int)CADRE_NO_LABEL,
    "labels of data are those of nets");

// A path that may be left out.
static const char *given(const char *path)
{
    return path[0] != '\0' ? path : NULL;
}

cadre_status cadre_task_data(const cadre_recipe *recipe,
    const cadre_train_config *config, cadre_split split, cadre_dataset **out)
{
    const cadre_dataset_options options = {
        .path = given(config->data_path),
        .split = split,
        .context = config->model_context,
        .side = config->data_side,
        .augment = config->data_augment,
        .skip_damaged = config->data_damaged == CADRE_DAMAGED_SKIP,
        .seed = config->seed,
        .tokenizer = given(config->data_tokenizer),
        .cache = given(config->data_cache),
        // What is read once in a while, in order, is not worth the memory.
        .in_memory = config->data_in_memory && split == CADRE_SPLIT_TRAIN,
    };
    return cadre_dataset_open(recipe->dataset, &options, out);
}

static cadre_status open_data(
    const cadre_train_config *config, bool training, cadre_task *task)
{
    if (training) {
        CADRE_TRY(cadre_task_data(
            task->recipe, config, CADRE_SPLIT_TRAIN, &task->train));
    }
    return cadre_task_data(task->recipe, config, CADRE_SPLIT_TEST, &task->test);
}

static cadre_status lay_out(cadre_group *world,
    const cadre_train_config *config, cadre_shape sample, int64_t n_classes,
    cadre_task *task)
{
    CADRE_TRY(
        cadre_recipe_net(task->recipe, config, sample, n_classes, &task->net));
    if (config->recompute) {
        cadre_net_recompute(task->net);
    }
    CADRE_TRY(cadre_model_create(world, &task->model));

    // Added in the net's order, so both number them alike.
    int n_params = cadre_net_param_count(task->net);
    for (int i = 0; i < n_params; i++) {
        const cadre_net_param *p = cadre_net_param_at(task->net, i);
        const cadre_param_options options = {
            .no_decay = config->decay == CADRE_DECAY_WEIGHTS && p->n_dims == 1,
            .buffer = p->buffer,
        };
        int index;
        CADRE_TRY(cadre_model_add(
            task->model, p->name, p->shape, p->n_dims, &options, &index));
    }
    CADRE_TRY(cadre_model_seal(task->model));

    task->params = cadre_alloc_array((size_t)n_params, sizeof(task->params[0]));
    if (task->params == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    for (int i = 0; i < n_params; i++) {
        task->params[i] = cadre_model_param(task->model, i);
    }
    return CADRE_OK;
}

// Who asked for bf16 is told if it is not to be had.
static void choose_precision(
    const cadre_group *world, const cadre_train_config *config, cadre_net *net)
{
    if (cadre_config_uses_bf16(config)) {
        cadre_net_use_bf16(net);
    } else if (config->precision == CADRE_PRECISION_BF16 &&
               cadre_rank(world) == 0) {
        cadre_log(CADRE_LOG_WARN, "train",
            "train.precision is bf16, but this processor has no instructions "
            "for products of bf16 (AVX-512 BF16): f32 is used");
    }
}

cadre_shape cadre_task_sample(const cadre_dataset *data)
{
    return (cadre_shape){
        data->channels, data->height, data->width, 1, data->tokens};
}

static cadre_status open_all(cadre_group *world,
    const cadre_train_config *config, bool training, cadre_task *task)
{
    CADRE_TRY(cadre_recipe_find(config->recipe, &task->recipe));
    CADRE_TRY(open_data(config, training, task));
    const cadre_dataset *data = task->test;
    CADRE_TRY(
        lay_out(world, config, cadre_task_sample(data), data->n_classes, task));
    choose_precision(world, config, task->net);
    int n_params = training ? cadre_net_param_count(task->net) : 0;
    for (int i = 0; i < n_params; i++) {
        cadre_net_initialize(
            task->net, config->seed, i, cadre_model_param(task->model, i));
    }
    return CADRE_OK;
}

cadre_status cadre_task_open(cadre_group *world,
    const cadre_train_config *config, bool training, cadre_task *out)
{
    cadre_task task = {0};
    cadre_status status = open_all(world, config, training, &task);
    if (status != CADRE_OK) {
        cadre_task_close(&task);
        return status;
    }
    *out = task;
    return CADRE_OK;
}

int cadre_task_numbers(const cadre_task *task)
{
    enum { BYTES = 256 };
    return task->tokenizer == NULL
               ? BYTES
               : cadre_tokenizer_vocabulary(task->tokenizer);
}

// What makes text of the tokens that were learned.
static cadre_status open_tokenizer(
    const cadre_train_config *config, cadre_task *task)
{
    if (config->data_tokenizer[0] != '\0') {
        return cadre_tokenizer_open(config->data_tokenizer, &task->tokenizer);
    }
    return cadre_tokens_are_in(config->data_path)
               ? cadre_fail(CADRE_ERR_INVALID_ARG,
                     "the run learned '%s', a file of tokens: data.tokenizer "
                     "in its config.yaml has to name the folder of their "
                     "tokenizer",
                     config->data_path)
               : CADRE_OK;
}

static cadre_status open_writer(
    cadre_group *world, const cadre_train_config *config, cadre_task *task)
{
    CADRE_TRY(cadre_recipe_find(config->recipe, &task->recipe));
    if (task->recipe->sizes != CADRE_SIZES_TRANSFORMER) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "recipe '%s' learns no text, so it has none to write",
            config->recipe);
    }
    if (task->recipe->family == CADRE_BERT) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "recipe '%s' learns to fill gaps in a text, not to go on with one",
            config->recipe);
    }
    CADRE_TRY(cadre_recipe_check_size(task->recipe, config));
    const cadre_shape text = {1, 1, 1, 1, config->model_context};
    CADRE_TRY(open_tokenizer(config, task));
    return lay_out(world, config, text, cadre_task_numbers(task), task);
}

cadre_status cadre_task_open_writer(
    cadre_group *world, const cadre_train_config *config, cadre_task *out)
{
    cadre_task task = {0};
    cadre_status status = open_writer(world, config, &task);
    if (status != CADRE_OK) {
        cadre_task_close(&task);
        return status;
    }
    *out = task;
    return CADRE_OK;
}

void cadre_task_close(cadre_task *task)
{
    cadre_tokenizer_close(task->tokenizer);
    cadre_free(task->params);
    cadre_model_destroy(task->model);
    cadre_net_destroy(task->net);
    cadre_dataset_close(task->test);
    cadre_dataset_close(task->train);
    *task = (cadre_task){0};
}
