// SPDX-License-Identifier: Apache-2.0

#include "data/loader.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/thread.h"
#include "state/leaf.h"

enum { SLOTS = 2 };

// One step's samples.  Its leaves lie at fixed distances, so that a leaf is
// found without a table.  Written by the loader's thread before the step counts
// as filled, read by others from then until it counts as released.
typedef struct slot {
    cadre_batch batch;
    float *x;        // (n_leaves, leaf_room, sample_elements)
    int32_t *labels; // (n_leaves, leaf_room, labels of a sample)
} slot;

struct cadre_loader {
    cadre_loader_options options;
    cadre_dealing dealing;
    int n_leaves;      // of this rank
    int64_t leaf_room; // samples of the largest leaf
    slot slots[SLOTS];
    cadre_thread thread;

    // Of the thread that acquires.
    bool acquired;
    int64_t current; // the step acquired, or to be acquired next, from 0

    pthread_mutex_t mu;
    pthread_cond_t changed;
    int64_t filled;   // steps, guarded by mu
    int64_t released; // steps, guarded by mu
    bool stopping;    // guarded by mu
};

// Where a leaf of this rank begins in a slot, in samples.
static int64_t leaf_place(const cadre_loader *loader, int leaf)
{
    return cadre_dealing_leaf_index(&loader->dealing, leaf) * loader->leaf_room;
}

static void fill_leaf(const cadre_loader *loader, slot *s, int leaf)
{
    const cadre_loader_options *o = &loader->options;
    const cadre_dataset *dataset = o->dataset;
    int64_t lo;
    int64_t hi;
    cadre_leaf_samples(s->batch.n_samples, o->n_leaves, leaf, &lo, &hi);

    int64_t place = leaf_place(loader, leaf);
    for (int64_t i = lo; i < hi; i++, place++) {
        int64_t sample = cadre_deal_sample(
            o->seed, s->batch.epoch, dataset->n_samples, s->batch.first + i);
        cadre_dataset_read(dataset, sample,
            s->x + place * dataset->sample_elements,
            s->labels + place * cadre_dataset_labels(dataset));
    }
}

static void fill(cadre_loader *loader, int64_t step)
{
    const cadre_loader_options *o = &loader->options;
    slot *s = &loader->slots[step % SLOTS];
    s->batch = cadre_deal_batch(o->dataset->n_samples, o->global_batch,
        o->drop_last, o->first_step + step);
    for (int i = 0; i < loader->n_leaves; i++) {
        fill_leaf(
            loader, s, cadre_dealing_rank_leaf(&loader->dealing, o->rank, i));
    }
}

// Waits until step's slot is free; false if the loader is to stop.
static bool wait_for_slot(cadre_loader *loader, int64_t step)
{
    pthread_mutex_lock(&loader->mu);
    while (!loader->stopping && step - loader->released >= SLOTS) {
        (void)cadre_condition_wait(
            &loader->changed, &loader->mu, CADRE_NO_DEADLINE);
    }
    bool go_on = !loader->stopping;
    pthread_mutex_unlock(&loader->mu);
    return go_on;
}

static void run(void *ctx)
{
    cadre_loader *loader = ctx;
    for (int64_t step = 0; step < loader->options.n_steps; step++) {
        if (!wait_for_slot(loader, step)) {
            return;
        }
        fill(loader, step);
        pthread_mutex_lock(&loader->mu);
        loader->filled = step + 1;
        pthread_cond_broadcast(&loader->changed);
        pthread_mutex_unlock(&loader->mu);
    }
}

static cadre_status check(const cadre_loader_options *o)
{
    if (o->global_batch < 1 || o->global_batch > o->dataset->n_samples) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "a global batch of %lld samples, of %lld in the data set",
            (long long)o->global_batch, (long long)o->dataset->n_samples);
    }
    if (o->n_leaves < 1 || o->n_leaves > CADRE_MAX_LEAVES || o->block < 1 ||
        o->world_size < 1 || o->rank < 0 || o->rank >= o->world_size ||
        o->first_step < 0 || o->n_steps < 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "a loader for rank %d of %d, %d leaves in blocks of %d, %lld steps "
            "from %lld makes no sense",
            o->rank, o->world_size, o->n_leaves, o->block,
            (long long)o->n_steps, (long long)o->first_step);
    }
    return CADRE_OK;
}

