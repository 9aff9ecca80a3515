// SPDX-License-Identifier: Apache-2.0

#include "data/loader.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/thread.h"
#include "state/leaf.h"
#include <stdio.h>

enum { SLOTS = 2, MOST_THREADS = 256, MOST_OF_ERRAND = 32 };

// One step's samples.  Blocks of leaves lie at fixed distances, so that a leaf
// is found without a table; the leaves of a block, of which many may be empty,
// one behind the other.  Written by the loader's threads until no sample is
// missing, read by others from then until the step counts as released.
typedef struct slot {
    int64_t n_missing; // samples, guarded by the loader's mu
    cadre_batch batch;
    float *x;        // (n_blocks, block_room, sample_elements)
    int32_t *labels; // (n_blocks, block_room, labels of a sample)
} slot;

// Where the threads are in what is to be read.
typedef struct cursor {
    int64_t step; // from 0
    bool open;    // its slot is theirs
    int leaf;     // of this rank's, from 0
    int64_t next; // sample of the leaf, as a place in the batch
    int64_t end;  // of the leaf
} cursor;

struct cadre_loader {
    cadre_loader_options options;
    cadre_dealing dealing;
    int n_leaves;       // of this rank
    int64_t block_room; // samples of the largest block of leaves
    slot slots[SLOTS];

    // Of the thread that acquires.
    bool acquired;
    int64_t current; // the step acquired, or to be acquired next, from 0
    int64_t waited_ns;
    bool refused; // a step once, and so all that follow

    pthread_mutex_t mu;
    pthread_cond_t changed;
    cursor cursor;       // guarded by mu
    int64_t released;    // steps, guarded by mu
    bool stopping;       // guarded by mu
    cadre_status failed; // guarded by mu: the first failure, and its text
    char text[CADRE_FAIL_TEXT_BYTES]; // guarded by mu

    int n_threads;
    cadre_thread threads[];
};

// Where a sample of this rank's leaf lies in a slot, in samples; it is given as
// a place in the batch.
static int64_t place_in_slot(
    const cadre_loader *loader, const slot *s, int leaf, int64_t sample)
{
    const cadre_dealing *d = &loader->dealing;
    int block = cadre_dealing_leaf_index(d, leaf) / d->block;
    int first = leaf / d->block * d->block;
    int64_t lo;
    int64_t hi;
    cadre_leaf_samples(s->batch.n_samples, d->n_leaves, first, &lo, &hi);
    return block * loader->block_room + sample - lo;
}

// Of a batch of B: ceil(B k / V), without the product's overflow.
static int64_t largest_block(int64_t n_samples, const cadre_dealing *d)
{
    int64_t k = d->block < d->n_leaves ? d->block : d->n_leaves;
    int64_t rest = n_samples % d->n_leaves * k;
    return n_samples / d->n_leaves * k + (rest + d->n_leaves - 1) / d->n_leaves;
}

static int leaf_number(const cadre_loader *loader, int index)
{
    return cadre_dealing_rank_leaf(
        &loader->dealing, loader->options.rank, index);
}

// The samples of one of this rank's leaves.
static void leaf_samples(const cadre_loader *loader, const slot *s, int index,
    int64_t *lo, int64_t *hi)
{
    cadre_leaf_samples(s->batch.n_samples, loader->options.n_leaves,
        leaf_number(loader, index), lo, hi);
}

// Begins the step at the cursor.  Under mu, as all that moves the cursor.
static void open_step(cadre_loader *loader)
{
    const cadre_loader_options *o = &loader->options;
    cursor *c = &loader->cursor;
    slot *s = &loader->slots[c->step % SLOTS];
    s->batch = cadre_deal_batch(o->dataset->n_samples, o->global_batch,
        o->drop_last, o->first_step + c->step);
    s->n_missing = 0;
    for (int i = 0; i < loader->n_leaves; i++) {
        int64_t lo;
        int64_t hi;
        leaf_samples(loader, s, i, &lo, &hi);
        s->n_missing += hi - lo;
    }
    *c = (cursor){.step = c->step, .open = true, .leaf = -1};
}

