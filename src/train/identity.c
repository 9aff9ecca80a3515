// SPDX-License-Identifier: Apache-2.0

#include "train/identity.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/hash.h"
#include "base/number.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// Goes up whenever our own arithmetic gives other bits than before.
enum { NUMERICS_VERSION = 1 };

enum { TEXT_BYTES = 32768 };

// A text that grows in a fixed buffer; all of ours fit.
typedef struct text {
    char *data;
    size_t used;
} text;

static void append(text *t, const char *format, ...) CADRE_PRINTF(2, 3);

static void append(text *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n =
        vsnprintf(t->data + t->used, TEXT_BYTES - t->used, format, arguments);
    va_end(arguments);
    size_t room = TEXT_BYTES - 1 - t->used;
    t->used += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room;
}

enum { MAX_KEYS = 24 };

// The keys that may change bits, but for the leaves, as `cadre train --set` takes them.
typedef struct key_list {
    int n;
    struct {
        const char *name;
        char value[CADRE_NUMBER_BYTES];
    } keys[MAX_KEYS];
} key_list;

static char *add(key_list *list, const char *name)
{
    list->keys[list->n].name = name;
    return list->keys[list->n++].value;
}

static void add_text(key_list *list, const char *name, const char *value)
{
    snprintf(add(list, name), CADRE_NUMBER_BYTES, "%s", value);
}

static void add_int(key_list *list, const char *name, int64_t value)
{
    snprintf(add(list, name), CADRE_NUMBER_BYTES, "%" PRId64, value);
}

static void add_real(key_list *list, const char *name, double value)
{
    cadre_format_double(value, add(list, name));
}

static void list_optimizer(key_list *list, const cadre_train_config *c)
{
    bool adamw = c->optimizer == CADRE_ADAMW;
    add_text(list, "optim.name", adamw ? "adamw" : "sgd");
    add_real(list, "optim.lr", c->lr);
    add_real(list, "optim.weight_decay", c->weight_decay);
    if (adamw) {
        add_real(list, "optim.beta1", c->beta1);
        add_real(list, "optim.beta2", c->beta2);
        add_real(list, "optim.eps", c->eps);
    } else {
        add_real(list, "optim.momentum", c->momentum);
    }
    add_real(list, "optim.clip", c->clip);
    add_text(list, "optim.schedule", "constant");
    add_int(list, "optim.warmup_steps", c->warmup_steps);
}

static key_list list_keys(const cadre_train_config *c, int n_leaves)
{
    key_list list = {0};
    snprintf(add(&list, "train.seed"), CADRE_NUMBER_BYTES, "%" PRIu64, c->seed);
    add_int(&list, "train.global_batch", c->global_batch);
    // A pass that holds the largest leaf is the whole leaf.
    int64_t leaf = (c->global_batch + n_leaves - 1) / n_leaves;
    add_int(&list, "train.micro_batch",
        c->micro_batch >= leaf ? 0 : c->micro_batch);
    add_int(&list, "train.threads_per_leaf", c->threads_per_leaf);
    add_text(&list, "train.precision", "f32");
    add_text(&list, "data.drop_last", c->data_drop_last ? "true" : "false");
    list_optimizer(&list, c);
    return list;
}

static void describe_model(text *t, const cadre_task *task)
{
    for (int i = 0; i < task->recipe->n_layers; i++) {
        const cadre_layer *layer = &task->recipe->layers[i];
        append(t, "layer %s %s %" PRId64 "\n", layer->kind,
            layer->name == NULL ? "-" : layer->name, layer->width);
    }
    append(t, "input %" PRId64 "\n", task->train->sample_elements);
    append(t, "classes %" PRId64 "\n", task->train->n_classes);
}

uint64_t cadre_identity_hash(
    const cadre_train_config *config, const cadre_task *task, int n_leaves)
{
    char buffer[TEXT_BYTES];
    text t = {.data = buffer};
    append(&t, "numerics %d\n", NUMERICS_VERSION);
    append(&t, "compute %s %s\n", cadre_compute_version(), cadre_compute_isa());
    append(&t, "data %s %016" PRIx64 " %" PRId64 "\n", task->recipe->dataset,
        task->train->content_hash, task->train->n_samples);
    describe_model(&t, task);
    append(&t, "leaves %d\n", n_leaves);
    key_list list = list_keys(config, n_leaves);
    for (int i = 0; i < list.n; i++) {
        append(&t, "%s %s\n", list.keys[i].name, list.keys[i].value);
    }
    return cadre_hash(buffer, t.used, 0);
}

