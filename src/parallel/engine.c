// SPDX-License-Identifier: Apache-2.0

#include "parallel/engine.h"

#include "base/alloc.h"
#include "parallel/compare.h"
#include "parallel/moving.h"
#include "parallel/settings.h"
#include "parallel/verdict.h"
#include "state/placement.h"
#include <assert.h>
#include <stdio.h>

// --- options ---

// What follows from ranks and threads, V and k, is rank 0's on all ranks.
static cadre_status agree_on_leaves(cadre_group *group, cadre_engine_options *o)
{
    int n = cadre_world_size(group);
    int64_t words[2] = {(int64_t)n * o->threads, o->threads};
    CADRE_TRY(cadre_broadcast(group, words, 2, CADRE_I64, 0, NULL));
    if (words[0] < 1 || words[0] > CADRE_MAX_LEAVES || words[1] < 1 ||
        words[1] > CADRE_MAX_THREADS) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "engine: %d ranks with rank 0's threads are more than %d leaves; "
            "set leaves",
            n, CADRE_MAX_LEAVES);
    }
    o->leaves = o->leaves == 0 ? (int)words[0] : o->leaves;
    if (n <= o->leaves && o->fold == CADRE_FOLD_DEFERRED) {
        o->fold = cadre_fold_deferred(o->leaves, n);
    }
    if (o->fold == CADRE_FOLD_EAGER) {
        o->fold = cadre_fold_eager((int)words[1]);
    }
    return CADRE_OK;
}

static cadre_status compare_options(
    cadre_group *group, const cadre_engine_options *o)
{
    const cadre_setting settings[] = {
        {"mode", (double)o->mode},
        {"leaves", (double)o->leaves},
        {"fold", (double)o->fold},
        {"bucket_bytes", (double)o->bucket_bytes},
    };
    CADRE_TRY(cadre_compare_settings(
        group, settings, (int)(sizeof(settings) / sizeof(settings[0]))));
    cadre_setting update[CADRE_UPDATE_SETTINGS];
    cadre_update_settings(o, update);
    return cadre_compare_settings(group, update, CADRE_UPDATE_SETTINGS);
}

// Fills in, checks and compares.
static cadre_status resolve(cadre_group *group, cadre_engine_options *o)
{
    CADRE_TRY(cadre_settings_fill_in(o));
    CADRE_TRY(agree_on_leaves(group, o));
    CADRE_TRY(compare_options(group, o));
    if (cadre_world_size(group) > o->leaves) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "engine: %d ranks but only %d leaves; every rank needs at least "
            "one: take fewer ranks or more leaves",
            cadre_world_size(group), o->leaves);
    }
    return CADRE_OK;
}

// --- making ---

// Bytes of the words that say where nodes lie; windows begin on a line.
static size_t places_of(const cadre_buckets *buckets)
{
    size_t nbytes = (size_t)buckets->n_buckets * sizeof(uint64_t);
    return (nbytes + CADRE_CACHE_LINE - 1) / CADRE_CACHE_LINE *
           CADRE_CACHE_LINE;
}

static cadre_status make_leaves(cadre_engine *e)
{
    const cadre_layout *layout = &e->model->layout;
    cadre_dealing dealing = {
        .n_leaves = e->o.leaves,
        .block = e->o.fold,
        .world_size = cadre_world_size(e->group),
    };
    int rank = cadre_rank(e->group);
    int n_windows = cadre_leaves_windows(&dealing, rank, e->o.threads);
    size_t window_bytes = layout->n_elements * sizeof(float);
    if (window_bytes > SIZE_MAX / (size_t)n_windows) {
        return cadre_fail(CADRE_ERR_NO_MEMORY,
            "out of memory: %d gradients of %zu bytes", n_windows,
            window_bytes);
    }
    CADRE_TRY(cadre_buckets_init(
        &e->buckets, layout, dealing.world_size, e->o.bucket_bytes));
    size_t places_bytes = places_of(&e->buckets);
    e->gradients_bytes = places_bytes + window_bytes * (size_t)n_windows;
    CADRE_TRY(cadre_arena_alloc(e->group, e->gradients_bytes, &e->gradients));
    return cadre_leaves_init(&e->leaves, layout, &e->buckets, &dealing, rank,
        (float *)(void *)((char *)e->gradients + places_bytes), n_windows);
}

static cadre_status make_record(cadre_engine *e)
{
    size_t of_leaf = 2 + (size_t)e->model->layout.n_segments;
    size_t of_exchange = 3;
    size_t of_step = 2; // control, end
    size_t n_updates = (size_t)e->buckets.n_buckets;
    size_t n_exchanges = (size_t)cadre_fold_exchanges(e->fold);
    return e->o.record ? cadre_record_create((size_t)e->leaves.n_own * of_leaf +
                                                 n_exchanges * of_exchange +
                                                 n_updates + of_step,
                             &e->record)
                       : CADRE_OK;
}

