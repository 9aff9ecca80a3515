// SPDX-License-Identifier: Apache-2.0

#include "collective/schedule.h"

#include "base/check.h"

int cadre_schedule_phases(
    cadre_operation operation, cadre_phase phases[CADRE_MAX_PHASES])
{
    switch (operation) {
    case CADRE_OP_ALLREDUCE:
        phases[0] = CADRE_PHASE_SCATTER;
        phases[1] = CADRE_PHASE_GATHER;
        return 2;
    case CADRE_OP_REDUCE_SCATTER:
        phases[0] = CADRE_PHASE_SCATTER;
        return 1;
    case CADRE_OP_ALLGATHER:
        phases[0] = CADRE_PHASE_GATHER;
        return 1;
    case CADRE_OP_BROADCAST:
        phases[0] = CADRE_PHASE_ROOT;
        return 1;
    case CADRE_OP_BARRIER:
        phases[0] = CADRE_PHASE_MEET;
        return 1;
    case CADRE_OP_FOLD:
    case CADRE_OP_GATHER:
    case CADRE_OP_CONTROL:
        break; // the engine's: it says itself who sends what
    }
    CADRE_ASSERT(false && "an operation without a schedule");
    return 0;
}

cadre_move cadre_schedule_move(cadre_phase phase, const size_t offsets[],
    int world_size, int root, int rank, int peer)
{
    size_t own = offsets[rank];
    size_t own_count = offsets[rank + 1] - own;
    size_t theirs = offsets[peer];
    size_t their_count = offsets[peer + 1] - theirs;
    size_t total = offsets[world_size];

    switch (phase) {
    case CADRE_PHASE_SCATTER:
        return (cadre_move){theirs, their_count, own, own_count};
    case CADRE_PHASE_GATHER:
        return (cadre_move){own, own_count, theirs, their_count};
    case CADRE_PHASE_ROOT:
        return (cadre_move){
            .send_count = rank == root ? total : 0,
            .receive_count = peer == root ? total : 0,
        };
    case CADRE_PHASE_MEET:
        break;
    }
    return (cadre_move){0};
}

void cadre_split_evenly(size_t count, int world_size, size_t offsets[])
{
    size_t n = (size_t)world_size;
    size_t each = count / n;
    size_t longer = count % n; // the first parts have one more
    offsets[0] = 0;
    for (size_t r = 0; r < n; r++) {
        offsets[r + 1] = offsets[r] + each + (r < longer ? 1 : 0);
    }
}