static cadre_status make_slots(cadre_loader *loader)
{
    int64_t room = loader->n_leaves * loader->leaf_room;
    int64_t elements = loader->options.dataset->sample_elements;
    int64_t labels = cadre_dataset_labels(loader->options.dataset);
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &loader->slots[i];
        s->x =
            cadre_alloc_array((size_t)room, (size_t)elements * sizeof(*s->x));
        s->labels = cadre_alloc_array(
            (size_t)room, (size_t)labels * sizeof(*s->labels));
        if (s->x == NULL || s->labels == NULL) {
            return CADRE_ERR_NO_MEMORY;
        }
    }
    return CADRE_OK;
}

cadre_status cadre_loader_create(
    const cadre_loader_options *options, cadre_loader **out)
{
    CADRE_TRY(check(options));
    cadre_loader *loader = cadre_alloc(sizeof(*loader));
    if (loader == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    loader->options = *options;
    loader->dealing =
        (cadre_dealing){options->n_leaves, options->block, options->world_size};
    loader->n_leaves =
        cadre_dealing_rank_leaves(&loader->dealing, options->rank);
    loader->leaf_room = (options->global_batch - 1) / options->n_leaves + 1;
    pthread_mutex_init(&loader->mu, NULL);
    cadre_condition_init(&loader->changed);

    cadre_status status = make_slots(loader);
    if (status == CADRE_OK) {
        status =
            cadre_thread_start(&loader->thread, "cadre/loader", run, loader);
    }
    if (status != CADRE_OK) {
        cadre_loader_destroy(loader);
        return status;
    }
    *out = loader;
    return CADRE_OK;
}

void cadre_loader_destroy(cadre_loader *loader)
{
    if (loader == NULL) {
        return;
    }
    pthread_mutex_lock(&loader->mu);
    loader->stopping = true;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->mu);
    cadre_thread_join(&loader->thread);

    for (int i = 0; i < SLOTS; i++) {
        cadre_free(loader->slots[i].x);
        cadre_free(loader->slots[i].labels);
    }
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->mu);
    cadre_free(loader);
}

void cadre_loader_acquire(cadre_loader *loader, cadre_batch *batch)
{
    CADRE_ASSERT(!loader->acquired);
    CADRE_ASSERT(loader->current < loader->options.n_steps);

    pthread_mutex_lock(&loader->mu);
    while (loader->filled <= loader->current) {
        // No deadline: the thread reads memory and waits for nobody.
        (void)cadre_condition_wait(
            &loader->changed, &loader->mu, CADRE_NO_DEADLINE);
    }
    pthread_mutex_unlock(&loader->mu);

    loader->acquired = true;
    *batch = loader->slots[loader->current % SLOTS].batch;
}

cadre_leaf_data cadre_loader_leaf(const cadre_loader *loader, int leaf)
{
    CADRE_ASSERT(loader->acquired);
    const slot *s = &loader->slots[loader->current % SLOTS];
    int64_t lo;
    int64_t hi;
    cadre_leaf_samples(
        s->batch.n_samples, loader->options.n_leaves, leaf, &lo, &hi);
    int64_t place = leaf_place(loader, leaf);
    return (cadre_leaf_data){
        .x = s->x + place * loader->options.dataset->sample_elements,
        .labels =
            s->labels + place * cadre_dataset_labels(loader->options.dataset),
        .n_samples = hi - lo,
        .step = loader->options.first_step + loader->current,
        .first_sample = lo,
    };
}

void cadre_loader_release(cadre_loader *loader)
{
    CADRE_ASSERT(loader->acquired);
    loader->acquired = false;
    loader->current++;

    pthread_mutex_lock(&loader->mu);
    loader->released = loader->current;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->mu);
}
