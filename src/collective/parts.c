// SPDX-License-Identifier: Apache-2.0
//
// The memory begins with what the reduction of a block needs: where the ranks'
// elements are, its scratch, and room for this rank's elements, for they may be
// unaligned where the caller has them.

#include "collective/parts.h"

#include "base/alloc.h"
#include "base/check.h"
#include "collective/fan_in.h"
#include <stdint.h>
#include <string.h>

static size_t round_up(size_t nbytes)
{
    return (nbytes + CADRE_CACHE_LINE - 1) / CADRE_CACHE_LINE *
           CADRE_CACHE_LINE;
}

static size_t in_bytes(int world_size)
{
    return round_up((size_t)world_size * sizeof(void *));
}

static size_t own_block_bytes(cadre_dtype dtype)
{
    return round_up(cadre_fan_in_elements(dtype) * cadre_dtype_bytes(dtype));
}

// What lies before the received parts.
static size_t head_bytes(int world_size, cadre_dtype dtype)
{
    return in_bytes(world_size) + cadre_fan_in_scratch_bytes(world_size) +
           own_block_bytes(dtype);
}

size_t cadre_parts_bytes(int world_size, cadre_dtype dtype, size_t count)
{
    size_t part_bytes;
    size_t nbytes;
    if (__builtin_mul_overflow(count, cadre_dtype_bytes(dtype), &part_bytes) ||
        part_bytes > SIZE_MAX - CADRE_CACHE_LINE ||
        __builtin_mul_overflow(
            (size_t)world_size - 1, round_up(part_bytes), &nbytes) ||
        __builtin_add_overflow(
            nbytes, head_bytes(world_size, dtype), &nbytes)) {
        return SIZE_MAX;
    }
    return nbytes;
}

cadre_parts cadre_parts_lay_out(
    void *memory, int world_size, int rank, cadre_dtype dtype, size_t count)
{
    return (cadre_parts){
        .memory = memory,
        .received = (char *)memory + head_bytes(world_size, dtype),
        .stride_bytes = round_up(count * cadre_dtype_bytes(dtype)),
        .dtype = dtype,
        .world_size = world_size,
        .rank = rank,
    };
}

void *cadre_parts_of(const cadre_parts *parts, int peer)
{
    CADRE_ASSERT(peer != parts->rank);
    size_t slot = (size_t)(peer < parts->rank ? peer : peer - 1);
    return parts->received + slot * parts->stride_bytes;
}

void cadre_parts_reduce(const cadre_parts *parts, cadre_reduce_op op,
    const void *own, void *out, size_t count)
{
    cadre_fan_in f = {
        .dtype = parts->dtype,
        .op = op,
        .world_size = parts->world_size,
        .in = (void *)parts->memory,
        .n_to = 1,
        .scratch = parts->memory + in_bytes(parts->world_size),
    };
    char *own_block = f.scratch + cadre_fan_in_scratch_bytes(parts->world_size);
    size_t element_bytes = cadre_dtype_bytes(parts->dtype);
    size_t block = cadre_fan_in_elements(parts->dtype);
    for (size_t first = 0; first < count; first += block) {
        size_t n = count - first < block ? count - first : block;
        size_t at = first * element_bytes;
        memcpy(own_block, (const char *)own + at, n * element_bytes);
        for (int r = 0; r < parts->world_size; r++) {
            f.in[r] = r == parts->rank ? own_block
                                       : (char *)cadre_parts_of(parts, r) + at;
        }
        void *to = (char *)out + at;
        f.to = &to;
        cadre_fan_in_block(&f, n);
    }
}
