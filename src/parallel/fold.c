// SPDX-License-Identifier: Apache-2.0

#include "parallel/fold.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/hash.h"
#include "kernel/reduce.h"
#include "kernel/squares.h"
#include "parallel/bucket.h"
#include "state/tree.h"

// Exchanges in flight; fewer than the works that a group can hold.
enum { MOST_POSTED = 32 };

// A bucket as its owner sees it: arrays of the owned part's elements.
typedef struct owned {
    float **free; // stack of arrays
    int n_free;
    float **received; // per rank: its node of the round in flight
    float *plane;     // this rank's own node, if it stays where it is; or NULL
    cadre_tree tree;
    float *sum;               // after the last round: an array, or plane
    cadre_run *received_runs; // per rank
    cadre_part *sends;        // per rank
    cadre_part *receives;
} owned;

struct cadre_fold {
    cadre_fold_options o;
    cadre_buckets buckets;
    int rank;
    int n;
    int rounds;
    int level;  // of a block's node: log2 k
    bool local; // a group of one with one block: nothing to do
    uint64_t layout_hash;
    owned *owned; // per bucket
    int n_arrays; // per bucket
    float *arrays;
    uint64_t arrays_bytes;
    void *tables; // storage of the pointers in owned

    int n_operations;
    int posted;
    int finished;
    cadre_work *works[MOST_POSTED]; // operation i's at i mod MOST_POSTED
    float *result;                  // the plane that takes the sums
    cadre_exact squares;
    bool finite;
};

// An operation by its number in the sequence.
typedef struct operation {
    bool gather;
    int round;
    int bucket;
} operation;

static operation operation_at(const cadre_fold *f, int i)
{
    int n_folds = f->rounds * f->buckets.n_buckets;
    if (i < n_folds) {
        return (operation){.round = i / f->buckets.n_buckets,
            .bucket = i % f->buckets.n_buckets};
    }
    return (operation){.gather = true, .bucket = i - n_folds};
}

static bool has_block(const cadre_fold *f, int rank, int round)
{
    return cadre_dealing_has_block(&f->o.leaves->dealing, rank, round);
}

// --- making ---

static int log2_up(int value)
{
    int bits = 0;
    while (bits < 31 && 1 << bits < value) {
        bits++;
    }
    return bits;
}