// The optimizer's planes: as a whole, or this rank's shards.
static cadre_status make_slots(cadre_engine *e)
{
    const cadre_layout *layout = &e->model->layout;
    size_t elements = layout->n_elements;
    if (e->placement->optimizer == CADRE_SHARDED) {
        e->slot_parts =
            cadre_alloc_array((size_t)layout->n_units, sizeof(*e->slot_parts));
        if (e->slot_parts == NULL) {
            return CADRE_ERR_NO_MEMORY;
        }
        elements = cadre_plane_shard(layout, cadre_rank(e->group),
            cadre_world_size(e->group), e->slot_parts);
    }
    int wanted = e->optim->slots_used(&e->hyper);
    for (; e->n_slots < wanted; e->n_slots++) {
        float *data = cadre_alloc_array(elements, sizeof(*data));
        if (data == NULL) {
            return CADRE_ERR_NO_MEMORY;
        }
        e->slots[e->n_slots] = (cadre_plane){
            .name = e->optim->slot_names[e->n_slots],
            .data = data,
            .nbytes = elements * sizeof(*data),
            .parts = e->slot_parts,
        };
    }
    return CADRE_OK;
}

static_assert((int)CADRE_RATE_COSINE == (int)CADRE_COSINE &&
                  (int)CADRE_RATE_LINEAR == (int)CADRE_LINEAR &&
                  (int)CADRE_RATE_STEP == (int)CADRE_STEP,
    "a schedule's number is its shape's");

static cadre_rate_plan rate_plan(const cadre_engine_options *o)
{
    return (cadre_rate_plan){
        .shape = (cadre_rate_shape)o->schedule,
        .lr = o->lr,
        .warmup_steps = o->warmup_steps,
        .total_steps = o->total_steps,
        .min_lr_factor = o->min_lr_factor,
        .step_every = o->step_every,
        .step_factor = o->step_factor,
    };
}

static cadre_status make_optimizer(cadre_engine *e)
{
    e->rate = rate_plan(&e->o);
    if (e->o.optimizer == CADRE_NONE) {
        return CADRE_OK;
    }
    e->optim =
        e->o.optimizer == CADRE_SGD ? &cadre_optim_sgd : &cadre_optim_adamw;
    e->hyper = (cadre_hyper){
        .lr = e->o.lr,
        .weight_decay = e->o.weight_decay,
        .momentum = e->o.momentum,
        .beta1 = e->o.beta1,
        .beta2 = e->o.beta2,
        .eps = e->o.eps,
    };
    e->powers = (cadre_powers){.beta1 = 1.0, .beta2 = 1.0};
    return make_slots(e);
}

// Where updates are made by owners, these publish the parameters.
static cadre_status find_values(cadre_engine *e)
{
    if (e->placement->optimizer != CADRE_SHARDED) {
        return CADRE_OK;
    }
    size_t n = (size_t)e->model->layout.n_segments;
    e->values = cadre_alloc_array(n, sizeof(*e->values));
    if (e->values == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        e->values[i] = cadre_model_values(e->model, (int)i);
    }
    return CADRE_OK;
}

// Opens what ranks reach of each other, where they do; collective.
static cadre_status open_reaches(cadre_engine *e)
{
    const cadre_model *m = e->model;
    CADRE_TRY(cadre_reach_open(
        e->group, e->gradients, e->gradients_bytes, &e->gradients_reach));
    if (e->placement->optimizer != CADRE_SHARDED) {
        return CADRE_OK;
    }
    bool in_plane = true;
    for (int i = 0; i < m->layout.n_segments; i++) {
        in_plane = in_plane &&
                   (m->own_values[i] == NULL || m->layout.segments[i].frozen);
    }
    return cadre_reach_open(e->group, in_plane ? m->params.data : NULL,
        m->params.nbytes, &e->params_reach);
}

static cadre_status make_parts(cadre_engine *e)
{
    CADRE_TRY(cadre_share_verdict(e->group, make_leaves(e)));
    CADRE_TRY(open_reaches(e));
    CADRE_TRY(find_values(e));
    const cadre_fold_options fold = {
        .group = e->group,
        .layout = &e->model->layout,
        .buckets = &e->buckets,
        .leaves = &e->leaves,
        .published = e->values,
        .put = e->params_reach != NULL,
        .reach = e->gradients_reach,
        .places = e->gradients,
        .overlap = e->o.overlap == CADRE_OVERLAP_ON,
        .interrupted = &e->claimed,
    };
    CADRE_TRY(cadre_fold_create(&fold, &e->fold));
    CADRE_TRY(cadre_control_create(e->group, &e->control));
    CADRE_TRY(make_record(e));
    CADRE_TRY(make_optimizer(e));
    return cadre_moving_start(e);
}

