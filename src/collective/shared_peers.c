// SPDX-License-Identifier: Apache-2.0

#include "collective/shared_impl.h"

#include "transport/frame.h"

// --- whose memory, and where ---

// Elements that a rank brings.
static size_t count_brought(
    const cadre_call *call, const size_t offsets[], int world_size, int rank)
{
    if (cadre_turns_reduces(call)) {
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

cadre_board_call cadre_shared_describe(
    cadre_shared *s, const cadre_shared_what *what)
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
    if (window == NULL && cadre_shared_describe(s, what).windowed) {
        CADRE_TRY(s->ops->alloc(
            s->t, cadre_turns_window_bytes(s->world_size), &window));
        s->window = window;
    }
    return CADRE_OK;
}

// --- counters ---

static _Atomic uint64_t *counter_of(
    const cadre_shared *s, int rank, cadre_board_counter which)
{
    return &s->members[rank].board->counters[which].turns;
}

void cadre_shared_count_up(
    cadre_shared *s, cadre_board_counter which, uint64_t turns)
{
    cadre_shared_member *me = &s->members[s->rank];
    uint64_t *mine = which == CADRE_BOARD_READY ? &me->ready : &me->done;
    uint64_t before = *mine;
    *mine = turns;
    atomic_store(counter_of(s, s->rank, which), s->n_turns + turns);
    bool is_last = true;
    for (int r = 0; r < s->world_size && is_last; r++) {
        uint64_t theirs = atomic_load(counter_of(s, r, which));
        // One that has counted nothing may only not be seen yet.
        is_last = r == s->rank || theirs == 0 || theirs > s->n_turns + before;
    }
    if (is_last) {
        s->ops->ring(s->t);
    }
}

// Turns of this collective that a counter says, whatever is written there.
static uint64_t turns_of(
    const cadre_shared *s, int rank, cadre_board_counter which)
{
    uint64_t turns = atomic_load(counter_of(s, rank, which)) - s->n_turns;
    if (turns > UINT64_MAX / 2) {
        return 0;
    }
    return turns < s->turns.n_turns ? turns : s->turns.n_turns;
}

// --- the others ---

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
    cadre_status status =
        name.offset % s->turns.element_bytes == 0
            ? s->ops->reach(s->t, peer, name, nbytes, &memory)
            : cadre_fail(CADRE_ERR_CORRUPT,
                  "rank %d names memory that is not aligned to its elements",
                  peer);
    if (status == CADRE_ERR_CORRUPT) {
        s->t->failed_peer = peer;
        return cadre_fail(CADRE_ERR_PEER_LOST,
            "what rank %d shares is unusable: %s", peer, cadre_error_text());
    }
    *out = memory;
    return status;
}

// A rank has begun its collective: it must be the same, on memory that is there.
static cadre_status meet(cadre_shared *s, int peer)
{
    cadre_shared_member *m = &s->members[peer];
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
        if (cadre_shared_is_allreduce(s)) {
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
    cadre_shared_member *m = &s->members[peer];
    // Before the counters: what they say now is then all they will ever say.
    bool left =
        atomic_load(&m->board->left) != 0 || s->ops->is_gone(s->t, peer);
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

cadre_status cadre_shared_look_around(cadre_shared *s)
{
    s->all_ready = s->members[s->rank].ready;
    s->all_done = s->members[s->rank].done;
    for (int r = 0; r < s->world_size; r++) {
        const cadre_shared_member *m = &s->members[r];
        if (r != s->rank) {
            CADRE_TRY(look_at(s, r));
        }
        s->all_ready = m->ready < s->all_ready ? m->ready : s->all_ready;
        s->all_done = m->done < s->all_done ? m->done : s->all_done;
    }
    return CADRE_OK;
}

bool cadre_shared_waits_for(const cadre_shared *s, int peer)
{
    const cadre_shared_member *me = &s->members[s->rank];
    const cadre_shared_member *m = &s->members[peer];
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
    cadre_board *mine = s->members[s->rank].board;
    if (atomic_load(&mine->left) == 0) {
        atomic_store(&mine->left, 1);
        s->ops->ring(s->t);
    }
}
