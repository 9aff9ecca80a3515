// SPDX-License-Identifier: Apache-2.0
//
// A fold around the ring of ranks: the sum of an element starts at the rank after
// its owner, every rank adds its own node to what it gets and passes it on, and
// the owner adds last.  A rank without a block passes on what it gets.
//
// In step s rank r sends the part of owner r - 1 - s to rank r + 1, and gets that
// of owner r - 2 - s from rank r - 1; after the last step that is its own.

#include "parallel/fold_impl.h"

#include "kernel/reduce.h"

// A group of one has a step as well, in which nothing travels.
static int n_steps(const cadre_fold *f)
{
    return f->n > 1 ? f->n - 1 : 1;
}

// What arrives and what goes on, and with more rounds what the tree keeps.
static int n_arrays(const cadre_fold *f)
{
    return 2 + (f->n_rounds > 1 ? cadre_fold_tree_arrays(f->n_rounds) : 0);
}

static size_t array_elements(const cadre_fold *f, int bucket)
{
    return f->o.buckets->buckets[bucket].most;
}

// Rank r - back, around the ring.
static int before(const cadre_fold *f, int rank, int back)
{
    return ((rank - back) % f->n + f->n) % f->n;
}

// The owner of what rank sends in a step.
static int owner_sent(const cadre_fold *f, int rank, int step)
{
    return before(f, rank, 1 + step);
}

// True if the sum for owner holds anything when rank has added its node: if any
// of the ranks after owner, up to rank, has a block.
static bool sum_is_begun(const cadre_fold *f, int round, int owner, int rank)
{
    for (int r = rank; r != owner; r = before(f, r, 1)) {
        if (cadre_fold_has_block(f, r, round)) {
            return true;
        }
    }
    return false;
}

static void list_send(cadre_fold *f, cadre_folding *b, const cadre_turn *turn)
{
    int owner = owner_sent(f, f->rank, turn->step);
    if (!sum_is_begun(f, turn->round, owner, f->rank)) {
        return;
    }
    const cadre_bucket_part *part =
        &f->o.buckets->buckets[turn->bucket].parts[owner];
    cadre_part *send = &b->sends[b->n_sends++];
    send->peer = (f->rank + 1) % f->n;
    if (turn->step == 0) { // this rank's own node
        cadre_bucket_point(part, b->node);
        send->runs = part->runs;
        send->n_runs = (size_t)part->n_slices;
        return;
    }
    b->array_runs[0] =
        (cadre_run){.data = b->passing, .nbytes = part->count * sizeof(float)};
    send->runs = &b->array_runs[0];
    send->n_runs = 1;
}

static void list_receive(
    cadre_fold *f, cadre_folding *b, const cadre_turn *turn)
{
    int from = before(f, f->rank, 1);
    int owner = owner_sent(f, from, turn->step);
    b->arriving = NULL;
    if (!sum_is_begun(f, turn->round, owner, from)) {
        return;
    }
    b->arriving = cadre_owned_take(&b->own);
    b->array_runs[1] = (cadre_run){
        .data = b->arriving,
        .nbytes = f->o.buckets->buckets[turn->bucket].parts[owner].count *
                  sizeof(float),
    };
    b->receives[b->n_receives++] =
        (cadre_part){.peer = from, .runs = &b->array_runs[1], .n_runs = 1};
}

static void prepare(cadre_fold *f, const cadre_turn *turn)
{
    if (f->n > 1) {
        cadre_folding *b = &f->buckets[turn->bucket];
        list_send(f, b, turn);
        list_receive(f, b, turn);
    }
}

// Adds this rank's node to what came, or begins the sum with it.
static float *add_own(
    cadre_folding *b, const cadre_bucket_part *part, float *sum)
{
    if (b->node == NULL) {
        return sum;
    }
    if (sum == NULL) {
        sum = cadre_owned_take(&b->own);
        cadre_bucket_pack(part, b->node, sum);
        return sum;
    }
    size_t packed = 0;
    for (int i = 0; i < part->n_slices; i++) {
        const cadre_slice *s = &part->slices[i];
        cadre_reduce(
            CADRE_F32, CADRE_SUM, sum + packed, b->node + s->offset, s->count);
        packed += s->count;
    }
    return sum;
}

static cadre_status finish(cadre_fold *f, const cadre_turn *turn)
{
    cadre_folding *b = &f->buckets[turn->bucket];
    if (b->passing != NULL) { // it has been sent
        cadre_owned_give_back(&b->own, b->passing);
        b->passing = NULL;
    }
    int owner = owner_sent(f, before(f, f->rank, 1), turn->step);
    const cadre_bucket_part *part =
        &f->o.buckets->buckets[turn->bucket].parts[owner];
    b->passing = add_own(b, part, f->n > 1 ? b->arriving : NULL);
    if (turn->step == n_steps(f) - 1) {
        cadre_owned_push(&b->own, f->level, b->passing);
        b->passing = NULL;
    }
    return CADRE_OK;
}

const cadre_fold_way cadre_fold_ring = {
    .n_steps = n_steps,
    .n_arrays = n_arrays,
    .array_elements = array_elements,
    .prepare = prepare,
    .finish = finish,
};
