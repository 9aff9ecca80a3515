// SPDX-License-Identifier: Apache-2.0

#include "collective/shared_impl.h"

#include "base/check.h"
#include <string.h>

cadre_status cadre_shared_open(cadre_transport *t, cadre_shared **out)
{
    CADRE_ASSERT(t->ops->shared != NULL);
    size_t n = (size_t)t->world_size;
    cadre_shared *s = cadre_alloc_flex(sizeof(*s), n, sizeof(s->members[0]));
    if (s == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    s->scratch = cadre_alloc(cadre_fan_in_scratch_bytes(t->world_size));
    s->in = cadre_alloc_array(n, sizeof(*s->in));
    s->to = cadre_alloc_array(n, sizeof(*s->to));
    s->turns.offsets = cadre_alloc_array(n + 1, sizeof(*s->turns.offsets));
    if (s->scratch == NULL || s->in == NULL || s->to == NULL ||
        s->turns.offsets == NULL) {
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
    cadre_free(s->to);
    cadre_free(s->in);
    cadre_free(s->scratch);
    cadre_free(s);
}

// Turns whose place in this rank's window is free again.
static uint64_t n_free(const cadre_shared *s)
{
    return (cadre_shared_is_allreduce(s) ? s->taken : s->all_done) +
           CADRE_WINDOW_TURNS;
}

// One step of each kind that can be made now, the later ones of a turn first.
static bool move_on(cadre_shared *s)
{
    const cadre_shared_member *me = &s->members[s->rank];
    bool moved = false;
    if (s->windowed && cadre_shared_is_allreduce(s) && s->taken < s->all_done) {
        cadre_shared_empty_window(s, s->taken);
        s->taken++;
        moved = true;
    }
    if (me->done < s->all_ready) {
        // Nobody waits for a turn, but who has a window.
        uint64_t end = s->any_windowed ? me->done + 1 : s->all_ready;
        for (uint64_t turn = me->done; turn < end; turn++) {
            cadre_shared_do_turn(s, turn);
        }
        cadre_shared_count_up(s, CADRE_BOARD_DONE, end);
        moved = true;
    }
    if (me->ready < s->turns.n_turns && me->ready < n_free(s)) {
        cadre_shared_fill_window(s, me->ready);
        cadre_shared_count_up(s, CADRE_BOARD_READY, me->ready + 1);
        moved = true;
    }
    return moved;
}

static bool is_done(const cadre_shared *s)
{
    bool takes = s->windowed && cadre_shared_is_allreduce(s);
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
    s->announced = false;
    s->taken = 0;
    s->all_ready = 0;
    s->all_done = 0;
    for (int r = 0; r < s->world_size; r++) {
        s->members[r] = (cadre_shared_member){.board = s->members[r].board};
    }
}

// Where this rank finds what it alone works on: where the caller has it, if the
// kernels can work there.
static void find_own(cadre_shared *s)
{
    cadre_shared_member *me = &s->members[s->rank];
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

// Writes the entry, once.  False if that has to wait: a window has a name only
// when all peers have heard of it.
static bool announce(cadre_shared *s)
{
    if (s->announced) {
        return true;
    }
    if (s->windowed &&
        !s->ops->name(s->t, s->window, cadre_turns_window_bytes(s->world_size),
            &s->entry.in)) {
        return false;
    }
    cadre_board_write(
        &s->members[s->rank].board->entries[s->n_calls % 2], &s->entry);
    if (!s->windowed) {
        cadre_shared_count_up(s, CADRE_BOARD_READY, s->turns.n_turns);
    }
    s->announced = true;
    return true;
}

void cadre_shared_begin(cadre_shared *s, const cadre_shared_what *what)
{
    start(s, what);
    s->t->sent_payload_bytes += count_sent(s);
    s->entry = cadre_shared_describe(s, what);
    s->windowed = s->entry.windowed;
    s->any_windowed = s->windowed;
    find_own(s);
    if (!s->turns.reduces) {
        place_own_part(s);
    }
    (void)announce(s); // else when it goes on
}

cadre_status cadre_shared_advance(cadre_shared *s, bool *done)
{
    do {
        CADRE_TRY(cadre_shared_look_around(s));
    } while (announce(s) && move_on(s));
    *done = is_done(s);
    if (*done) {
        s->n_calls++;
        s->n_turns += s->turns.n_turns;
    }
    return CADRE_OK;
}
