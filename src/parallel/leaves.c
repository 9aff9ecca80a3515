// SPDX-License-Identifier: Apache-2.0

#include "parallel/leaves.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/thread.h"
#include "kernel/reduce.h"
#include <stdatomic.h>
#include <string.h>

// What a segment of an open leaf's window is.
enum { UNTOUCHED, ASKED_FOR, READY };

// The level of a chunk that is not complete, or was added to another's.
enum { NO_LEVEL = -1 };

struct cadre_window {
    float *grads;
    // The open leaf's thread alone uses these two.
    uint8_t *segments; // per segment, as above
    int *missing;      // per bucket: segments that are not ready
    // Guarded by mu.
    int8_t *level; // per bucket: of the node whose chunk is complete here
    int own;       // the leaf that opened it
    int holds;     // the open leaf's and one per bucket; free at 0
};

struct cadre_leaf_slot {
    atomic_bool open; // set after, and read before, its window is used
    int window;       // -1: none any more; guarded by mu
    double loss;      // guarded by mu, as the next
    int64_t weight;
};

int cadre_leaves_windows(const cadre_dealing *dealing, int rank, int n_open)
{
    int most = cadre_dealing_rank_leaves(dealing, rank);
    int wanted = n_open + cadre_dealing_level(dealing);
    // A rank without leaves still needs an array for the result.
    most = most < 1 ? 1 : most;
    return wanted < most ? wanted : most;
}