// Moves to a leaf that has a sample left; false behind the last, where the next
// step begins.
static bool find_leaf(cadre_loader *loader)
{
    cursor *c = &loader->cursor;
    const slot *s = &loader->slots[c->step % SLOTS];
    while (c->next == c->end) {
        c->leaf++;
        if (c->leaf == loader->n_leaves) {
            *c = (cursor){.step = c->step + 1};
            return false;
        }
        leaf_samples(loader, s, c->leaf, &c->next, &c->end);
    }
    return true;
}

// Samples that a thread reads, neighbours in the batch, and where to.
typedef struct errand {
    slot *slot;
    int64_t first; // of them, as a place in the batch
    int64_t at;    // its place in the slot, in samples
    int64_t n;
} errand;

// Takes the next samples of the leaf at the cursor: many at a time, since they
// may be read in less time than two threads need to agree.  Of those that are
// work all threads shall have some of a leaf, and a few times over.
static errand take_errand(const cadre_loader *loader, slot *s, cursor *c)
{
    const bool work = loader->options.dataset->decodes;
    const int64_t shares = work ? 8 * (int64_t)loader->n_threads : 1;
    const int64_t left = c->end - c->next;
    int64_t n = left / shares;
    n = n < 1 ? 1 : n;
    n = n > MOST_OF_ERRAND ? MOST_OF_ERRAND : n;
    const errand e = {
        .slot = s,
        .first = c->next,
        .at = place_in_slot(loader, s, leaf_number(loader, c->leaf), c->next),
        .n = n,
    };
    c->next += n;
    return e;
}

// Waits for something to read; false if there will be no more.
static bool next_errand(cadre_loader *loader, errand *out)
{
    cursor *c = &loader->cursor;
    bool found = false;
    pthread_mutex_lock(&loader->mu);
    while (!found && !loader->stopping && loader->failed == CADRE_OK &&
           c->step < loader->options.n_steps) {
        if (!c->open && c->step - loader->released >= SLOTS) {
            (void)cadre_condition_wait(
                &loader->changed, &loader->mu, CADRE_NO_DEADLINE);
            continue;
        }
        if (!c->open) {
            open_step(loader);
        }
        found = find_leaf(loader);
        if (!found) {
            // Whoever waits for a step that has no samples here.
            pthread_cond_broadcast(&loader->changed);
        }
    }
    if (found) {
        *out = take_errand(loader, &loader->slots[c->step % SLOTS], c);
    }
    pthread_mutex_unlock(&loader->mu);
    return found;
}

// Samples that could not be read stay missing, so that nobody takes their step
// for whole.
static void finish_errand(
    cadre_loader *loader, const errand *e, cadre_status status)
{
    pthread_mutex_lock(&loader->mu);
    if (status == CADRE_OK) {
        e->slot->n_missing -= e->n;
    } else if (loader->failed == CADRE_OK) {
        loader->failed = status;
        snprintf(loader->text, sizeof(loader->text), "%s", cadre_error_text());
    }
    if (e->slot->n_missing == 0 || status != CADRE_OK) {
        pthread_cond_broadcast(&loader->changed);
    }
    pthread_mutex_unlock(&loader->mu);
}

static cadre_status do_errand(const cadre_loader *loader, const errand *e)
{
    const cadre_loader_options *o = &loader->options;
    const cadre_dataset *dataset = o->dataset;
    const cadre_batch *batch = &e->slot->batch;
    int64_t samples[MOST_OF_ERRAND];
    cadre_deal_samples(o->seed, batch->epoch, dataset->n_samples,
        batch->first + e->first, e->n, samples);
    // All are on their way from memory before the first is read.
    for (int64_t i = 0; i < e->n; i++) {
        cadre_dataset_expect(dataset, (cadre_place){batch->epoch, samples[i]});
    }
    for (int64_t i = 0; i < e->n; i++) {
        int64_t at = e->at + i;
        CADRE_TRY(
            cadre_dataset_read(dataset, (cadre_place){batch->epoch, samples[i]},
                e->slot->x + at * dataset->sample_elements,
                e->slot->labels + at * cadre_dataset_labels(dataset)));
    }
    return CADRE_OK;
}

