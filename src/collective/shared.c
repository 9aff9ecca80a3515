// SPDX-License-Identifier: Apache-2.0

#include "collective/shared.h"

#include "base/check.h"
#include "collective/board.h"
#include "collective/fan_in.h"
#include "collective/turns.h"
#include "transport/frame.h"
#include <string.h>

// A rank as this one sees it, itself included.
typedef struct member {
    cadre_board *board;
    bool met;       // its entry has been read, and is of the same call
    bool windowed;  // in and out are its window
    char *in;       // what it brings: all parts, or its own
    char *out;      // where it wants all parts; or NULL
    uint64_t ready; // turns of this collective
    uint64_t done;
    char *run_in; // of the run that is in work
    char *run_out;
} member;

struct cadre_shared {
    cadre_transport *t;
    const cadre_shared_ops *ops;
    int rank;
    int world_size;
    void *window; // of this rank, or NULL
    char *scratch;
    cadre_fan_in_leaf *leaves;

    // All collectives before this one.
    uint64_t n_calls;
    uint64_t n_turns;

    // The one that is under way.
    cadre_call call;
    char *send; // only read
    char *recv;
    cadre_turns turns;
    bool windowed;     // this rank's memory goes through its window
    bool any_windowed; // of those that have been met
    uint64_t taken;    // turns that have gone from the window to recv
    uint64_t all_ready;
    uint64_t all_done;
    member members[];
};