cadre_status cadre_engine_create(
    cadre_model *model, const cadre_engine_options *options, cadre_engine **out)
{
    if (model == NULL || out == NULL) {
        return cadre_fail(
            CADRE_ERR_INVALID_ARG, "engine: the model or out is NULL");
    }
    if (!model->sealed || model->has_engine) {
        return cadre_fail(CADRE_ERR_STATE,
            "engine: the model is not sealed, or has an engine already");
    }
    cadre_engine_options o = {0};
    if (options != NULL) {
        o = *options;
    }
    CADRE_TRY(resolve(model->group, &o));

    cadre_engine *e = cadre_alloc(sizeof(*e));
    if (e == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    e->model = model;
    e->group = model->group;
    e->o = o;
    e->placement = cadre_placement_of((int)o.mode);
    e->leaves_given = options != NULL && options->leaves != 0;
    model->has_engine = true;
    cadre_status status = make_parts(e);
    if (status != CADRE_OK) {
        cadre_engine_destroy(e);
        return status;
    }
    *out = e;
    return CADRE_OK;
}

void cadre_engine_destroy(cadre_engine *engine)
{
    if (engine == NULL) {
        return;
    }
    cadre_moving_stop(engine);
    if (engine->open) {
        char text[128];
        snprintf(text, sizeof(text), "rank %d left step %lld unfinished",
            cadre_rank(engine->group), (long long)engine->step);
        // The status is of no use here: whoever destroys knows of a failure.
        (void)cadre_group_fail(engine->group, CADRE_ERR_ABORTED, text);
    }
    if (engine->fold != NULL) {
        cadre_fold_abandon(engine->fold);
    }
    for (int i = 0; i < engine->n_slots; i++) {
        cadre_free(engine->slots[i].data);
    }
    cadre_free(engine->slot_parts);
    cadre_free(engine->values);
    cadre_reach_close(engine->params_reach);
    cadre_reach_close(engine->gradients_reach);
    cadre_record_destroy(engine->record);
    cadre_control_destroy(engine->control);
    cadre_fold_destroy(engine->fold);
    cadre_leaves_fini(&engine->leaves);
    cadre_buckets_fini(&engine->buckets);
    cadre_arena_free(engine->group, engine->gradients);
    cadre_free(engine->note);
    engine->model->grads = NULL;
    engine->model->has_engine = false;
    cadre_free(engine);
}

// --- queries ---

int cadre_leaf_count(const cadre_engine *engine)
{
    return engine->o.leaves;
}

int cadre_engine_fold(const cadre_engine *engine)
{
    return engine->o.fold;
}

void cadre_engine_request_stop(cadre_engine *engine, uint32_t bits)
{
    // Relaxed: the bits carry nothing else with them.
    atomic_fetch_or_explicit(&engine->stop_bits, bits, memory_order_relaxed);
}

int cadre_engine_state_bytes(
    const cadre_engine *engine, cadre_plane_bytes *planes, int capacity)
{
    cadre_plane_bytes all[3 + CADRE_MAX_SLOTS] = {
        {"params", engine->model->params.nbytes},
        {"grads", engine->gradients_bytes},
        {"fold", cadre_fold_bytes(engine->fold)},
    };
    int n = 3;
    for (int i = 0; i < engine->n_slots; i++) {
        all[n++] =
            (cadre_plane_bytes){engine->slots[i].name, engine->slots[i].nbytes};
    }
    for (int i = 0; i < n && i < capacity; i++) {
        planes[i] = all[i];
    }
    return n;
}

int cadre_engine_events(
    const cadre_engine *engine, cadre_event *events, int capacity)
{
    return cadre_record_read(engine->record, events, capacity);
}

cadre_status cadre_engine_replicas_equal(cadre_engine *engine, bool *equal)
{
    if (engine == NULL || equal == NULL) {
        return cadre_fail(
            CADRE_ERR_INVALID_ARG, "engine: the engine or equal is NULL");
    }
    if (engine->open) {
        return cadre_fail(CADRE_ERR_STATE,
            "engine: a step is open; close it with cadre_step_end before the "
            "ranks' parameters are compared");
    }
    return cadre_compare_word(
        engine->group, cadre_model_hash(engine->model), equal);
}
