// SPDX-License-Identifier: Apache-2.0

#include "train/identity.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/hash.h"
#include "base/number.h"
#include "data/picture.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// Goes up whenever our own arithmetic gives other bits than before.
enum { NUMERICS_VERSION = 4 };

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

enum { MAX_KEYS = 64 };

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

// With the numbers that the schedule looks at.
static void list_schedule(key_list *list, const cadre_train_config *c)
{
    static const char *const names[] = {"constant", "cosine", "linear", "step"};
    add_text(list, "optim.schedule", names[c->schedule]);
    add_int(list, "optim.warmup_steps", c->warmup_steps);
    if (c->schedule == CADRE_COSINE || c->schedule == CADRE_LINEAR) {
        add_int(list, "optim.total_steps", c->total_steps);
        add_real(list, "optim.min_lr_factor", c->min_lr_factor);
    } else if (c->schedule == CADRE_STEP) {
        add_int(list, "optim.step_every", c->step_every);
        add_real(list, "optim.step_factor", c->step_factor);
    }
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
    add_text(list, "optim.decay",
        c->decay == CADRE_DECAY_WEIGHTS ? "weights" : "all");
    list_schedule(list, c);
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
    add_int(&list, "model.layers", c->model_layers);
    add_int(&list, "model.width", c->model_width);
    add_int(&list, "model.heads", c->model_heads);
    add_int(&list, "model.kv_heads", c->model_kv_heads);
    add_int(&list, "model.context", c->model_context);
    add_real(&list, "train.label_smoothing", c->label_smoothing);
    add_text(&list, "train.precision", cadre_train_precision(c));
    add_text(&list, "data.drop_last", c->data_drop_last ? "true" : "false");
    if (c->data_side > 0) {
        add_int(&list, "data.side", c->data_side);
        add_text(&list, "data.augment", c->data_augment ? "true" : "false");
        add_text(&list, "data.damaged",
            c->data_damaged == CADRE_DAMAGED_SKIP ? "skip" : "refuse");
    }
    list_optimizer(&list, c);
    return list;
}

static void describe_model(text *t, const cadre_task *task)
{
    if (task->recipe->sizes == CADRE_SIZES_TRANSFORMER) {
        // The keys say the rest.
        append(t, "model %s\n", cadre_family_name(task->recipe->family));
    }
    if (task->recipe->build != NULL) {
        append(t, "model %s\n", task->recipe->config.recipe);
    }
    for (int i = 0; i < task->recipe->n_layers; i++) {
        const cadre_layer *layer = &task->recipe->layers[i];
        append(t,
            "layer %s %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %a\n",
            layer->kind, layer->name == NULL ? "-" : layer->name, layer->width,
            layer->kernel, layer->stride, layer->padding, (double)layer->rate);
    }
    append(t, "input %" PRId64 " %" PRId64 " %" PRId64 "\n",
        task->train->channels, task->train->height, task->train->width);
    append(t, "classes %" PRId64 "\n", task->train->n_classes);
}

// Round a ring sums depend on the number of ranks, and on what each brings.
static bool is_ring(const cadre_train_config *config)
{
    return strcmp(config->order, "ring") == 0;
}

// A line for each thing, that begins with its name.
static void describe(text *t, const cadre_train_config *config,
    const cadre_task *task, int n_leaves)
{
    append(t, "numerics %d\n", NUMERICS_VERSION);
    append(t, "compute %s %s\n", cadre_compute_version(), cadre_compute_isa());
    if (task != NULL) {
        append(t, "data %s %016" PRIx64 " %" PRId64 "\n", task->recipe->dataset,
            task->train->content_hash, task->train->n_samples);
        if (task->train->decodes) {
            append(t, "decoder %s\n", cadre_picture_decoder());
        }
        describe_model(t, task);
    }
    append(t, "leaves %d\n", n_leaves);
    append(t, "parallel.order %s\n", config->order);
    key_list list = list_keys(config, n_leaves);
    for (int i = 0; i < list.n; i++) {
        append(t, "%s %s\n", list.keys[i].name, list.keys[i].value);
    }
}

char *cadre_identity_text(
    const cadre_train_config *config, const cadre_task *task, int n_leaves)
{
    text t = {.data = cadre_alloc(TEXT_BYTES)};
    if (t.data != NULL) {
        describe(&t, config, task, n_leaves);
    }
    return t.data;
}

uint64_t cadre_identity_hash(const cadre_train_config *config,
    const cadre_task *task, const cadre_dealing *dealing)
{
    char buffer[TEXT_BYTES];
    text t = {.data = buffer};
    describe(&t, config, task, dealing->n_leaves);
    if (is_ring(config)) {
        append(&t, "ring of %d, blocks of %d\n", dealing->world_size,
            dealing->block);
    }
    return cadre_hash(buffer, t.used, 0);
}

// The line of a text that begins with these bytes; NULL if there is none.
static const char *find_line(
    const char *lines, const char *begin, size_t nbytes)
{
    while (strncmp(lines, begin, nbytes) != 0) {
        lines = strchr(lines, '\n');
        if (lines == NULL) {
            return NULL;
        }
        lines++;
    }
    return lines;
}

// What kind of host computes, and not what the user asked for.
static bool is_of_host(const char *line)
{
    return strncmp(line, "numerics ", 9) == 0 ||
           strncmp(line, "compute ", 8) == 0 ||
           strncmp(line, "decoder ", 8) == 0;
}

static cadre_status name_difference(
    const char *line, size_t name_bytes, const char *kept)
{
    const char *there = find_line(kept, line, name_bytes + 1);
    const char *ours = line + name_bytes + 1;
    const char *theirs = there == NULL ? "missing" : there + name_bytes + 1;
    return cadre_fail(CADRE_ERR_INVALID_ARG,
        "%.*s is %.*s, but in the run that is resumed it is %.*s: go on with "
        "the same",
        (int)name_bytes, line, (int)strcspn(ours, "\n"), ours,
        (int)strcspn(theirs, "\n"), theirs);
}

cadre_status cadre_identity_compare(
    const char *ours, const char *kept, bool any_host)
{
    while (*ours != '\0') {
        size_t nbytes = strcspn(ours, "\n") + 1;
        if (find_line(kept, ours, nbytes) == NULL &&
            !(any_host && is_of_host(ours))) {
            return name_difference(ours, strcspn(ours, " "), kept);
        }
        ours += nbytes;
    }
    return CADRE_OK;
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

static void append_path(text *t, const char *key, const char *path)
{
    if (path[0] != '\0') {
        append(t, " --set %s=", key);
        append_quoted(t, path);
    }
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

char *cadre_identity_command(const cadre_train_config *config,
    const cadre_dealing *dealing, int64_t n_steps)
{
    const int n_leaves = dealing->n_leaves;
    cadre_train_config recipe;
    text t = {.data = cadre_alloc(TEXT_BYTES)};
    if (t.data == NULL ||
        cadre_recipe_config(config->recipe, &recipe) != CADRE_OK) {
        cadre_free(t.data);
        return NULL;
    }
    append(&t,
        "cadre train %s -n %d --steps %" PRId64 " --set parallel.leaves=%d",
        config->recipe, is_ring(config) ? dealing->world_size : 1, n_steps,
        n_leaves);
    if (is_ring(config)) {
        append(&t, " --set parallel.order=ring --set parallel.fold=%d",
            dealing->block);
    }
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
    append_path(&t, "data.path", config->data_path);
    append_path(&t, "data.tokenizer", config->data_tokenizer);
    return t.data;
}
