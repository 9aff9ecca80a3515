// SPDX-License-Identifier: Apache-2.0

#include "collective/fan_in.h"

#include "kernel/narrow.h"
#include "kernel/reduce.h"
#include "state/tree.h"
#include <stdbool.h>
#include <string.h>

// A few blocks fit into 32 KiB, the smallest innermost cache in use.
enum { BLOCK_BYTES = 4096 };

static bool is_widened(cadre_dtype dtype)
{
    return cadre_accumulator(dtype) != dtype;
}

// The tree over n ranks holds one node for each bit of the number pushed so
// far, and the one that is being pushed.  Before them is a block for a result
// that has been rounded.
size_t cadre_fan_in_scratch_bytes(int world_size)
{
    size_t n_blocks = 2;
    for (int left = world_size; left > 0; left /= 2) {
        n_blocks++;
    }
    return n_blocks * BLOCK_BYTES;
}

size_t cadre_fan_in_elements(cadre_dtype dtype)
{
    return BLOCK_BYTES / cadre_dtype_bytes(cadre_accumulator(dtype));
}

// What rank r brings, as a node of the tree; depth nodes are on it already.
static void *node_of(const cadre_fan_in *f, int r, int depth, size_t count)
{
    const cadre_fan_in_leaf *leaf = &f->leaves[r];
    // A node is merged into the one below it, so its depth is its place.
    void *place = f->scratch + (size_t)(1 + depth) * BLOCK_BYTES;
    if (is_widened(f->dtype)) {
        cadre_widen(f->dtype, place, leaf->in, count);
        return place;
    }
    if (r % 2 != 0) {
        return leaf->in; // it goes into its left neighbour, and is only read
    }
    if (leaf->sum != NULL) {
        place = leaf->sum;
    }
    if (place != leaf->in) {
        memcpy(place, leaf->in, count * cadre_dtype_bytes(f->dtype));
    }
    return place;
}

const void *cadre_fan_in_block(const cadre_fan_in *f, size_t count)
{
    cadre_dtype accumulator = cadre_accumulator(f->dtype);
    cadre_tree tree = {0};
    cadre_tree_pair pair;
    for (int r = 0; r < f->world_size; r++) {
        cadre_tree_push(&tree, 0, node_of(f, r, tree.n_nodes, count));
        while (cadre_tree_merge(&tree, &pair)) {
            cadre_reduce(accumulator, f->op, pair.left, pair.right, count);
        }
    }
    while (cadre_tree_join(&tree, &pair)) {
        cadre_reduce(accumulator, f->op, pair.left, pair.right, count);
    }
    void *result = cadre_tree_take(&tree);
    cadre_reduce_finish(accumulator, f->op, result, count, f->world_size);
    if (!is_widened(f->dtype)) {
        return result;
    }
    cadre_narrow(f->dtype, (void *)f->scratch, result, count);
    return f->scratch;
}
