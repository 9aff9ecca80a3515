// SPDX-License-Identifier: Apache-2.0

#include "parallel/leaves.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/thread.h"
#include "kernel/reduce.h"
#include <string.h>

// What a segment of an open leaf's window is.
enum { UNTOUCHED, ASKED_FOR, READY };

struct cadre_window {
    float *grads;
    uint8_t *segments; // per segment, as above
};

struct cadre_leaf_slot {
    bool open;
    bool closed;
    int window; // while open
    double loss;
    int64_t weight;
    // The sum that waits for its right or left neighbour, kept at its first
    // leaf: a window, or -1, and the level of the node.
    int waiting;
    int level;
};

int cadre_leaves_windows(const cadre_dealing *dealing, int rank, int n_open)
{
    int most = cadre_dealing_rank_leaves(dealing, rank);
    int wanted = n_open + cadre_dealing_level(dealing);
    // A rank without leaves still needs an array for the result.
    most = most < 1 ? 1 : most;
    return wanted < most ? wanted : most;
}

// The stretches of the layout between frozen segments, gaps included: what has
// to be added up and zeroed.
static int find_ranges(const cadre_layout *layout, cadre_shard *ranges)
{
    int n = 0;
    bool open = false;
    for (int i = 0; i < layout->n_segments; i++) {
        const cadre_segment *s = &layout->segments[i];
        if (s->frozen) {
            open = false;
            continue;
        }
        if (!open) {
            ranges[n++].lo = s->offset;
        }
        ranges[n - 1].hi = s->offset + s->count;
        open = true;
    }
    return n;
}

cadre_status cadre_leaves_init(cadre_leaves *leaves, const cadre_layout *layout,
    const cadre_dealing *dealing, int rank, float *gradients, int n_windows)
{
    size_t n_segments = (size_t)layout->n_segments;
    cadre_leaves l = {
        .layout = layout,
        .dealing = *dealing,
        .rank = rank,
        .n_own = cadre_dealing_rank_leaves(dealing, rank),
        .n_windows = n_windows,
    };
    size_t n_own = (size_t)l.n_own;
    size_t rounds = (size_t)cadre_dealing_rounds(dealing);
    l.windows = cadre_alloc_array((size_t)n_windows, sizeof(*l.windows));
    l.ranges = cadre_alloc_array(n_segments, sizeof(*l.ranges));
    l.slots = cadre_alloc_array(n_own, sizeof(*l.slots));
    l.free = cadre_alloc_array((size_t)n_windows, sizeof(*l.free));
    l.round_window = cadre_alloc_array(rounds, sizeof(*l.round_window));
    uint8_t *marks = cadre_alloc_array((size_t)n_windows, n_segments);
    if (l.windows == NULL || l.ranges == NULL || l.slots == NULL ||
        l.free == NULL || l.round_window == NULL || marks == NULL) {
        cadre_free(marks);
        cadre_free(l.windows);
        l.windows = NULL; // its first entry would own the marks
        cadre_leaves_fini(&l);
        return CADRE_ERR_NO_MEMORY;
    }
    for (int i = 0; i < n_windows; i++) {
        l.windows[i].grads = gradients + (size_t)i * layout->n_elements;
        l.windows[i].segments = marks + (size_t)i * n_segments;
    }
    l.n_ranges = find_ranges(layout, l.ranges);

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
        cadre_free(leaves->windows[0].segments);
    }
    cadre_free(leaves->windows);
    cadre_free(leaves->ranges);
    cadre_free(leaves->slots);
    cadre_free(leaves->free);
    cadre_free(leaves->round_window);
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
        leaves->slots[i] = (cadre_leaf_slot){.window = -1, .waiting = -1};
    }
    int rounds = cadre_dealing_rounds(&leaves->dealing);
    for (int t = 0; t < rounds; t++) {
        leaves->round_window[t] = -1;
    }
    pthread_mutex_unlock(&leaves->mu);
}

cadre_next_leaf cadre_leaves_open(cadre_leaves *leaves, int *leaf)
{
    int window = -1;
    pthread_mutex_lock(&leaves->mu);
    int own = leaves->next;
    cadre_next_leaf result = CADRE_LEAF_NONE_LEFT;
    if (own < leaves->n_own) {
        result = CADRE_LEAF_NO_WINDOW;
        if (leaves->n_free > 0) {
            window = leaves->free[--leaves->n_free];
            leaves->slots[own].open = true;
            leaves->slots[own].window = window;
            leaves->next++;
            result = CADRE_LEAF_OPENED;
        }
    }
    pthread_mutex_unlock(&leaves->mu);

    if (result == CADRE_LEAF_OPENED) {
        memset(leaves->windows[window].segments, UNTOUCHED,
            (size_t)leaves->layout->n_segments);
        *leaf = cadre_dealing_rank_leaf(&leaves->dealing, leaves->rank, own);
    }
    return result;
}

// Which of this rank's leaves it is, if it is open; else -1.
static int open_leaf(cadre_leaves *leaves, int leaf)
{
    const cadre_dealing *d = &leaves->dealing;
    if (leaf < 0 || leaf >= d->n_leaves ||
        leaf / d->block % d->world_size != leaves->rank) {
        return -1;
    }
    int own = cadre_dealing_leaf_index(d, leaf);
    pthread_mutex_lock(&leaves->mu);
    bool open = leaves->slots[own].open;
    pthread_mutex_unlock(&leaves->mu);
    return open ? own : -1;
}