// Points the windows at their marks, in one block of memory.
static cadre_status make_windows(cadre_leaves *l, float *gradients)
{
    size_t n_windows = (size_t)l->n_windows;
    size_t n_segments = (size_t)l->layout->n_segments;
    size_t n_buckets = (size_t)l->buckets->n_buckets;
    size_t per_bucket = sizeof(int) + sizeof(int8_t);
    l->windows = cadre_alloc_array(n_windows, sizeof(*l->windows));
    l->marks =
        cadre_alloc_array(n_windows, n_buckets * per_bucket + n_segments);
    if (l->windows == NULL || l->marks == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    // All counters first, so that they are aligned.
    int *missing = l->marks;
    int8_t *level = (int8_t *)(missing + n_windows * n_buckets);
    uint8_t *segments = (uint8_t *)(level + n_windows * n_buckets);
    for (size_t i = 0; i < n_windows; i++) {
        l->windows[i] = (cadre_window){
            .grads = gradients + i * l->layout->n_elements,
            .segments = segments + i * n_segments,
            .missing = missing + i * n_buckets,
            .level = level + i * n_buckets,
        };
    }
    return CADRE_OK;
}

static cadre_status make_tables(cadre_leaves *l, float *gradients)
{
    size_t rounds = (size_t)cadre_dealing_rounds(&l->dealing);
    l->slots = cadre_alloc_array((size_t)l->n_own, sizeof(*l->slots));
    l->free = cadre_alloc_array((size_t)l->n_windows, sizeof(*l->free));
    l->round_closed = cadre_alloc_array(rounds, sizeof(*l->round_closed));
    if (l->slots == NULL || l->free == NULL || l->round_closed == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    return make_windows(l, gradients);
}

static void free_tables(cadre_leaves *l)
{
    cadre_free(l->windows);
    cadre_free(l->marks);
    cadre_free(l->slots);
    cadre_free(l->free);
    cadre_free(l->round_closed);
}

cadre_status cadre_leaves_init(cadre_leaves *leaves, const cadre_layout *layout,
    const cadre_buckets *buckets, const cadre_dealing *dealing, int rank,
    float *gradients, int n_windows)
{
    cadre_leaves l = {
        .layout = layout,
        .buckets = buckets,
        .dealing = *dealing,
        .rank = rank,
        .n_own = cadre_dealing_rank_leaves(dealing, rank),
        .n_windows = n_windows,
    };
    cadre_status status = make_tables(&l, gradients);
    if (status != CADRE_OK) {
        free_tables(&l);
        return status;
    }
    *leaves = l;
    pthread_mutex_init(&leaves->mu, NULL);
    cadre_condition_init(&leaves->changed);
    cadre_leaves_begin(leaves);
    return CADRE_OK;
}

void cadre_leaves_fini(cadre_leaves *leaves)
{
    if (leaves->windows != NULL) {
        pthread_mutex_destroy(&leaves->mu);
        pthread_cond_destroy(&leaves->changed);
    }
    free_tables(leaves);
    *leaves = (cadre_leaves){0};
}

void cadre_leaves_begin(cadre_leaves *leaves)
{
    pthread_mutex_lock(&leaves->mu);
    leaves->next = 0;
    leaves->n_closed = 0;
    leaves->n_free = leaves->n_windows;
    for (int i = 0; i < leaves->n_windows; i++) {
        leaves->free[i] = leaves->n_windows - 1 - i;
    }
    for (int i = 0; i < leaves->n_own; i++) {
        cadre_leaf_slot *slot = &leaves->slots[i];
        atomic_store_explicit(&slot->open, false, memory_order_relaxed);
        slot->window = -1;
    }
    int rounds = cadre_dealing_rounds(&leaves->dealing);
    for (int t = 0; t < rounds; t++) {
        leaves->round_closed[t] = 0;
    }
    pthread_mutex_unlock(&leaves->mu);
}

// Makes a free window a leaf's; mu is held.
static void give_window(cadre_leaves *leaves, int own)
{
    int index = leaves->free[--leaves->n_free];
    cadre_window *w = &leaves->windows[index];
    w->own = own;
    w->holds = leaves->buckets->n_buckets + 1;
    for (int b = 0; b < leaves->buckets->n_buckets; b++) {
        w->level[b] = NO_LEVEL;
        w->missing[b] = leaves->buckets->buckets[b].n_segments;
    }
    leaves->slots[own].window = index;
}

// Gives up holds of a window; mu is held.
static void let_go(cadre_leaves *leaves, int window, int n_holds)
{
    cadre_window *w = &leaves->windows[window];
    w->holds -= n_holds;
    CADRE_ASSERT(w->holds >= 0);
    if (w->holds == 0) {
        leaves->slots[w->own].window = -1;
        leaves->free[leaves->n_free++] = window;
        cadre_leaves_signal(leaves);
    }
}

cadre_next_leaf cadre_leaves_open(cadre_leaves *leaves, int *leaf)
{
    pthread_mutex_lock(&leaves->mu);
    int own = leaves->next;
    cadre_next_leaf result = CADRE_LEAF_NONE_LEFT;
    if (own < leaves->n_own) {
        result = CADRE_LEAF_NO_WINDOW;
        if (leaves->n_free > 0) {
            give_window(leaves, own);
            leaves->next++;
            result = CADRE_LEAF_OPENED;
        }
    }
    pthread_mutex_unlock(&leaves->mu);

    if (result == CADRE_LEAF_OPENED) {
        cadre_leaf_slot *slot = &leaves->slots[own];
        memset(leaves->windows[slot->window].segments, UNTOUCHED,
            (size_t)leaves->layout->n_segments);
        atomic_store_explicit(&slot->open, true, memory_order_release);
        *leaf = cadre_dealing_rank_leaf(&leaves->dealing, leaves->rank, own);
    }
    return result;
}

// Which of this rank's leaves it is, if it is open; else -1.
static int open_leaf(const cadre_leaves *leaves, int leaf)
{
    const cadre_dealing *d = &leaves->dealing;
    if (leaf < 0 || leaf >= d->n_leaves ||
        leaf / d->block % d->world_size != leaves->rank) {
        return -1;
    }
    int own = cadre_dealing_leaf_index(d, leaf);
    // Pairs with the release in open.
    bool open =
        atomic_load_explicit(&leaves->slots[own].open, memory_order_acquire);
    return open ? own : -1;
}

// The window of an open leaf belongs to its thread: no lock is needed.
static cadre_window *window_of(cadre_leaves *leaves, int own)
{
    return &leaves->windows[leaves->slots[own].window];
}

static bool usable_segment(const cadre_leaves *leaves, int segment)
{
    return segment >= 0 && segment < leaves->layout->n_segments &&
           !leaves->layout->segments[segment].frozen;
}

static void zero_segment(const cadre_leaves *leaves, cadre_window *w, int i)
{
    const cadre_segment *s = &leaves->layout->segments[i];
    memset(w->grads + s->offset, 0, s->count * sizeof(float));
}

float *cadre_leaves_grad(cadre_leaves *leaves, int leaf, int segment)
{
    int own = open_leaf(leaves, leaf);
    if (own < 0 || !usable_segment(leaves, segment)) {
        return NULL;
    }
    cadre_window *w = window_of(leaves, own);
    if (w->segments[segment] == UNTOUCHED) {
        zero_segment(leaves, w, segment);
        w->segments[segment] = ASKED_FOR;
    }
    return w->grads + leaves->layout->segments[segment].offset;
}

// Adds what a bucket holds of the right window to the left one.
static void add_chunk(
    const cadre_leaves *leaves, int bucket, int left, int right)
{
    const cadre_bucket *b = &leaves->buckets->buckets[bucket];
    float *sum = leaves->windows[left].grads;
    const float *addend = leaves->windows[right].grads;
    for (int r = 0; r < leaves->buckets->n_owners; r++) {
        const cadre_bucket_part *part = &b->parts[r];
        for (int i = 0; i < part->n_slices; i++) {
            const cadre_slice *s = &part->slices[i];
            cadre_reduce(CADRE_F32, CADRE_SUM, sum + s->offset,
                addend + s->offset, s->count);
        }
    }
}

// The number of leaves in this rank's block of a round.
static int block_leaves(const cadre_leaves *leaves, int round)
{
    int k = leaves->dealing.block;
    int left = leaves->n_own - round * k;
    return left < k ? left : k;
}

// A leaf's chunk of a bucket is complete: carries it up its block's tree.
// Adding is done without the lock: both chunks belong to this thread then.
static void add_up(cadre_leaves *leaves, int own, int bucket)
{
    int k = leaves->dealing.block;
    int base = own / k * k;
    int count = block_leaves(leaves, own / k);
    int node = own - base; // its number at its level
    int level = 0;

    pthread_mutex_lock(&leaves->mu);
    int window = leaves->slots[own].window;
    for (; 1 << level < count; node >>= 1, level++) {
        int sibling = node ^ 1;
        if (sibling << level >= count) {
            continue; // it moves up unchanged
        }
        int other = leaves->slots[base + (sibling << level)].window;
        if (other < 0 || leaves->windows[other].level[bucket] != level) {
            break; // who completes the other one goes on
        }
        int left = node % 2 == 0 ? window : other;
        int right = node % 2 == 0 ? other : window;
        leaves->windows[other].level[bucket] = NO_LEVEL;
        pthread_mutex_unlock(&leaves->mu);
        add_chunk(leaves, bucket, left, right);
        pthread_mutex_lock(&leaves->mu);
        let_go(leaves, right, 1);
        window = left;
    }
    leaves->windows[window].level[bucket] = (int8_t)level;
    pthread_mutex_unlock(&leaves->mu);
}

// Notes that a segment's last write is done.  True if it completed a bucket.
static bool complete(cadre_leaves *leaves, int own, int segment)
{
    cadre_window *w = window_of(leaves, own);
    const cadre_buckets *b = leaves->buckets;
    bool any = false;
    w->segments[segment] = READY;
    for (int i = b->first_of[segment]; i < b->first_of[segment + 1]; i++) {
        int bucket = b->of[i];
        if (--w->missing[bucket] == 0) {
            add_up(leaves, own, bucket);
            any = true;
        }
    }
    return any;
}

cadre_status cadre_leaves_ready(
    cadre_leaves *leaves, int leaf, int segment, bool *completed)
{
    int own = open_leaf(leaves, leaf);
    if (own < 0 || !usable_segment(leaves, segment)) {
        return cadre_fail(CADRE_ERR_STATE,
            "grad_ready: leaf %d is not open on this rank, or parameter %d "
            "has no gradient",
            leaf, segment);
    }
    int mark = window_of(leaves, own)->segments[segment];
    if (mark != ASKED_FOR) {
        return cadre_fail(CADRE_ERR_STATE, "grad_ready: '%s' in leaf %d was %s",
            leaves->layout->segments[segment].name, leaf,
            mark == READY ? "marked ready twice"
                          : "never asked for (cadre_leaf_grad)");
    }
    *completed = complete(leaves, own, segment);
    return CADRE_OK;
}

static cadre_status check_segments(
    const cadre_leaves *leaves, const cadre_window *w, int leaf)
{
    for (int i = 0; i < leaves->layout->n_segments; i++) {
        if (usable_segment(leaves, i) && w->segments[i] == ASKED_FOR) {
            return cadre_fail(CADRE_ERR_STATE,
                "leaf_end: the gradient of '%s' in leaf %d was asked for and "
                "never marked ready (cadre_grad_ready)",
                leaves->layout->segments[i].name, leaf);
        }
    }
    return CADRE_OK;
}

// Parameters that the leaf did not use count as zero; buckets that hold nothing
// are complete.
static void complete_all(cadre_leaves *leaves, int own)
{
    cadre_window *w = window_of(leaves, own);
    for (int i = 0; i < leaves->layout->n_segments; i++) {
        if (usable_segment(leaves, i) && w->segments[i] == UNTOUCHED) {
            zero_segment(leaves, w, i);
            (void)complete(leaves, own, i);
        }
    }
    for (int b = 0; b < leaves->buckets->n_buckets; b++) {
        if (leaves->buckets->buckets[b].n_segments == 0) {
            add_up(leaves, own, b);
        }
    }
}

cadre_status cadre_leaves_close(
    cadre_leaves *leaves, int leaf, double loss, int64_t weight)
{
    int own = open_leaf(leaves, leaf);
    if (own < 0) {
        return cadre_fail(CADRE_ERR_STATE,
            "leaf_end: leaf %d is not open on this rank", leaf);
    }
    if (weight < 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "leaf_end: the weight of leaf %d is %lld, at least 0 is needed",
            leaf, (long long)weight);
    }
    CADRE_TRY(check_segments(leaves, window_of(leaves, own), leaf));
    complete_all(leaves, own);

    cadre_leaf_slot *slot = &leaves->slots[own];
    atomic_store_explicit(&slot->open, false, memory_order_release);
    pthread_mutex_lock(&leaves->mu);
    slot->loss = loss;
    slot->weight = weight;
    leaves->round_closed[own / leaves->dealing.block]++;
    leaves->n_closed++;
    let_go(leaves, slot->window, 1);
    cadre_leaves_signal(leaves);
    pthread_mutex_unlock(&leaves->mu);
    return CADRE_OK;
}

void cadre_leaves_signal(cadre_leaves *leaves)
{
    leaves->changes++;
    pthread_cond_broadcast(&leaves->changed);
}

uint64_t cadre_leaves_changes(cadre_leaves *leaves)
{
    pthread_mutex_lock(&leaves->mu);
    uint64_t changes = leaves->changes;
    pthread_mutex_unlock(&leaves->mu);
    return changes;
}

void cadre_leaves_wait(
    cadre_leaves *leaves, uint64_t seen, cadre_deadline deadline)
{
    bool in_time = true;
    pthread_mutex_lock(&leaves->mu);
    while (leaves->changes == seen && in_time) {
        in_time = cadre_condition_wait(&leaves->changed, &leaves->mu, deadline);
    }
    pthread_mutex_unlock(&leaves->mu);
}

int cadre_leaves_closed(cadre_leaves *leaves)
{
    pthread_mutex_lock(&leaves->mu);
    int n = leaves->n_closed;
    pthread_mutex_unlock(&leaves->mu);
    return n;
}

bool cadre_leaves_block_closed(cadre_leaves *leaves, int round)
{
    pthread_mutex_lock(&leaves->mu);
    int n = leaves->round_closed[round];
    pthread_mutex_unlock(&leaves->mu);
    return n == block_leaves(leaves, round);
}

// The window that holds, or will hold, the node of a round's block; mu is held.
static int node_window(const cadre_leaves *leaves, int round)
{
    const int64_t first = (int64_t)round * leaves->dealing.block;
    return leaves->slots[first].window;
}

float *cadre_leaves_node(cadre_leaves *leaves, int round, int bucket)
{
    float *grads = NULL;
    pthread_mutex_lock(&leaves->mu);
    int window = node_window(leaves, round);
    if (window >= 0) {
        const cadre_window *w = &leaves->windows[window];
        const int8_t level = w->level[bucket];
        bool whole = level >= 0 && 1 << level >= block_leaves(leaves, round);
        grads = whole ? w->grads : NULL;
    }
    pthread_mutex_unlock(&leaves->mu);
    return grads;
}

void cadre_leaves_release(cadre_leaves *leaves, int round)
{
    pthread_mutex_lock(&leaves->mu);
    let_go(leaves, node_window(leaves, round), leaves->buckets->n_buckets);
    pthread_mutex_unlock(&leaves->mu);
}

float *cadre_leaves_result(cadre_leaves *leaves)
{
    int last = cadre_dealing_rounds(&leaves->dealing) - 1;
    int window = -1;
    pthread_mutex_lock(&leaves->mu);
    if (cadre_dealing_has_block(&leaves->dealing, leaves->rank, last)) {
        window = node_window(leaves, last);
    } else if (leaves->n_free > 0) {
        window = leaves->free[leaves->n_free - 1];
    }
    pthread_mutex_unlock(&leaves->mu);
    return window < 0 ? NULL : leaves->windows[window].grads;
}

void cadre_leaves_outcome(
    cadre_leaves *leaves, int i, double *loss, int64_t *weight)
{
    pthread_mutex_lock(&leaves->mu);
    *loss = leaves->slots[i].loss;
    *weight = leaves->slots[i].weight;
    pthread_mutex_unlock(&leaves->mu);
}
