// SPDX-License-Identifier: Apache-2.0

#include "parallel/fold_impl.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"

// --- making ---

int cadre_fold_tree_arrays(int n_nodes)
{
    int bits = 0;
    while (bits < 31 && 1 << bits < n_nodes) {
        bits++;
    }
    return bits + 2;
}

// The tables of pointers of all buckets, in one block of memory.
static cadre_status make_tables(cadre_fold *f)
{
    size_t n = (size_t)f->n;
    // The ring has two runs of arrays, also in a group of one.
    size_t n_runs = n < 2 ? 2 : n;
    size_t n_arrays = (size_t)f->n_arrays;
    size_t per_bucket = n_arrays * sizeof(float *) + n * sizeof(float *) +
                        n_runs * sizeof(cadre_run) + 2 * n * sizeof(cadre_part);
    size_t n_buckets = (size_t)f->o.buckets->n_buckets;
    char *at = cadre_alloc_array(n_buckets, per_bucket);
    f->buckets = cadre_alloc_array(n_buckets, sizeof(*f->buckets));
    f->tables = at;
    if (at == NULL || f->buckets == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    // Every element is a multiple of a pointer's size, so all stay aligned.
    for (size_t i = 0; i < n_buckets; i++) {
        cadre_folding *b = &f->buckets[i];
        b->own.part = &f->o.buckets->buckets[i].parts[f->rank];
        b->own.free = (float **)(void *)at;
        at += n_arrays * sizeof(float *);
        b->received = (float **)(void *)at;
        at += n * sizeof(float *);
        b->array_runs = (cadre_run *)(void *)at;
        at += n_runs * sizeof(cadre_run);
        b->sends = (cadre_part *)(void *)at;
        at += n * sizeof(cadre_part);
        b->receives = (cadre_part *)(void *)at;
        at += n * sizeof(cadre_part);
    }
    return CADRE_OK;
}

// Of an array, one at least, so that arrays are told apart.
static size_t array_elements(const cadre_fold *f, int bucket)
{
    size_t elements = f->way->array_elements(f, bucket);
    return elements == 0 ? 1 : elements;
}

static cadre_status make_arrays(cadre_fold *f)
{
    size_t total = 0;
    for (int i = 0; i < f->o.buckets->n_buckets; i++) {
        total += array_elements(f, i) * (size_t)f->n_arrays;
    }
    f->arrays_bytes = total * sizeof(float);
    f->arrays = cadre_alloc(f->arrays_bytes);
    return f->arrays == NULL ? CADRE_ERR_NO_MEMORY : CADRE_OK;
}

static cadre_status make_parts(cadre_fold *f)
{
    CADRE_TRY(cadre_sequence_init(&f->sequence, f->n_rounds,
        f->o.buckets->n_buckets, f->way->n_steps(f), f->o.published == NULL));
    f->n_arrays = f->local ? 0 : f->way->n_arrays(f);
    CADRE_TRY(make_tables(f));
    return make_arrays(f);
}

cadre_status cadre_fold_create(
    const cadre_fold_options *options, cadre_fold **out)
{
    cadre_fold *f = cadre_alloc(sizeof(*f));
    if (f == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    const cadre_dealing *d = &options->leaves->dealing;
    bool ring = cadre_group_order(options->group) == CADRE_ORDER_RING;
    f->o = *options;
    f->way = ring ? &cadre_fold_ring : &cadre_fold_direct;
    f->rank = cadre_rank(options->group);
    f->n = cadre_world_size(options->group);
    f->n_rounds = cadre_dealing_rounds(d);
    f->level = cadre_dealing_level(d);
    f->local = cadre_dealing_blocks(d) == 1 && f->n == 1;
    f->layout_hash = cadre_layout_hash(options->layout);
    cadre_status status = make_parts(f);
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
    cadre_sequence_fini(&fold->sequence);
    cadre_free(fold->arrays);
    cadre_free(fold->buckets);
    cadre_free(fold->tables);
    cadre_free(fold);
}

static int turns(const cadre_fold *f)
{
    return f->local ? 0 : f->sequence.n_turns;
}

int cadre_fold_exchanges(const cadre_fold *fold)
{
    return turns(fold);
}

void cadre_fold_begin(cadre_fold *f, cadre_record *record)
{
    f->record = record;
    float *array = f->arrays;
    for (int i = 0; i < f->o.buckets->n_buckets; i++) {
        cadre_folding *b = &f->buckets[i];
        size_t elements = array_elements(f, i);
        cadre_owned_begin(&b->own, array, f->n_arrays, elements);
        array += elements * (size_t)f->n_arrays;
        b->rounds_done = 0;
        b->steps_done = 0;
        b->node = NULL;
        b->passing = NULL;
    }
    f->posted = 0;
    f->finished = 0;
    f->n_gathered = 0;
    f->past_control = false;
    f->n_updated = 0;
    f->result = NULL;
    f->squares = (cadre_exact){0};
    f->finite = true;
    f->busy_ns = 0;
}

// --- posting ---

static void note(cadre_fold *f, cadre_event_kind kind, int number)
{
    if (f->record == NULL) {
        return;
    }
    cadre_turn turn = cadre_sequence_at(&f->sequence, number);
    const cadre_folding *b = &f->buckets[turn.bucket];
    cadre_event event = {
        .kind = kind,
        .nbytes = b->unsent,
        .leaf = -1,
        .index = number,
        .bucket = turn.bucket,
        .round = turn.kind == CADRE_TURN_FOLD ? turn.round : -1,
        .gather = turn.kind != CADRE_TURN_FOLD,
    };
    for (int i = 0; i < b->n_sends; i++) {
        for (size_t j = 0; j < b->sends[i].n_runs; j++) {
            event.nbytes += b->sends[i].runs[j].nbytes;
        }
    }
    cadre_record_note(f->record, event);
}

static cadre_call call_of(const cadre_fold *f, const cadre_turn *turn)
{
    uint64_t which[3] = {
        (uint64_t)turn->round, (uint64_t)turn->bucket, (uint64_t)turn->step};
    bool fold = turn->kind == CADRE_TURN_FOLD;
    return (cadre_call){
        .operation = fold ? CADRE_OP_FOLD : CADRE_OP_GATHER,
        .dtype = CADRE_F32,
        .reduce_op = CADRE_SUM,
        .root = -1,
        .count = f->o.buckets->buckets[turn->bucket].count,
        .detail = cadre_hash(which, sizeof(which), f->layout_hash),
    };
}

// Points a part's runs to where it travels from or to.
static void point(const cadre_fold *f, const cadre_bucket_part *part)
{
    if (f->o.published != NULL) {
        cadre_bucket_point_apart(part, f->o.layout, f->o.published);
    } else {
        cadre_bucket_point(part, f->result);
    }
}

// Everybody has the owned part; peers are told so by frames without payload.
static void prepare_word(cadre_fold *f, const cadre_turn *turn)
{
    cadre_folding *b = &f->buckets[turn->bucket];
    for (int r = 0; r < f->n; r++) {
        if (r != f->rank) {
            b->sends[b->n_sends++] = (cadre_part){.peer = r};
            b->receives[b->n_receives++] = (cadre_part){.peer = r};
            b->unsent += b->own.part->count * sizeof(float);
        }
    }
}

// Everybody gets the owned part.
static void prepare_gather(cadre_fold *f, const cadre_turn *turn)
{
    const cadre_bucket *bucket = &f->o.buckets->buckets[turn->bucket];
    cadre_folding *b = &f->buckets[turn->bucket];
    const cadre_bucket_part *own = b->own.part;
    if (turn->kind == CADRE_TURN_GATHER && b->own.sum != b->own.plane) {
        cadre_bucket_unpack(own, b->own.sum, f->result);
    }
    point(f, own);
    for (int r = 0; r < f->n; r++) {
        if (r == f->rank) {
            continue;
        }
        const cadre_bucket_part *part = &bucket->parts[r];
        point(f, part);
        b->sends[b->n_sends++] = (cadre_part){
            .peer = r, .runs = own->runs, .n_runs = (size_t)own->n_slices};
        b->receives[b->n_receives++] = (cadre_part){
            .peer = r, .runs = part->runs, .n_runs = (size_t)part->n_slices};
    }
}

// A fold's first step needs this rank's node, and the round before folded.
static bool can_begin_fold(cadre_fold *f, const cadre_turn *turn)
{
    cadre_folding *b = &f->buckets[turn->bucket];
    if (b->rounds_done < turn->round) {
        return false;
    }
    b->node = NULL;
    if (!cadre_fold_has_block(f, f->rank, turn->round)) {
        return true;
    }
    if (!f->o.overlap && !cadre_leaves_block_closed(f->o.leaves, turn->round)) {
        return false;
    }
    b->node = cadre_leaves_node(f->o.leaves, turn->round, turn->bucket);
    return b->node != NULL;
}

static bool can_post(cadre_fold *f, const cadre_turn *turn)
{
    const cadre_folding *b = &f->buckets[turn->bucket];
    switch (turn->kind) {
    case CADRE_TURN_FOLD:
        return turn->step == 0 ? can_begin_fold(f, turn)
                               : b->rounds_done == turn->round &&
                                     b->steps_done == turn->step;
    case CADRE_TURN_GATHER:
        if (b->rounds_done < f->n_rounds) {
            return false;
        }
        if (f->result == NULL) {
            f->result = cadre_leaves_result(f->o.leaves);
        }
        return f->result != NULL;
    case CADRE_TURN_PUBLISH:
        return turn->bucket < f->n_updated;
    }
    return false;
}

static cadre_status post(cadre_fold *f, const cadre_turn *turn)
{
    cadre_folding *b = &f->buckets[turn->bucket];
    b->n_sends = 0;
    b->n_receives = 0;
    b->unsent = 0;
    if (turn->kind == CADRE_TURN_FOLD) {
        f->way->prepare(f, turn);
    } else if (turn->kind == CADRE_TURN_PUBLISH && f->o.put) {
        prepare_word(f, turn);
    } else {
        prepare_gather(f, turn);
    }
    if (f->posted == f->finished) {
        f->busy_since_ns = cadre_now_ns();
    }
    note(f, CADRE_EVENT_POSTED, f->posted);
    CADRE_TRY(cadre_exchange(f->o.group, call_of(f, turn), b->sends, b->n_sends,
        b->receives, b->n_receives, &f->works[f->posted % CADRE_FOLD_POSTED]));
    cadre_group_count_sent(f->o.group, b->unsent);
    note(f, CADRE_EVENT_STARTED, f->posted);
    f->posted++;
    return CADRE_OK;
}

// Turns that may be posted by now.
static int turns_open(const cadre_fold *f)
{
    return f->local || f->past_control ? turns(f)
                                       : f->sequence.n_before_control;
}

static cadre_status post_ready(cadre_fold *f)
{
    while (f->posted < turns_open(f) &&
           f->posted - f->finished < CADRE_FOLD_POSTED) {
        cadre_turn turn = cadre_sequence_at(&f->sequence, f->posted);
        if (!can_post(f, &turn)) {
            break;
        }
        CADRE_TRY(post(f, &turn));
    }
    return CADRE_OK;
}

// --- finishing ---

static cadre_status finish_fold(cadre_fold *f, const cadre_turn *turn)
{
    cadre_folding *b = &f->buckets[turn->bucket];
    CADRE_TRY(f->way->finish(f, turn));
    if (++b->steps_done < f->sequence.n_steps) {
        return CADRE_OK;
    }
    b->steps_done = 0;
    b->rounds_done++;
    bool last_round = turn->round == f->n_rounds - 1;
    if (last_round) {
        cadre_owned_close(&b->own);
        f->finite =
            cadre_owned_squares(&b->own, f->o.layout, &f->squares) && f->finite;
    }
    // The last node stays: its array takes the result (leaves.h).
    bool last_bucket = turn->bucket == f->o.buckets->n_buckets - 1;
    if (last_bucket && !last_round && b->node != NULL) {
        cadre_leaves_release(f->o.leaves, turn->round);
    }
    return CADRE_OK;
}

// The oldest exchange is done.
static cadre_status finish_next(cadre_fold *f)
{
    cadre_turn turn = cadre_sequence_at(&f->sequence, f->finished);
    cadre_work *work = f->works[f->finished % CADRE_FOLD_POSTED];
    f->works[f->finished % CADRE_FOLD_POSTED] = NULL; // waiting releases it
    CADRE_TRY(cadre_work_wait(work, 0));
    if (turn.kind == CADRE_TURN_FOLD) {
        CADRE_TRY(finish_fold(f, &turn));
    } else if (turn.kind == CADRE_TURN_GATHER) {
        f->n_gathered++;
    }
    note(f, CADRE_EVENT_FINISHED, f->finished);
    f->finished++;
    if (f->finished == f->posted) {
        f->busy_ns += cadre_now_ns() - f->busy_since_ns;
    }
    return CADRE_OK;
}

cadre_status cadre_fold_advance(cadre_fold *fold, bool wait)
{
    cadre_deadline deadline = cadre_group_deadline(fold->o.group);
    CADRE_TRY(post_ready(fold));
    while (fold->finished < fold->posted) {
        bool done = false;
        cadre_work *oldest = fold->works[fold->finished % CADRE_FOLD_POSTED];
        CADRE_TRY(wait ? cadre_work_await(oldest, deadline, &done)
                       : cadre_work_test(oldest, &done));
        if (done) {
            CADRE_TRY(finish_next(fold));
            wait = false;
        } else if (!wait || atomic_load(fold->o.interrupted)) {
            break;
        }
        // Whoever woke this thread may have completed a chunk.
        CADRE_TRY(post_ready(fold));
    }
    return CADRE_OK;
}

// --- queries and the outcome ---

int cadre_fold_posted(const cadre_fold *fold)
{
    return fold->posted;
}

int cadre_fold_finished(const cadre_fold *fold)
{
    return fold->finished;
}

bool cadre_fold_summed(const cadre_fold *fold)
{
    return fold->local || (fold->finished >= fold->sequence.n_until_folded &&
                              fold->posted >= fold->sequence.n_before_control);
}

void cadre_fold_go_on(cadre_fold *fold)
{
    fold->past_control = true;
}

bool cadre_fold_gathered(const cadre_fold *fold, int bucket)
{
    return fold->local || bucket < fold->n_gathered;
}

bool cadre_fold_done(const cadre_fold *fold)
{
    return fold->finished == turns(fold);
}

void cadre_fold_abandon(cadre_fold *fold)
{
    // The group is broken, so each of these returns at once.
    for (; fold->finished < fold->posted; fold->finished++) {
        cadre_work **work = &fold->works[fold->finished % CADRE_FOLD_POSTED];
        if (*work != NULL && cadre_work_wait(*work, 0) != CADRE_OK) {
            // The first cause is known already.
        }
        *work = NULL;
    }
}

// The block's node is the sum.
static void sum_alone(cadre_fold *f)
{
    f->result = cadre_leaves_result(f->o.leaves);
    for (int i = 0; i < f->o.buckets->n_buckets; i++) {
        cadre_owned *own = &f->buckets[i].own;
        own->plane = f->result;
        own->sum = f->result;
        f->finite =
            cadre_owned_squares(own, f->o.layout, &f->squares) && f->finite;
    }
}

void cadre_fold_take(cadre_fold *fold, cadre_fold_sum *out)
{
    if (fold->local) {
        sum_alone(fold);
    }
    cadre_exact_settle(&fold->squares);
    *out = (cadre_fold_sum){
        .squares = fold->squares,
        .finite = fold->finite,
    };
}

const float *cadre_fold_result(const cadre_fold *fold)
{
    return fold->result;
}

const cadre_owned *cadre_fold_owned(const cadre_fold *fold, int bucket)
{
    return &fold->buckets[bucket].own;
}

void cadre_fold_publish(cadre_fold *fold)
{
    CADRE_ASSERT(fold->n_updated < fold->o.buckets->n_buckets);
    fold->n_updated++;
}

int64_t cadre_fold_busy_ns(const cadre_fold *fold)
{
    bool busy = fold->posted > fold->finished;
    return fold->busy_ns + (busy ? cadre_now_ns() - fold->busy_since_ns : 0);
}

uint64_t cadre_fold_bytes(const cadre_fold *fold)
{
    return fold->arrays_bytes;
}