// The tables of pointers of all buckets, in one block of memory.
static cadre_status make_tables(cadre_fold *f)
{
    size_t n = (size_t)f->n;
    size_t n_arrays = (size_t)f->n_arrays;
    size_t per_bucket = n_arrays * sizeof(float *) + n * sizeof(float *) +
                        n * sizeof(cadre_run) + 2 * n * sizeof(cadre_part);
    size_t n_buckets = (size_t)f->buckets.n_buckets;
    char *at = cadre_alloc_array(n_buckets, per_bucket);
    f->owned = cadre_alloc_array(n_buckets, sizeof(*f->owned));
    f->tables = at;
    if (at == NULL || f->owned == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    // Every element is a multiple of a pointer's size, so all stay aligned.
    for (size_t b = 0; b < n_buckets; b++) {
        owned *own = &f->owned[b];
        own->free = (float **)(void *)at;
        at += n_arrays * sizeof(float *);
        own->received = (float **)(void *)at;
        at += n * sizeof(float *);
        own->received_runs = (cadre_run *)(void *)at;
        at += n * sizeof(cadre_run);
        own->sends = (cadre_part *)(void *)at;
        at += n * sizeof(cadre_part);
        own->receives = (cadre_part *)(void *)at;
        at += n * sizeof(cadre_part);
    }
    return CADRE_OK;
}

static size_t owned_count(const cadre_fold *f, int bucket)
{
    return f->buckets.buckets[bucket].parts[f->rank].count;
}

static cadre_status make_arrays(cadre_fold *f)
{
    size_t total = 0;
    for (int b = 0; b < f->buckets.n_buckets; b++) {
        total += owned_count(f, b) * (size_t)f->n_arrays;
    }
    f->arrays_bytes = total * sizeof(float);
    f->arrays = cadre_alloc(f->arrays_bytes);
    return f->arrays == NULL ? CADRE_ERR_NO_MEMORY : CADRE_OK;
}

cadre_status cadre_fold_create(
    const cadre_fold_options *options, cadre_fold **out)
{
    cadre_fold *f = cadre_alloc(sizeof(*f));
    if (f == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    const cadre_dealing *d = &options->leaves->dealing;
    f->o = *options;
    f->rank = cadre_rank(options->group);
    f->n = cadre_world_size(options->group);
    f->rounds = cadre_dealing_rounds(d);
    f->level = cadre_dealing_level(d);
    f->local = cadre_dealing_blocks(d) == 1 && f->n == 1;
    f->layout_hash = cadre_layout_hash(options->layout);
    // What a round brings, and with more rounds what the tree keeps.
    f->n_arrays = f->n - 1;
    if (f->rounds > 1) {
        f->n_arrays += log2_up(cadre_dealing_blocks(d)) + 2;
    }

    cadre_status status = cadre_buckets_init(
        &f->buckets, options->layout, f->n, options->bucket_bytes);
    f->n_operations = (f->rounds + 1) * f->buckets.n_buckets;
    if (f->local) {
        f->n_operations = 0;
        f->n_arrays = 0;
    }
    if (status == CADRE_OK) {
        status = make_tables(f);
    }
    if (status == CADRE_OK) {
        status = make_arrays(f);
    }
    if (status != CADRE_OK) {
        cadre_fold_destroy(f);
        return status;
    }
    *out = f;
    return CADRE_OK;
}

void cadre_fold_destroy(cadre_fold *fold)
{
    if (fold == NULL) {
        return;
    }
    cadre_buckets_fini(&fold->buckets);
    cadre_free(fold->arrays);
    cadre_free(fold->owned);
    cadre_free(fold->tables);
    cadre_free(fold);
}

void cadre_fold_begin(cadre_fold *f)
{
    float *array = f->arrays;
    for (int b = 0; b < f->buckets.n_buckets; b++) {
        owned *own = &f->owned[b];
        own->tree = (cadre_tree){0};
        own->plane = NULL;
        own->sum = NULL;
        own->n_free = f->n_arrays;
        for (int i = 0; i < f->n_arrays; i++) {
            own->free[i] = array;
            array += owned_count(f, b);
        }
    }
    f->posted = 0;
    f->finished = 0;
    f->result = NULL;
    f->squares = (cadre_exact){0};
    f->finite = true;
}

// --- posting ---

static cadre_call call_of(const cadre_fold *f, const operation *op)
{
    uint64_t which[2] = {(uint64_t)op->round, (uint64_t)op->bucket};
    return (cadre_call){
        .operation = op->gather ? CADRE_OP_GATHER : CADRE_OP_FOLD,
        .dtype = CADRE_F32,
        .reduce_op = CADRE_SUM,
        .root = -1,
        .count = f->buckets.buckets[op->bucket].count,
        .detail = cadre_hash(which, sizeof(which), f->layout_hash),
    };
}

// This rank's own node: of the only round it is added up where it lies; of one
// among many it is copied, since its window is soon another leaf's.
static void keep_own(cadre_fold *f, const operation *op, float *node)
{
    owned *own = &f->owned[op->bucket];
    if (f->rounds == 1) {
        own->plane = node;
        own->received[f->rank] = node;
        return;
    }
    float *copy = own->free[--own->n_free];
    cadre_bucket_pack(
        &f->buckets.buckets[op->bucket].parts[f->rank], node, copy);
    own->received[f->rank] = copy;
}

static cadre_status post_fold(
    cadre_fold *f, const operation *op, cadre_work **work)
{
    const cadre_bucket *bucket = &f->buckets.buckets[op->bucket];
    owned *own = &f->owned[op->bucket];
    float *node = cadre_leaves_node(f->o.leaves, op->round);
    int n_sends = 0;
    int n_receives = 0;
    for (int r = 0; r < f->n; r++) {
        if (r != f->rank && node != NULL) {
            const cadre_bucket_part *part = &bucket->parts[r];
            cadre_bucket_point(part, node);
            own->sends[n_sends++] = (cadre_part){
                .peer = r,
                .runs = part->runs,
                .n_runs = (size_t)part->n_slices,
            };
        }
        if (!has_block(f, r, op->round)) {
            continue;
        }
        if (r == f->rank) {
            keep_own(f, op, node);
            continue;
        }
        own->received[r] = own->free[--own->n_free];
        own->received_runs[r] = (cadre_run){
            .data = own->received[r],
            .nbytes = bucket->parts[f->rank].count * sizeof(float),
        };
        own->receives[n_receives++] = (cadre_part){
            .peer = r, .runs = &own->received_runs[r], .n_runs = 1};
    }
    return cadre_exchange(f->o.group, call_of(f, op), own->sends, n_sends,
        own->receives, n_receives, work);
}

static cadre_status post_gather(
    cadre_fold *f, const operation *op, cadre_work **work)
{
    const cadre_bucket *bucket = &f->buckets.buckets[op->bucket];
    owned *own = &f->owned[op->bucket];
    if (f->result == NULL) {
        f->result = cadre_leaves_result(f->o.leaves);
    }
    const cadre_bucket_part *sum = &bucket->parts[f->rank];
    if (own->sum != own->plane) {
        cadre_bucket_unpack(sum, own->sum, f->result);
    }
    cadre_bucket_point(sum, f->result);
    int n_parts = 0;
    for (int r = 0; r < f->n; r++) {
        if (r == f->rank) {
            continue;
        }
        const cadre_bucket_part *part = &bucket->parts[r];
        cadre_bucket_point(part, f->result);
        own->sends[n_parts] = (cadre_part){
            .peer = r, .runs = sum->runs, .n_runs = (size_t)sum->n_slices};
        own->receives[n_parts] = (cadre_part){
            .peer = r, .runs = part->runs, .n_runs = (size_t)part->n_slices};
        n_parts++;
    }
    return cadre_exchange(f->o.group, call_of(f, op), own->sends, n_parts,
        own->receives, n_parts, work);
}

// A fold needs this rank's node, and the arrays of the round before back; a
// gather needs the bucket's last fold.
static bool can_post(const cadre_fold *f, const operation *op)
{
    int n_buckets = f->buckets.n_buckets;
    if (op->gather) {
        int last_fold = (f->rounds - 1) * n_buckets + op->bucket;
        return f->finished > last_fold;
    }
    if (op->round > 0 &&
        f->finished <= (op->round - 1) * n_buckets + op->bucket) {
        return false;
    }
    return !has_block(f, f->rank, op->round) ||
           cadre_leaves_node(f->o.leaves, op->round) != NULL;
}

static cadre_status post_ready(cadre_fold *f)
{
    while (
        f->posted < f->n_operations && f->posted - f->finished < MOST_POSTED) {
        operation op = operation_at(f, f->posted);
        if (!can_post(f, &op)) {
            break;
        }
        cadre_work **work = &f->works[f->posted % MOST_POSTED];
        CADRE_TRY(
            op.gather ? post_gather(f, &op, work) : post_fold(f, &op, work));
        f->posted++;
    }
    return CADRE_OK;
}

// --- finishing ---

// Adds right to left; one of them may lie in this rank's plane.
static void add_pair(
    const cadre_fold *f, int bucket, const cadre_tree_pair *pair)
{
    owned *own = &f->owned[bucket];
    const cadre_bucket_part *part = &f->buckets.buckets[bucket].parts[f->rank];
    float *left = pair->left;
    float *right = pair->right;
    size_t packed = 0;
    for (int i = 0; i < part->n_slices; i++) {
        const cadre_slice *s = &part->slices[i];
        cadre_reduce(CADRE_F32, CADRE_SUM,
            left + (left == own->plane ? s->offset : packed),
            right + (right == own->plane ? s->offset : packed), s->count);
        packed += s->count;
    }
    if (right != own->plane) {
        own->free[own->n_free++] = right;
    }
}

// Of this rank's part, packed or where it lies in a plane.
static void add_squares(
    cadre_fold *f, int bucket, const float *sum, bool in_plane)
{
    const cadre_bucket_part *part = &f->buckets.buckets[bucket].parts[f->rank];
    size_t packed = 0;
    for (int i = 0; i < part->n_slices; i++) {
        const cadre_slice *s = &part->slices[i];
        const float *x = sum + (in_plane ? s->offset : packed);
        f->finite =
            cadre_add_squares(&f->squares, x, s->offset, s->count) && f->finite;
        packed += s->count;
    }
}

// The nodes of a round go on the owner's tree, in block order.
static void finish_fold(cadre_fold *f, const operation *op)
{
    owned *own = &f->owned[op->bucket];
    cadre_tree_pair pair;
    for (int r = 0; r < f->n && has_block(f, r, op->round); r++) {
        cadre_tree_push(&own->tree, f->level, own->received[r]);
        while (cadre_tree_merge(&own->tree, &pair)) {
            add_pair(f, op->bucket, &pair);
        }
    }
    bool last_round = op->round == f->rounds - 1;
    if (last_round) {
        while (cadre_tree_join(&own->tree, &pair)) {
            add_pair(f, op->bucket, &pair);
        }
        own->sum = cadre_tree_take(&own->tree);
        add_squares(f, op->bucket, own->sum, own->sum == own->plane);
    }
    // The last node stays: its array takes the result (leaves.h).
    bool last_bucket = op->bucket == f->buckets.n_buckets - 1;
    if (last_bucket && !last_round && has_block(f, f->rank, op->round)) {
        cadre_leaves_release(f->o.leaves, op->round);
    }
}

static cadre_status finish_next(cadre_fold *f)
{
    operation op = operation_at(f, f->finished);
    cadre_work *work = f->works[f->finished % MOST_POSTED];
    f->works[f->finished % MOST_POSTED] = NULL; // waiting releases it
    CADRE_TRY(cadre_work_wait(work, 0));
    if (!op.gather) {
        finish_fold(f, &op);
    }
    f->finished++;
    return CADRE_OK;
}

cadre_status cadre_fold_advance(cadre_fold *fold, bool wait)
{
    CADRE_TRY(post_ready(fold));
    while (fold->finished < fold->posted) {
        bool done = false;
        CADRE_TRY(
            cadre_work_test(fold->works[fold->finished % MOST_POSTED], &done));
        if (!done && !wait) {
            break;
        }
        CADRE_TRY(finish_next(fold));
        wait = false;
        CADRE_TRY(post_ready(fold));
    }
    return CADRE_OK;
}

int cadre_fold_finished(const cadre_fold *fold)
{
    return fold->finished;
}

bool cadre_fold_done(const cadre_fold *fold)
{
    return fold->finished == fold->n_operations;
}

void cadre_fold_abandon(cadre_fold *fold)
{
    // The group is broken, so each of these returns at once.
    for (; fold->finished < fold->posted; fold->finished++) {
        cadre_work **work = &fold->works[fold->finished % MOST_POSTED];
        if (*work != NULL && cadre_work_wait(*work, 0) != CADRE_OK) {
            // The first cause is known already.
        }
        *work = NULL;
    }
}

void cadre_fold_take(cadre_fold *fold, cadre_fold_sum *out)
{
    if (fold->local) {
        fold->result = cadre_leaves_result(fold->o.leaves);
        for (int b = 0; b < fold->buckets.n_buckets; b++) {
            add_squares(fold, b, fold->result, true);
        }
    }
    cadre_exact_settle(&fold->squares);
    *out = (cadre_fold_sum){
        .grads = fold->result,
        .squares = fold->squares,
        .finite = fold->finite,
    };
}

uint64_t cadre_fold_bytes(const cadre_fold *fold)
{
    return fold->arrays_bytes;
}
