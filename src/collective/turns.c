// SPDX-License-Identifier: Apache-2.0

#include "collective/turns.h"

#include "base/alloc.h"
#include "collective/schedule.h"

// One turn of all parts.  Windows of a few ranks fit into the caches, and what
// ranks tell each other once a turn is nothing beside its work.
enum { TURN_BYTES = 256 * 1024 };

// Bytes of a run: all runs of a reduction share a turn, and begin with a line.
static size_t reduced_run_bytes(int world_size)
{
    size_t n = (size_t)world_size;
    size_t lines = TURN_BYTES / CADRE_CACHE_LINE / n;
    return (lines > 0 ? lines : 1) * CADRE_CACHE_LINE;
}

static size_t turn_bytes(int world_size)
{
    size_t nbytes = (size_t)world_size * reduced_run_bytes(world_size);
    return nbytes > TURN_BYTES ? nbytes : TURN_BYTES;
}

size_t cadre_turns_window_bytes(int world_size)
{
    return CADRE_WINDOW_TURNS * turn_bytes(world_size);
}

bool cadre_turns_reduces(const cadre_call *call)
{
    return call->operation == CADRE_OP_ALLREDUCE ||
           call->operation == CADRE_OP_REDUCE_SCATTER;
}

// As equal as whole cache lines allow.
static void split_by_lines(
    size_t count, size_t element_bytes, int world_size, size_t offsets[])
{
    size_t of_line = CADRE_CACHE_LINE / element_bytes;
    cadre_split_evenly(
        count / of_line + (count % of_line != 0), world_size, offsets);
    for (int r = 1; r <= world_size; r++) {
        offsets[r] *= of_line;
        if (offsets[r] > count) {
            offsets[r] = count;
        }
    }
}

static void lay_out_parts(const cadre_call *call, size_t element_bytes,
    int world_size, const size_t given[], size_t offsets[])
{
    size_t count = given[world_size];
    if (call->operation == CADRE_OP_ALLREDUCE) {
        split_by_lines(count, element_bytes, world_size, offsets);
        return;
    }
    for (int r = 0; r <= world_size; r++) {
        offsets[r] = call->operation != CADRE_OP_BROADCAST ? given[r]
                     : r > call->root                      ? count
                                                           : 0;
    }
}

cadre_turns cadre_turns_lay_out(const cadre_call *call, int world_size,
    const size_t given[], size_t offsets[])
{
    cadre_turns turns = {
        .reduces = cadre_turns_reduces(call),
        .element_bytes = cadre_dtype_bytes(call->dtype),
        .offsets = offsets,
        .n_turns = 1,
    };
    turns.run_count =
        (turns.reduces ? reduced_run_bytes(world_size) : TURN_BYTES) /
        turns.element_bytes;
    lay_out_parts(call, turns.element_bytes, world_size, given, offsets);
    for (int r = 0; r < world_size; r++) {
        size_t count = offsets[r + 1] - offsets[r];
        uint64_t n = count / turns.run_count + (count % turns.run_count != 0);
        if (n > turns.n_turns) {
            turns.n_turns = n;
        }
    }
    return turns;
}

cadre_turn_run cadre_turns_run(
    const cadre_turns *turns, int part, uint64_t turn)
{
    size_t count = turns->offsets[part + 1] - turns->offsets[part];
    size_t before = (size_t)turn * turns->run_count;
    before = before < count ? before : count;
    size_t left = count - before;
    return (cadre_turn_run){
        .first = turns->offsets[part] + before,
        .count = left < turns->run_count ? left : turns->run_count,
    };
}

size_t cadre_turns_in_window(
    const cadre_turns *turns, int world_size, int part, uint64_t turn)
{
    size_t at = (size_t)(turn % CADRE_WINDOW_TURNS) * turn_bytes(world_size);
    return turns->reduces ? at + (size_t)part * reduced_run_bytes(world_size)
                          : at;
}