// The window of an open leaf belongs to its thread: no lock is needed.
static cadre_window *window_of(cadre_leaves *leaves, int leaf)
{
    int own = open_leaf(leaves, leaf);
    return own < 0 ? NULL : &leaves->windows[leaves->slots[own].window];
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
    cadre_window *w = window_of(leaves, leaf);
    if (w == NULL || !usable_segment(leaves, segment)) {
        return NULL;
    }
    if (w->segments[segment] == UNTOUCHED) {
        zero_segment(leaves, w, segment);
        w->segments[segment] = ASKED_FOR;
    }
    return w->grads + leaves->layout->segments[segment].offset;
}

cadre_status cadre_leaves_ready(cadre_leaves *leaves, int leaf, int segment)
{
    cadre_window *w = window_of(leaves, leaf);
    if (w == NULL || !usable_segment(leaves, segment)) {
        return cadre_fail(CADRE_ERR_STATE,
            "grad_ready: leaf %d is not open on this rank, or parameter %d "
            "has no gradient",
            leaf, segment);
    }
    const char *name = leaves->layout->segments[segment].name;
    if (w->segments[segment] != ASKED_FOR) {
        return cadre_fail(CADRE_ERR_STATE, "grad_ready: '%s' in leaf %d was %s",
            name, leaf,
            w->segments[segment] == READY
                ? "marked ready twice"
                : "never asked for (cadre_leaf_grad)");
    }
    w->segments[segment] = READY;
    return CADRE_OK;
}

// Parameters that the leaf did not use count as zero.
static cadre_status finish_segments(
    cadre_leaves *leaves, cadre_window *w, int leaf)
{
    for (int i = 0; i < leaves->layout->n_segments; i++) {
        if (!usable_segment(leaves, i)) {
            continue;
        }
        if (w->segments[i] == ASKED_FOR) {
            return cadre_fail(CADRE_ERR_STATE,
                "leaf_end: the gradient of '%s' in leaf %d was asked for and "
                "never marked ready (cadre_grad_ready)",
                leaves->layout->segments[i].name, leaf);
        }
        if (w->segments[i] == UNTOUCHED) {
            zero_segment(leaves, w, i);
        }
    }
    return CADRE_OK;
}

static void add_windows(cadre_leaves *leaves, int left, int right)
{
    for (int i = 0; i < leaves->n_ranges; i++) {
        cadre_shard r = leaves->ranges[i];
        cadre_reduce(CADRE_F32, CADRE_SUM, leaves->windows[left].grads + r.lo,
            leaves->windows[right].grads + r.lo, r.hi - r.lo);
    }
}

// Carries the sum of one leaf up its block's tree.  Adding is done without the
// lock: both windows belong to this thread then.
static void add_up(cadre_leaves *leaves, int own, int window)
{
    int k = leaves->dealing.block;
    int round = own / k;
    int base = round * k;
    int count = leaves->n_own - base < k ? leaves->n_own - base : k;
    int node = own - base; // its number at its level
    int level = 0;

    pthread_mutex_lock(&leaves->mu);
    while (1 << level < count) {
        int sibling = node ^ 1;
        if (sibling << level < count) { // else it moves up unchanged
            cadre_leaf_slot *other = &leaves->slots[base + (sibling << level)];
            if (other->waiting < 0 || other->level != level) {
                cadre_leaf_slot *mine = &leaves->slots[base + (node << level)];
                mine->waiting = window;
                mine->level = level;
                pthread_mutex_unlock(&leaves->mu);
                return;
            }
            int left = node % 2 == 0 ? window : other->waiting;
            int right = node % 2 == 0 ? other->waiting : window;
            other->waiting = -1;
            pthread_mutex_unlock(&leaves->mu);
            add_windows(leaves, left, right);
            pthread_mutex_lock(&leaves->mu);
            leaves->free[leaves->n_free++] = right;
            cadre_leaves_signal(leaves);
            window = left;
        }
        node >>= 1;
        level++;
    }
    leaves->round_window[round] = window;
    cadre_leaves_signal(leaves);
    pthread_mutex_unlock(&leaves->mu);
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
    cadre_leaf_slot *slot = &leaves->slots[own];
    int window = slot->window;
    CADRE_TRY(finish_segments(leaves, &leaves->windows[window], leaf));

    pthread_mutex_lock(&leaves->mu);
    slot->open = false;
    slot->closed = true;
    slot->loss = loss;
    slot->weight = weight;
    pthread_mutex_unlock(&leaves->mu);

    add_up(leaves, own, window);

    pthread_mutex_lock(&leaves->mu);
    leaves->n_closed++;
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

float *cadre_leaves_node(cadre_leaves *leaves, int round)
{
    pthread_mutex_lock(&leaves->mu);
    int window = leaves->round_window[round];
    pthread_mutex_unlock(&leaves->mu);
    return window < 0 ? NULL : leaves->windows[window].grads;
}

void cadre_leaves_release(cadre_leaves *leaves, int round)
{
    pthread_mutex_lock(&leaves->mu);
    leaves->free[leaves->n_free++] = leaves->round_window[round];
    leaves->round_window[round] = -1;
    cadre_leaves_signal(leaves);
    pthread_mutex_unlock(&leaves->mu);
}

float *cadre_leaves_result(cadre_leaves *leaves)
{
    int last = cadre_dealing_rounds(&leaves->dealing) - 1;
    pthread_mutex_lock(&leaves->mu);
    int window = leaves->round_window[last];
    if (window < 0) {
        CADRE_ASSERT(leaves->n_free > 0);
        window = leaves->free[leaves->n_free - 1];
    }
    pthread_mutex_unlock(&leaves->mu);
    return leaves->windows[window].grads;
}

void cadre_leaves_outcome(
    cadre_leaves *leaves, int i, double *loss, int64_t *weight)
{
    pthread_mutex_lock(&leaves->mu);
    *loss = leaves->slots[i].loss;
    *weight = leaves->slots[i].weight;
    pthread_mutex_unlock(&leaves->mu);
}
