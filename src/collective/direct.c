// SPDX-License-Identifier: Apache-2.0

#include "collective/direct.h"

#include "collective/schedule.h"
#include <string.h>

static size_t own_count(const cadre_direct *d)
{
    return d->offsets[d->rank + 1] - d->offsets[d->rank];
}

static char *at_element(const cadre_direct *d, void *base, size_t offset)
{
    return base == NULL
               ? NULL
               : (char *)base + offset * cadre_dtype_bytes(d->call.dtype);
}

static bool reduces(const cadre_direct *d)
{
    return d->call.operation == CADRE_OP_ALLREDUCE ||
           d->call.operation == CADRE_OP_REDUCE_SCATTER;
}

// Where this rank's own part of the result lies.
static char *own_result(const cadre_direct *d)
{
    bool at_front = d->call.operation == CADRE_OP_REDUCE_SCATTER;
    return at_element(d, d->recv, at_front ? 0 : d->offsets[d->rank]);
}

size_t cadre_direct_memory_bytes(const cadre_direct *d)
{
    return reduces(d)
               ? cadre_parts_bytes(d->world_size, d->call.dtype, own_count(d))
               : 0;
}

// The transport only reads the runs of a send, but shares their type with those
// of a receive.
static void *readable(const void *memory)
{
    union {
        const void *in;
        void *out;
    } pointer = {.in = memory};
    return pointer.out;
}

static cadre_run send_run(
    const cadre_direct *d, cadre_phase phase, cadre_move move)
{
    // Gathering works inside recv, where the own part is already.
    void *base = phase == CADRE_PHASE_SCATTER ? readable(d->send) : d->recv;
    return (cadre_run){at_element(d, base, move.send_offset),
        move.send_count * cadre_dtype_bytes(d->call.dtype)};
}

static cadre_run receive_run(
    const cadre_direct *d, cadre_phase phase, cadre_move move, int peer)
{
    void *target = phase == CADRE_PHASE_SCATTER
                       ? cadre_parts_of(&d->parts, peer)
                       : at_element(d, d->recv, move.receive_offset);
    return (cadre_run){
        target, move.receive_count * cadre_dtype_bytes(d->call.dtype)};
}

// Posts a frame to and from every peer, beginning with the next rank, so that
// not all ranks send to the same one at once.
static cadre_status post_phase(cadre_direct *d, cadre_transport *t)
{
    cadre_phase phases[CADRE_MAX_PHASES];
    (void)cadre_schedule_phases(d->call.operation, phases);
    cadre_phase phase = phases[d->phase];
    cadre_transfer_set_empty(&d->transfers);

    cadre_run *run = d->runs;
    for (int i = 1; i < d->world_size; i++) {
        int peer = (d->rank + i) % d->world_size;
        cadre_move move = cadre_schedule_move(
            phase, d->offsets, d->world_size, d->call.root, d->rank, peer);
        run[0] = receive_run(d, phase, move, peer);
        run[1] = send_run(d, phase, move);
        CADRE_TRY(cadre_transfer_set_receive(
            &d->transfers, t, peer, &d->call, &run[0], 1));
        CADRE_TRY(cadre_transfer_set_send(
            &d->transfers, t, peer, &d->call, &run[1], 1));
        run += 2;
    }
    return CADRE_OK;
}

// An all-gather that is not in place has its own part still to be moved.
static void place_own_part(const cadre_direct *d)
{
    size_t nbytes = own_count(d) * cadre_dtype_bytes(d->call.dtype);
    char *target = own_result(d);
    if (nbytes > 0 && target != d->send) {
        memcpy(target, d->send, nbytes);
    }
}

cadre_status cadre_direct_begin(
    cadre_direct *d, cadre_transport *t, void *memory)
{
    d->phase = 0;
    if (reduces(d)) {
        d->parts = cadre_parts_lay_out(
            memory, d->world_size, d->rank, d->call.dtype, own_count(d));
    }
    if (d->call.operation == CADRE_OP_ALLGATHER) {
        place_own_part(d);
    }
    return post_phase(d, t);
}

cadre_status cadre_direct_advance(
    cadre_direct *d, cadre_transport *t, bool *done)
{
    *done = false;
    if (!cadre_transfer_set_is_done(&d->transfers)) {
        return CADRE_OK;
    }

    cadre_phase phases[CADRE_MAX_PHASES];
    int n_phases = cadre_schedule_phases(d->call.operation, phases);
    if (phases[d->phase] == CADRE_PHASE_SCATTER) {
        // All sends have left, so the part may land on what was sent.
        const char *own =
            (const char *)d->send +
            d->offsets[d->rank] * cadre_dtype_bytes(d->call.dtype);
        cadre_parts_reduce(
            &d->parts, d->call.reduce_op, own, own_result(d), own_count(d));
    }
    d->phase++;
    if (d->phase == n_phases) {
        *done = true;
        return CADRE_OK;
    }
    return post_phase(d, t);
}

void cadre_direct_alone(const cadre_direct *d)
{
    place_own_part(d);
}
