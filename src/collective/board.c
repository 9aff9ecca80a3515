// SPDX-License-Identifier: Apache-2.0

#include "collective/board.h"

// Where the fields of `kind` lie.
enum {
    DTYPE_SHIFT = 8,
    REDUCE_OP_SHIFT = 16,
    WINDOWED_SHIFT = 24,
    RING_SHIFT = 25,
    ROOT_SHIFT = 32,
};

static void put(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static uint64_t get(_Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

void cadre_board_write(cadre_board_entry *entry, const cadre_board_call *call)
{
    uint64_t kind = (uint64_t)(uint8_t)call->call.operation |
                    (uint64_t)(uint8_t)call->call.dtype << DTYPE_SHIFT |
                    (uint64_t)(uint8_t)call->call.reduce_op << REDUCE_OP_SHIFT |
                    (uint64_t)call->windowed << WINDOWED_SHIFT |
                    (uint64_t)call->call.ring << RING_SHIFT |
                    (uint64_t)(uint32_t)call->call.root << ROOT_SHIFT;
    put(&entry->kind, kind);
    put(&entry->count, call->call.count);
    put(&entry->detail, call->call.detail);
    put(&entry->in_arena, call->in.arena);
    put(&entry->in_offset, call->in.offset);
    put(&entry->out_arena, call->out.arena);
    put(&entry->out_offset, call->out.offset);
    // Partner: whoever sees an exchange's sequence.
    atomic_store_explicit(
        &entry->sequence, call->call.sequence, memory_order_release);
}

void cadre_board_read(cadre_board_entry *entry, cadre_board_call *out)
{
    uint64_t sequence =
        atomic_load_explicit(&entry->sequence, memory_order_acquire);
    uint64_t kind = get(&entry->kind);
    *out = (cadre_board_call){
        .call =
            {
                .operation = (cadre_operation)(kind & UINT8_MAX),
                .dtype = (cadre_dtype)(kind >> DTYPE_SHIFT & UINT8_MAX),
                .reduce_op =
                    (cadre_reduce_op)(kind >> REDUCE_OP_SHIFT & UINT8_MAX),
                .ring = (kind >> RING_SHIFT & 1) != 0,
                .root = (int32_t)(uint32_t)(kind >> ROOT_SHIFT),
                .sequence = sequence,
                .count = get(&entry->count),
                .detail = get(&entry->detail),
            },
        .windowed = (kind >> WINDOWED_SHIFT & 1) != 0,
        .in = {get(&entry->in_arena), get(&entry->in_offset)},
        .out = {get(&entry->out_arena), get(&entry->out_offset)},
    };
}