enum { CLAIM_WORDS = sizeof(cadre_claim) / sizeof(int64_t) };

static_assert(
    sizeof(cadre_claim) % sizeof(int64_t) == 0, "gathered as whole words");

static cadre_status compare_with_first(
    const cadre_claim *first, const cadre_claim *other, int rank)
{
    if (other->identity != first->identity) {
        return cadre_fail(CADRE_ERR_DESYNC,
            "rank %d would compute other bits than rank 0: their data, "
            "configurations, instruction sets or oneDNN differ (identity "
            "%016" PRIx64 " and %016" PRIx64 ")",
            rank, other->identity, first->identity);
    }
    if (other->n_steps != first->n_steps) {
        return cadre_fail(CADRE_ERR_DESYNC,
            "rank %d would make %" PRId64 " steps and rank 0 %" PRId64, rank,
            other->n_steps, first->n_steps);
    }
    if (other->rhythm != first->rhythm) {
        return cadre_fail(CADRE_ERR_DESYNC,
            "rank %d would log, evaluate or trace other steps than rank 0: "
            "give all ranks the same configuration",
            rank);
    }
    if (other->params_hash != first->params_hash) {
        return cadre_fail(CADRE_ERR_DESYNC,
            "rank %d would evaluate other parameters than rank 0 (params_hash "
            "%016" PRIx64 " and %016" PRIx64 ")",
            rank, other->params_hash, first->params_hash);
    }
    if (other->n_test != first->n_test ||
        other->test_hash != first->test_hash) {
        return cadre_fail(CADRE_ERR_DESYNC,
            "rank %d has another test split than rank 0: %" PRId64
            " samples with hash %016" PRIx64 ", and %" PRId64
            " with %016" PRIx64 "; give all ranks the same data",
            rank, other->n_test, other->test_hash, first->n_test,
            first->test_hash);
    }
    return CADRE_OK;
}

cadre_status cadre_claim_compare(cadre_group *world, const cadre_claim *mine)
{
    int world_size = cadre_world_size(world);
    cadre_claim *all = cadre_alloc_array((size_t)world_size, sizeof(*all));
    size_t *counts = cadre_alloc_array((size_t)world_size, sizeof(*counts));
    cadre_status status = CADRE_ERR_NO_MEMORY;
    if (all != NULL && counts != NULL) {
        for (int r = 0; r < world_size; r++) {
            counts[r] = CLAIM_WORDS;
        }
        status = cadre_allgather(world, mine, all, counts, CADRE_I64, NULL);
    }
    for (int r = 1; r < world_size && status == CADRE_OK; r++) {
        status = compare_with_first(&all[0], &all[r], r);
    }
    cadre_free(all);
    cadre_free(counts);
    return status;
}

// Between single quotes a shell takes every character as it is, but that one.
static void append_quoted(text *t, const char *value)
{
    append(t, "'");
    for (const char *at = value; *at != '\0'; at++) {
        if (*at == '\'') {
            append(t, "'\\''");
        } else {
            append(t, "%c", *at);
        }
    }
    append(t, "'");
}

// NULL if the list lacks the key.
static const char *value_of(const key_list *list, const char *name)
{
    for (int i = 0; i < list->n; i++) {
        if (strcmp(list->keys[i].name, name) == 0) {
            return list->keys[i].value;
        }
    }
    return NULL;
}

char *cadre_identity_command(
    const cadre_train_config *config, int n_leaves, int64_t n_steps)
{
    cadre_train_config recipe;
    text t = {.data = cadre_alloc(TEXT_BYTES)};
    if (t.data == NULL ||
        cadre_recipe_config(config->recipe, &recipe) != CADRE_OK) {
        cadre_free(t.data);
        return NULL;
    }
    append(&t,
        "cadre train %s -n 1 --steps %" PRId64 " --set parallel.leaves=%d",
        config->recipe, n_steps, n_leaves);
    key_list wanted = list_keys(config, n_leaves);
    key_list given = list_keys(&recipe, n_leaves);
    for (int i = 0; i < wanted.n; i++) {
        const char *name = wanted.keys[i].name;
        const char *value = wanted.keys[i].value;
        const char *before = value_of(&given, name);
        if (before == NULL || strcmp(value, before) != 0) {
            append(&t, " --set %s=%s", name, value);
        }
    }
    if (config->data_path[0] != '\0') {
        append(&t, " --set data.path=");
        append_quoted(&t, config->data_path);
    }
    return t.data;
}
