// SPDX-License-Identifier: Apache-2.0
//
// The sum goes block by block: a block of each part, and the copy of the own
// one, stay in the innermost cache, so copying costs next to nothing and `own`
// is never written.

#include "collective/sum.h"

#include "base/alloc.h"
#include "base/check.h"
#include "kernel/reduce.h"
#include "state/tree.h"
#include <stdint.h>
#include <string.h>

// A few blocks fit into 32 KiB, the smallest innermost cache in use.
enum { BLOCK_BYTES = 4096 };

static size_t stride_of(size_t part_bytes)
{
    return (part_bytes + CADRE_CACHE_LINE - 1) / CADRE_CACHE_LINE *
           CADRE_CACHE_LINE;
}

size_t cadre_parts_bytes(int world_size, size_t part_bytes)
{
    size_t nbytes;
    if (part_bytes > SIZE_MAX - CADRE_CACHE_LINE ||
        __builtin_mul_overflow(
            (size_t)world_size - 1, stride_of(part_bytes), &nbytes) ||
        __builtin_add_overflow(nbytes, (size_t)BLOCK_BYTES, &nbytes)) {
        return SIZE_MAX;
    }
    return nbytes;
}

cadre_parts cadre_parts_lay_out(
    void *memory, int world_size, int rank, size_t part_bytes)
{
    return (cadre_parts){memory, stride_of(part_bytes), world_size, rank};
}

// The copy of the own part's block comes first, then the parts of the others.
void *cadre_parts_of(const cadre_parts *parts, int peer)
{
    CADRE_ASSERT(peer != parts->rank);
    size_t slot = (size_t)(peer < parts->rank ? peer : peer - 1);
    return (char *)parts->memory + BLOCK_BYTES + slot * parts->stride_bytes;
}

static void *sum_block(
    const cadre_parts *parts, cadre_dtype dtype, size_t first, size_t count)
{
    size_t at = first * cadre_dtype_bytes(dtype);
    cadre_tree tree = {0};
    cadre_tree_pair pair;
    for (int r = 0; r < parts->world_size; r++) {
        cadre_tree_push(&tree, 0,
            r == parts->rank ? parts->memory
                             : (char *)cadre_parts_of(parts, r) + at);
        while (cadre_tree_merge(&tree, &pair)) {
            cadre_reduce_sum(dtype, pair.left, pair.right, count);
        }
    }
    while (cadre_tree_join(&tree, &pair)) {
        cadre_reduce_sum(dtype, pair.left, pair.right, count);
    }
    return cadre_tree_take(&tree);
}

void cadre_parts_sum(const cadre_parts *parts, cadre_dtype dtype,
    const void *own, void *out, size_t count)
{
    size_t element_bytes = cadre_dtype_bytes(dtype);
    size_t block = BLOCK_BYTES / element_bytes;
    for (size_t first = 0; first < count; first += block) {
        size_t n = count - first < block ? count - first : block;
        size_t at = first * element_bytes;
        memcpy(parts->memory, (const char *)own + at, n * element_bytes);
        const void *sum = sum_block(parts, dtype, first, n);
        memcpy((char *)out + at, sum, n * element_bytes);
    }
}
