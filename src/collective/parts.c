// SPDX-License-Identifier: Apache-2.0
//
// The reduction goes block by block: a block of each part, and what is computed
// from it, stay in the innermost cache, so copying and widening cost next to
// nothing and `own` is never written.
//
// The memory begins with room for elements as they come and go, for they may be
// unaligned where the caller has them.  Elements of 16 bits need room for
// widened blocks too, one for each node that the tree can hold at once.

#include "collective/parts.h"

#include "base/alloc.h"
#include "base/check.h"
#include "kernel/narrow.h"
#include "kernel/reduce.h"
#include "state/tree.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

// A few blocks fit into 32 KiB, the smallest innermost cache in use.
enum { BLOCK_BYTES = 4096 };

static size_t stride_of(size_t part_bytes)
{
    return (part_bytes + CADRE_CACHE_LINE - 1) / CADRE_CACHE_LINE *
           CADRE_CACHE_LINE;
}

static bool is_widened(cadre_dtype dtype)
{
    return cadre_accumulator(dtype) != dtype;
}

// Blocks before the received parts.  The tree over n ranks holds one node for
// each bit of the number pushed so far, and the one that is being pushed.
static size_t n_blocks(int world_size, cadre_dtype dtype)
{
    size_t n = 1;
    if (is_widened(dtype)) {
        n++;
        for (int left = world_size; left > 0; left /= 2) {
            n++;
        }
    }
    return n;
}

size_t cadre_parts_bytes(int world_size, cadre_dtype dtype, size_t count)
{
    size_t part_bytes;
    size_t nbytes;
    if (__builtin_mul_overflow(count, cadre_dtype_bytes(dtype), &part_bytes) ||
        part_bytes > SIZE_MAX - CADRE_CACHE_LINE ||
        __builtin_mul_overflow(
            (size_t)world_size - 1, stride_of(part_bytes), &nbytes) ||
        __builtin_add_overflow(
            nbytes, n_blocks(world_size, dtype) * BLOCK_BYTES, &nbytes)) {
        return SIZE_MAX;
    }
    return nbytes;
}

cadre_parts cadre_parts_lay_out(
    void *memory, int world_size, int rank, cadre_dtype dtype, size_t count)
{
    return (cadre_parts){
        .memory = memory,
        .received = (char *)memory + n_blocks(world_size, dtype) * BLOCK_BYTES,
        .stride_bytes = stride_of(count * cadre_dtype_bytes(dtype)),
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

// Where rank r's block lies, as a node of the tree: count elements from `at`
// bytes into its part.  depth nodes are on the tree already.
static void *block_of(
    const cadre_parts *parts, int r, size_t at, size_t count, int depth)
{
    char *block = r == parts->rank ? parts->memory
                                   : (char *)cadre_parts_of(parts, r) + at;
    if (!is_widened(parts->dtype)) {
        return block;
    }
    // A node is merged into the one below it, so its depth is its place.
    void *wide = parts->memory + (size_t)(1 + depth) * BLOCK_BYTES;
    cadre_widen(parts->dtype, wide, (const void *)block, count);
    return wide;
}

static void *reduce_block(
    const cadre_parts *parts, cadre_reduce_op op, size_t at, size_t count)
{
    cadre_dtype accumulator = cadre_accumulator(parts->dtype);
    cadre_tree tree = {0};
    cadre_tree_pair pair;
    for (int r = 0; r < parts->world_size; r++) {
        cadre_tree_push(&tree, 0, block_of(parts, r, at, count, tree.n_nodes));
        while (cadre_tree_merge(&tree, &pair)) {
            cadre_reduce(accumulator, op, pair.left, pair.right, count);
        }
    }
    while (cadre_tree_join(&tree, &pair)) {
        cadre_reduce(accumulator, op, pair.left, pair.right, count);
    }
    void *result = cadre_tree_take(&tree);
    cadre_reduce_finish(accumulator, op, result, count, parts->world_size);
    if (!is_widened(parts->dtype)) {
        return result;
    }
    cadre_narrow(parts->dtype, (void *)parts->memory, result, count);
    return parts->memory;
}

void cadre_parts_reduce(const cadre_parts *parts, cadre_reduce_op op,
    const void *own, void *out, size_t count)
{
    size_t element_bytes = cadre_dtype_bytes(parts->dtype);
    size_t block =
        BLOCK_BYTES / cadre_dtype_bytes(cadre_accumulator(parts->dtype));
    for (size_t first = 0; first < count; first += block) {
        size_t n = count - first < block ? count - first : block;
        size_t at = first * element_bytes;
        memcpy(parts->memory, (const char *)own + at, n * element_bytes);
        const void *result = reduce_block(parts, op, at, n);
        memcpy((char *)out + at, result, n * element_bytes);
    }
}