static void run(void *ctx)
{
    cadre_loader *loader = ctx;
    for (errand e; next_errand(loader, &e);) {
        finish_errand(loader, &e, do_errand(loader, &e));
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
        o->first_step < 0 || o->n_steps < 0 || o->n_threads < 0) {
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
    int block = loader->dealing.block;
    int64_t room = (loader->n_leaves + block - 1) / block * loader->block_room;
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
    int wanted = options->n_threads < 1 ? 1 : options->n_threads;
    int n_threads = wanted > MOST_THREADS ? MOST_THREADS : wanted;
    cadre_loader *loader = cadre_alloc_flex(
        sizeof(*loader), (size_t)n_threads, sizeof(loader->threads[0]));
    if (loader == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    loader->n_threads = n_threads;
    loader->options = *options;
    loader->dealing =
        (cadre_dealing){options->n_leaves, options->block, options->world_size};
    loader->n_leaves =
        cadre_dealing_rank_leaves(&loader->dealing, options->rank);
    loader->block_room = largest_block(options->global_batch, &loader->dealing);
    pthread_mutex_init(&loader->mu, NULL);
    cadre_condition_init(&loader->changed);

    cadre_status status = make_slots(loader);
    for (int i = 0; i < n_threads && status == CADRE_OK; i++) {
        char name[24];
        snprintf(name, sizeof(name), "cadre/load %d", i);
        status = cadre_thread_start(&loader->threads[i], name, run, loader);
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
    for (int i = 0; i < loader->n_threads; i++) {
        cadre_thread_join(&loader->threads[i]);
    }

    for (int i = 0; i < SLOTS; i++) {
        cadre_free(loader->slots[i].x);
        cadre_free(loader->slots[i].labels);
    }
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->mu);
    cadre_free(loader);
}

// Under mu: the current step is whole.
static bool is_filled(const cadre_loader *loader)
{
    return loader->cursor.step > loader->current &&
           loader->slots[loader->current % SLOTS].n_missing == 0;
}

cadre_status cadre_loader_acquire(cadre_loader *loader, cadre_batch *batch)
{
    CADRE_ASSERT(!loader->acquired);
    CADRE_ASSERT(loader->current < loader->options.n_steps);

    int64_t began_ns = cadre_now_ns();
    pthread_mutex_lock(&loader->mu);
    while (!is_filled(loader) && loader->failed == CADRE_OK) {
        // No deadline: the threads read files and wait for nobody.
        (void)cadre_condition_wait(
            &loader->changed, &loader->mu, CADRE_NO_DEADLINE);
    }
    loader->refused = loader->refused || !is_filled(loader);
    pthread_mutex_unlock(&loader->mu);
    loader->waited_ns += cadre_now_ns() - began_ns;

    if (loader->refused) {
        // Written once, before what was seen above.
        return cadre_fail(loader->failed, "%s", loader->text);
    }
    loader->acquired = true;
    *batch = loader->slots[loader->current % SLOTS].batch;
    return CADRE_OK;
}

cadre_leaf_data cadre_loader_leaf(const cadre_loader *loader, int leaf)
{
    CADRE_ASSERT(loader->acquired);
    const slot *s = &loader->slots[loader->current % SLOTS];
    int64_t lo;
    int64_t hi;
    cadre_leaf_samples(
        s->batch.n_samples, loader->options.n_leaves, leaf, &lo, &hi);
    int64_t place = place_in_slot(loader, s, leaf, lo);
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
    pthread_mutex_unlock(&loader->mu);
    // Unlocked before, so that who wakes does not have to wait again.
    pthread_cond_broadcast(&loader->changed);
}

int64_t cadre_loader_waited_ns(const cadre_loader *loader)
{
    return loader->waited_ns;
}
