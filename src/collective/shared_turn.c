// SPDX-License-Identifier: Apache-2.0

#include "collective/shared_impl.h"

#include <string.h>

static char *window_at(const cadre_shared *s, int part, uint64_t turn)
{
    return (char *)s->window +
           cadre_turns_in_window(&s->turns, s->world_size, part, turn);
}

// What a rank brings of a part's run.  What it gathers begins with its part.
static char *brought(const cadre_shared *s, const cadre_shared_member *m,
    int part, uint64_t turn)
{
    if (m->windowed) {
        return m->in +
               cadre_turns_in_window(&s->turns, s->world_size, part, turn);
    }
    size_t begin = s->turns.reduces ? 0 : s->turns.offsets[part];
    size_t first = cadre_turns_run(&s->turns, part, turn).first - begin;
    return m->in + first * s->turns.element_bytes;
}

void cadre_shared_fill_window(cadre_shared *s, uint64_t turn)
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

void cadre_shared_empty_window(cadre_shared *s, uint64_t turn)
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
        cadre_shared_member *m = &s->members[r];
        m->run_in = brought(s, m, s->rank, turn);
        m->run_out =
            m->windowed ? m->run_in : m->out + first * s->turns.element_bytes;
    }
}

// Where the results of an all-reduce go: to every rank.
static int aim_at_all(const cadre_shared *s, size_t at)
{
    for (int r = 0; r < s->world_size; r++) {
        s->to[r] = s->members[r].run_out + at;
    }
    return s->world_size;
}

static int aim_at_self(const cadre_shared *s, char *target)
{
    s->to[0] = target;
    return 1;
}

static void reduce_run(cadre_shared *s, uint64_t turn)
{
    cadre_fan_in f = {
        .dtype = s->call.dtype,
        .op = s->call.reduce_op,
        .world_size = s->world_size,
        .in = s->in,
        .to = s->to,
        .scratch = s->scratch,
    };
    size_t count = cadre_turns_run(&s->turns, s->rank, turn).count;
    size_t block =
        cadre_fan_in_is_direct(&f) ? count : cadre_fan_in_elements(f.dtype);
    char *target = s->recv + turn * s->turns.run_count * s->turns.element_bytes;
    if (count > 0) {
        find_runs(s, turn);
    }
    for (size_t first = 0; first < count; first += block) {
        size_t n = count - first < block ? count - first : block;
        size_t at = first * s->turns.element_bytes;
        for (int r = 0; r < s->world_size; r++) {
            s->in[r] = s->members[r].run_in + at;
        }
        f.n_to = cadre_shared_is_allreduce(s) ? aim_at_all(s, at)
                                              : aim_at_self(s, target + at);
        cadre_fan_in_block(&f, n);
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

void cadre_shared_do_turn(cadre_shared *s, uint64_t turn)
{
    if (s->turns.reduces) {
        reduce_run(s, turn);
    } else {
        gather_runs(s, turn);
    }
}
