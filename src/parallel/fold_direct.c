// SPDX-License-Identifier: Apache-2.0
//
// The canonical way of a fold: every rank sends every owner its part of its
// node, or says where it lies, and the owner adds them up in block order.

#include "parallel/fold_impl.h"

#include <string.h>

static int n_steps(const cadre_fold *f)
{
    (void)f;
    return 1;
}

// What a round brings, and with more rounds what the tree keeps.  Of nodes that
// stay where they lie, two peers' at least become an array; a rank that has none
// of its own makes an array of what may be the only one.
static int n_arrays(const cadre_fold *f)
{
    int n_blocks = cadre_dealing_blocks(&f->o.leaves->dealing);
    if (f->n_rounds == 1 && f->o.reach != NULL) {
        return (f->n - 1) / 2 + (n_blocks < f->n ? 1 : 0);
    }
    return f->n - 1 + (f->n_rounds > 1 ? cadre_fold_tree_arrays(n_blocks) : 0);
}

static size_t array_elements(const cadre_fold *f, int bucket)
{
    return f->o.buckets->buckets[bucket].parts[f->rank].count;
}

// This rank's own node: of the only round it is added up where it lies; of one
// among many it is copied, since its window is soon another leaf's.
static float *keep_own(cadre_fold *f, cadre_folding *b)
{
    if (f->n_rounds == 1) {
        b->own.plane = b->node;
        return b->node;
    }
    float *copy = cadre_owned_take(&b->own);
    cadre_bucket_pack(b->own.part, b->node, copy);
    return copy;
}

// Says which nodes are there.
static void prepare_reached(cadre_fold *f, const cadre_turn *turn)
{
    cadre_folding *b = &f->buckets[turn->bucket];
    const cadre_bucket *bucket = &f->o.buckets->buckets[turn->bucket];
    if (b->node != NULL) {
        f->o.places[turn->bucket] =
            (uint64_t)((uintptr_t)b->node - (uintptr_t)f->o.places);
        b->own.plane = b->node;
        b->received[f->rank] = b->node;
    }
    for (int r = 0; r < f->n; r++) {
        if (r != f->rank && b->node != NULL) {
            b->sends[b->n_sends++] = (cadre_part){.peer = r};
            b->unsent += bucket->parts[r].count * sizeof(float);
        }
        if (r != f->rank && cadre_fold_has_block(f, r, turn->round)) {
            b->receives[b->n_receives++] = (cadre_part){.peer = r};
        }
    }
}

static cadre_status find_node(
    cadre_fold *f, const cadre_turn *turn, int peer, float **out)
{
    void *found = NULL;
    uint64_t at = (uint64_t)turn->bucket * sizeof(at);
    CADRE_TRY(cadre_reach_at(f->o.reach, peer, at, sizeof(at), &found));
    memcpy(&at, found, sizeof(at));
    CADRE_TRY(cadre_reach_at(
        f->o.reach, peer, at, f->o.layout->n_elements * sizeof(float), &found));
    *out = found;
    return CADRE_OK;
}

// Finds the peers' nodes, of which the owner reads its part.
static cadre_status find_nodes(cadre_fold *f, const cadre_turn *turn)
{
    cadre_folding *b = &f->buckets[turn->bucket];
    CADRE_TRY(cadre_reach_find(f->o.reach));
    for (int r = 0; r < f->n; r++) {
        if (r != f->rank && cadre_fold_has_block(f, r, turn->round)) {
            CADRE_TRY(find_node(f, turn, r, &b->received[r]));
        }
    }
    return CADRE_OK;
}

static void prepare(cadre_fold *f, const cadre_turn *turn)
{
    if (cadre_fold_reaches(f, turn->round)) {
        prepare_reached(f, turn);
        return;
    }
    cadre_folding *b = &f->buckets[turn->bucket];
    const cadre_bucket *bucket = &f->o.buckets->buckets[turn->bucket];
    for (int r = 0; r < f->n; r++) {
        if (r != f->rank && b->node != NULL) {
            const cadre_bucket_part *part = &bucket->parts[r];
            cadre_bucket_point(part, b->node);
            b->sends[b->n_sends++] = (cadre_part){
                .peer = r,
                .runs = part->runs,
                .n_runs = (size_t)part->n_slices,
            };
        }
        if (!cadre_fold_has_block(f, r, turn->round)) {
            continue;
        }
        if (r == f->rank) {
            b->received[r] = keep_own(f, b);
            continue;
        }
        b->received[r] = cadre_owned_take(&b->own);
        b->array_runs[r] = (cadre_run){
            .data = b->received[r],
            .nbytes = b->own.part->count * sizeof(float),
        };
        b->receives[b->n_receives++] =
            (cadre_part){.peer = r, .runs = &b->array_runs[r], .n_runs = 1};
    }
}

// The nodes of a round go on the owner's tree, in block order.
static cadre_status finish(cadre_fold *f, const cadre_turn *turn)
{
    cadre_folding *b = &f->buckets[turn->bucket];
    if (cadre_fold_reaches(f, turn->round)) {
        CADRE_TRY(find_nodes(f, turn));
    }
    for (int r = 0; r < f->n; r++) {
        if (cadre_fold_has_block(f, r, turn->round)) {
            cadre_owned_push(&b->own, f->level, b->received[r]);
        }
    }
    return CADRE_OK;
}

const cadre_fold_way cadre_fold_direct = {
    .n_steps = n_steps,
    .n_arrays = n_arrays,
    .array_elements = array_elements,
    .prepare = prepare,
    .finish = finish,
};