cadre_status cadre_shared_open(cadre_transport *t, cadre_shared **out)
{
    CADRE_ASSERT(t->ops->shared != NULL);
    size_t n = (size_t)t->world_size;
    cadre_shared *s = cadre_alloc_flex(sizeof(*s), n, sizeof(s->members[0]));
    if (s == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    s->scratch = cadre_alloc(cadre_fan_in_scratch_bytes(t->world_size));
    s->leaves = cadre_alloc_array(n, sizeof(*s->leaves));
    s->turns.offsets = cadre_alloc_array(n + 1, sizeof(*s->turns.offsets));
    if (s->scratch == NULL || s->leaves == NULL || s->turns.offsets == NULL) {
        cadre_shared_close(s);
        return CADRE_ERR_NO_MEMORY;
    }
    s->t = t;
    s->ops = t->ops->shared;
    s->rank = t->rank;
    s->world_size = t->world_size;
    for (int r = 0; r < s->world_size; r++) {
        s->members[r].board = s->ops->board(t, r);
    }
    *out = s;
    return CADRE_OK;
}

void cadre_shared_close(cadre_shared *s)
{
    if (s == NULL) {
        return;
    }
    cadre_free(s->turns.offsets);
    cadre_free(s->leaves);
    cadre_free(s->scratch);
    cadre_free(s);
}

// --- whose memory, and where ---

static bool brings_all(const cadre_call *call)
{
    return call->operation == CADRE_OP_ALLREDUCE ||
           call->operation == CADRE_OP_REDUCE_SCATTER;
}

static bool is_allreduce(const cadre_shared *s)
{
    return s->call.operation == CADRE_OP_ALLREDUCE;
}

// Elements that a rank brings.
static size_t count_brought(
    const cadre_call *call, const size_t offsets[], int world_size, int rank)
{
    if (brings_all(call)) {
        return offsets[world_size];
    }
    if (call->operation == CADRE_OP_BROADCAST) {
        return rank == call->root ? offsets[world_size] : 0;
    }
    return offsets[rank + 1] - offsets[rank];
}

static bool names(cadre_shared *s, const void *memory, size_t nbytes,
    size_t element_bytes, cadre_shared_name *out)
{
    return (uintptr_t)memory % element_bytes == 0 &&
           s->ops->name(s->t, memory, nbytes, out);
}

// Says what this rank's entry is to say, but for the window's name.
static cadre_board_call describe(cadre_shared *s, const cadre_shared_what *what)
{
    const cadre_call *call = what->call;
    cadre_board_call entry = {.call = *call};
    size_t element_bytes = cadre_dtype_bytes(call->dtype);
    size_t nbytes = count_brought(call, what->offsets, s->world_size, s->rank) *
                    element_bytes;
    if (nbytes == 0) {
        return entry;
    }
    bool in_place =
        names(s, what->send, nbytes, element_bytes, &entry.in) &&
        (call->operation != CADRE_OP_ALLREDUCE ||
            names(s, what->recv, nbytes, element_bytes, &entry.out));
    // The part would land on what other owners still read.
    if (call->operation == CADRE_OP_REDUCE_SCATTER &&
        what->send == what->recv) {
        in_place = false;
    }
    entry.windowed = !in_place;
    return entry;
}

cadre_status cadre_shared_reserve(
    cadre_shared *s, const cadre_shared_what *what)
{
    void *window = s->window;
    if (window == NULL && describe(s, what).windowed) {
        CADRE_TRY(s->ops->alloc(
            s->t, cadre_turns_window_bytes(s->world_size), &window));
        s->window = window;
    }
    return CADRE_OK;
}

static char *window_at(const cadre_shared *s, int part, uint64_t turn)
{
    return (char *)s->window +
           cadre_turns_in_window(&s->turns, s->world_size, part, turn);
}

// What a rank brings of a part's run.  What it gathers begins with its part.
static char *brought(
    const cadre_shared *s, const member *m, int part, uint64_t turn)
{
    if (m->windowed) {
        return m->in +
               cadre_turns_in_window(&s->turns, s->world_size, part, turn);
    }
    size_t begin = s->turns.reduces ? 0 : s->turns.offsets[part];
    size_t first = cadre_turns_run(&s->turns, part, turn).first - begin;
    return m->in + first * s->turns.element_bytes;
}

// --- the boards ---

// Counts up.  Who waits, waits until all ranks have come so far: so only the
// last of them has to ring.
static void count_up(
    cadre_shared *s, cadre_board_counter which, uint64_t from, uint64_t to)
{
    bool is_last = true;
    atomic_store(
        &s->members[s->rank].board->counters[which].turns, s->n_turns + to);
    for (int r = 0; r < s->world_size; r++) {
        is_last = is_last &&
                  (r == s->rank ||
                      atomic_load(&s->members[r].board->counters[which].turns) >
                          s->n_turns + from);
    }
    if (is_last) {
        s->ops->ring(s->t);
    }
}

static void set_ready(cadre_shared *s, uint64_t turns)
{
    member *me = &s->members[s->rank];
    count_up(s, CADRE_BOARD_READY, me->ready, turns);
    me->ready = turns;
}

static void set_done(cadre_shared *s, uint64_t turns)
{
    member *me = &s->members[s->rank];
    count_up(s, CADRE_BOARD_DONE, me->done, turns);
    me->done = turns;
}

// Turns of this collective that a counter says, whatever is written there.
static uint64_t turns_of(
    const cadre_shared *s, int rank, cadre_board_counter which)
{
    uint64_t turns =
        atomic_load(&s->members[rank].board->counters[which].turns) -
        s->n_turns;
    if (turns > UINT64_MAX / 2) {
        return 0;
    }
    return turns < s->turns.n_turns ? turns : s->turns.n_turns;
}

static cadre_status compare(
    const cadre_shared *s, int peer, const cadre_call *theirs)
{
    cadre_frame frame = {.call = *theirs, .sender = peer};
    return cadre_frame_compare(&frame, s->rank, &s->call, 0);
}

static cadre_status reach(cadre_shared *s, int peer, cadre_shared_name name,
    size_t nbytes, char **out)
{
    void *memory = NULL;
    if (name.offset % s->turns.element_bytes != 0) {
        return cadre_fail(CADRE_ERR_CORRUPT,
            "rank %d names memory that is not aligned to its elements", peer);
    }
    CADRE_TRY(s->ops->reach(s->t, peer, name, nbytes, &memory));
    *out = memory;
    return CADRE_OK;
}

// A rank has begun its collective: it must be the same, on memory that is there.
static cadre_status meet(cadre_shared *s, int peer)
{
    member *m = &s->members[peer];
    cadre_board_call entry;
    cadre_board_read(&m->board->entries[s->n_calls % 2], &entry);
    CADRE_TRY(compare(s, peer, &entry.call));

    size_t nbytes =
        count_brought(&s->call, s->turns.offsets, s->world_size, peer) *
        s->turns.element_bytes;
    m->windowed = entry.windowed;
    if (nbytes > 0 && entry.windowed) {
        CADRE_TRY(reach(s, peer, entry.in,
            cadre_turns_window_bytes(s->world_size), &m->in));
        m->out = m->in;
        s->any_windowed = true;
    } else if (nbytes > 0) {
        CADRE_TRY(reach(s, peer, entry.in, nbytes, &m->in));
        if (is_allreduce(s)) {
            CADRE_TRY(reach(s, peer, entry.out, nbytes, &m->out));
        }
    }
    m->met = true;
    return CADRE_OK;
}

// Not in this collective, so far.  Is it in an exchange?  It may have begun the
// collective, and been through with it, since it was looked at.
static cadre_status check_absent(cadre_shared *s, int peer)
{
    cadre_board *board = s->members[peer].board;
    cadre_board_call entry;
    cadre_board_read(&board->exchange, &entry);
    if (entry.call.sequence < s->call.sequence ||
        turns_of(s, peer, CADRE_BOARD_READY) > 0) {
        return CADRE_OK;
    }
    return compare(s, peer, &entry.call);
}

static cadre_status look_at(cadre_shared *s, int peer)
{
    member *m = &s->members[peer];
    // Before the counters: what they say now is then all they will ever say.
    bool left = atomic_load(&m->board->left) != 0;
    m->ready = turns_of(s, peer, CADRE_BOARD_READY);
    m->done = turns_of(s, peer, CADRE_BOARD_DONE);
    if (!m->met) {
        CADRE_TRY(m->ready > 0 ? meet(s, peer) : check_absent(s, peer));
    }
    if (left && m->done < s->turns.n_turns) {
        s->t->failed_peer = peer;
        return cadre_fail(CADRE_ERR_PEER_LOST, "rank %d has left", peer);
    }
    return CADRE_OK;
}

static cadre_status look_around(cadre_shared *s)
{
    s->all_ready = s->members[s->rank].ready;
    s->all_done = s->members[s->rank].done;
    for (int r = 0; r < s->world_size; r++) {
        const member *m = &s->members[r];
        if (r != s->rank) {
            CADRE_TRY(look_at(s, r));
        }
        s->all_ready = m->ready < s->all_ready ? m->ready : s->all_ready;
        s->all_done = m->done < s->all_done ? m->done : s->all_done;
    }
    return CADRE_OK;
}

// --- the work of a turn ---

// Copies what others are to read into this rank's window.
static void fill_window(cadre_shared *s, uint64_t turn)
{
    const cadre_turns *turns = &s->turns;
    for (int part = 0; part < s->world_size; part++) {
        bool is_own = part == s->rank;
        // What nobody else reads need not be there.
        if (turns->reduces ? is_own && !s->members[part].windowed : !is_own) {
            continue;
        }
        cadre_turn_run run = cadre_turns_run(turns, part, turn);
        size_t begin = turns->reduces ? 0 : turns->offsets[part];
        if (run.count > 0) {
            memcpy(window_at(s, part, turn),
                s->send + (run.first - begin) * turns->element_bytes,
                run.count * turns->element_bytes);
        }
    }
}

// Copies the sums of others from this rank's window to where they belong.
static void empty_window(cadre_shared *s, uint64_t turn)
{
    for (int part = 0; part < s->world_size; part++) {
        cadre_turn_run run = cadre_turns_run(&s->turns, part, turn);
        if (run.count > 0 && (part != s->rank || s->members[part].windowed)) {
            memcpy(s->recv + run.first * s->turns.element_bytes,
                window_at(s, part, turn), run.count * s->turns.element_bytes);
        }
    }
}

// Finds this rank's run in every rank's memory.
static void find_runs(cadre_shared *s, uint64_t turn)
{
    size_t first = cadre_turns_run(&s->turns, s->rank, turn).first;
    for (int r = 0; r < s->world_size; r++) {
        member *m = &s->members[r];
        m->run_in = brought(s, m, s->rank, turn);
        m->run_out =
            m->windowed ? m->run_in : m->out + first * s->turns.element_bytes;
    }
}

// Reduces elements of this rank's run to every rank: the sums are made where
// they belong.
static void reduce_to_all(
    cadre_shared *s, const cadre_fan_in *f, size_t at, size_t count)
{
    for (int r = 0; r < s->world_size; r++) {
        const member *m = &s->members[r];
        f->leaves[r] = (cadre_fan_in_leaf){m->run_in + at, m->run_out + at};
    }
    const void *result = cadre_fan_in_block(f, count);
    for (int r = 0; r < s->world_size; r++) {
        if (f->leaves[r].sum != result) {
            memcpy(f->leaves[r].sum, result, count * s->turns.element_bytes);
        }
    }
}

static void reduce_to_self(cadre_shared *s, const cadre_fan_in *f, size_t at,
    size_t count, char *target)
{
    for (int r = 0; r < s->world_size; r++) {
        f->leaves[r] = (cadre_fan_in_leaf){s->members[r].run_in + at, NULL};
    }
    memcpy(
        target, cadre_fan_in_block(f, count), count * s->turns.element_bytes);
}

static void reduce_run(cadre_shared *s, uint64_t turn)
{
    cadre_fan_in f = {
        .dtype = s->call.dtype,
        .op = s->call.reduce_op,
        .world_size = s->world_size,
        .leaves = s->leaves,
        .scratch = s->scratch,
    };
    size_t count = cadre_turns_run(&s->turns, s->rank, turn).count;
    size_t block = cadre_fan_in_elements(f.dtype);
    size_t before = (size_t)turn * s->turns.run_count;
    if (count > 0) {
        find_runs(s, turn);
    }
    for (size_t first = 0; first < count; first += block) {
        size_t n = count - first < block ? count - first : block;
        size_t at = first * s->turns.element_bytes;
        if (is_allreduce(s)) {
            reduce_to_all(s, &f, at, n);
        } else {
            reduce_to_self(
                s, &f, at, n, s->recv + before * s->turns.element_bytes + at);
        }
    }
}

// Copies what the others bring, beginning with the next rank, so that not all
// read the same memory at once.
static void gather_runs(cadre_shared *s, uint64_t turn)
{
    for (int i = 1; i < s->world_size; i++) {
        int r = (s->rank + i) % s->world_size;
        cadre_turn_run run = cadre_turns_run(&s->turns, r, turn);
        if (run.count > 0) {
            memcpy(s->recv + run.first * s->turns.element_bytes,
                brought(s, &s->members[r], r, turn),
                run.count * s->turns.element_bytes);
        }
    }
}

// --- progress ---

// Turns whose place in this rank's window is free again.
static uint64_t n_free(const cadre_shared *s)
{
    return (is_allreduce(s) ? s->taken : s->all_done) + CADRE_WINDOW_TURNS;
}

static void work_on(cadre_shared *s, uint64_t turn)
{
    if (s->turns.reduces) {
        reduce_run(s, turn);
    } else {
        gather_runs(s, turn);
    }
}

// One step of each kind that can be made now, the later ones of a turn first.
static bool move_on(cadre_shared *s)
{
    const member *me = &s->members[s->rank];
    bool moved = false;
    if (s->windowed && is_allreduce(s) && s->taken < s->all_done) {
        empty_window(s, s->taken);
        s->taken++;
        moved = true;
    }
    if (me->done < s->all_ready) {
        // Nobody waits for a turn, but who has a window.
        uint64_t end = s->any_windowed ? me->done + 1 : s->all_ready;
        for (uint64_t turn = me->done; turn < end; turn++) {
            work_on(s, turn);
        }
        set_done(s, end);
        moved = true;
    }
    if (me->ready < s->turns.n_turns && me->ready < n_free(s)) {
        fill_window(s, me->ready);
        set_ready(s, me->ready + 1);
        moved = true;
    }
    return moved;
}

static bool is_done(const cadre_shared *s)
{
    bool takes = s->windowed && is_allreduce(s);
    return (takes ? s->taken : s->all_done) == s->turns.n_turns;
}

// What other ranks read from this one by the schedule.
static uint64_t count_sent(const cadre_shared *s)
{
    const size_t *offsets = s->turns.offsets;
    size_t own = offsets[s->rank + 1] - offsets[s->rank];
    uint64_t count = 0;
    if (s->turns.reduces) {
        count += offsets[s->world_size] - own;
    }
    if (s->call.operation != CADRE_OP_REDUCE_SCATTER) {
        count += ((uint64_t)s->world_size - 1) * own;
    }
    return count * s->turns.element_bytes;
}

// The transport only reads what is sent.
static char *readable(const void *memory)
{
    union {
        const void *in;
        char *out;
    } pointer = {.in = memory};
    return pointer.out;
}

static void start(cadre_shared *s, const cadre_shared_what *what)
{
    s->call = *what->call;
    s->send = readable(what->send);
    s->recv = what->recv;
    s->turns = cadre_turns_lay_out(
        &s->call, s->world_size, what->offsets, s->turns.offsets);
    s->taken = 0;
    s->all_ready = 0;
    s->all_done = 0;
    for (int r = 0; r < s->world_size; r++) {
        s->members[r] = (member){.board = s->members[r].board};
    }
}

// Where this rank finds what it alone works on: where the caller has it, if the
// kernels can work there.
static void find_own(cadre_shared *s)
{
    member *me = &s->members[s->rank];
    size_t element_bytes = s->turns.element_bytes;
    me->met = true;
    me->windowed = s->windowed && ((uintptr_t)s->send % element_bytes != 0 ||
                                      (uintptr_t)s->recv % element_bytes != 0);
    me->in = me->windowed ? s->window : s->send;
    me->out = me->windowed ? s->window : s->recv;
}

// A gathering that is not in place has its own part still to be moved.
static void place_own_part(const cadre_shared *s)
{
    const size_t *offsets = &s->turns.offsets[s->rank];
    size_t nbytes = (offsets[1] - offsets[0]) * s->turns.element_bytes;
    if (nbytes > 0 &&
        s->recv + offsets[0] * s->turns.element_bytes != s->send) {
        memcpy(s->recv + offsets[0] * s->turns.element_bytes, s->send, nbytes);
    }
}

void cadre_shared_begin(cadre_shared *s, const cadre_shared_what *what)
{
    start(s, what);
    s->t->sent_payload_bytes += count_sent(s);
    cadre_board_call entry = describe(s, what);
    s->windowed = entry.windowed;
    s->any_windowed = entry.windowed;
    if (entry.windowed) {
        bool is_named = s->ops->name(s->t, s->window,
            cadre_turns_window_bytes(s->world_size), &entry.in);
        CADRE_ASSERT(is_named);
        (void)is_named;
    }
    find_own(s);
    cadre_board_write(
        &s->members[s->rank].board->entries[s->n_calls % 2], &entry);
    if (!entry.windowed) {
        set_ready(s, s->turns.n_turns);
    }
    if (!s->turns.reduces) {
        place_own_part(s);
    }
}

cadre_status cadre_shared_advance(cadre_shared *s, bool *done)
{
    do {
        CADRE_TRY(look_around(s));
    } while (move_on(s));
    *done = is_done(s);
    if (*done) {
        s->n_calls++;
        s->n_turns += s->turns.n_turns;
    }
    return CADRE_OK;
}

bool cadre_shared_waits_for(const cadre_shared *s, int peer)
{
    const member *me = &s->members[s->rank];
    const member *m = &s->members[peer];
    return s->all_ready <= me->done && me->done < s->turns.n_turns
               ? m->ready <= me->done
               : m->done <= s->all_done;
}

void cadre_shared_note_exchange(cadre_shared *s, const cadre_call *call)
{
    cadre_board_call entry = {.call = *call};
    cadre_board_write(&s->members[s->rank].board->exchange, &entry);
    s->ops->ring(s->t);
}

void cadre_shared_leave(cadre_shared *s)
{
    atomic_store(&s->members[s->rank].board->left, 1);
    s->ops->ring(s->t);
}
