// SPDX-License-Identifier: Apache-2.0

#include "state/shard.h"

// Part i of n equal parts, in quanta, of a range that starts at a quantum.
static cadre_shard part_of(size_t lo, size_t hi, int i, int n)
{
    size_t quanta = (hi - lo + CADRE_QUANTUM - 1) / CADRE_QUANTUM;
    size_t parts = (size_t)n;
    size_t index = (size_t)i;
    size_t first = quanta / parts * index + quanta % parts * index / parts;
    size_t next =
        quanta / parts * (index + 1) + quanta % parts * (index + 1) / parts;
    size_t from = lo + first * CADRE_QUANTUM;
    size_t to = lo + next * CADRE_QUANTUM;
    return (cadre_shard){
        .lo = from < hi ? from : hi,
        .hi = to < hi ? to : hi,
    };
}

cadre_shard cadre_shard_of(const cadre_unit *unit, int rank, int n)
{
    return part_of(unit->lo, unit->hi, rank, n);
}

cadre_shard cadre_shard_chunk(cadre_shard shard, int chunk, int n_chunks)
{
    return part_of(shard.lo, shard.hi, chunk, n_chunks);
}
