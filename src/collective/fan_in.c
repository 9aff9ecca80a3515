// SPDX-License-Identifier: Apache-2.0

#include "collective/fan_in.h"

#include "base/check.h"
#include "kernel/narrow.h"
#include "kernel/reduce.h"
#include "state/tree.h"
#include <string.h>

// A few blocks fit into 32 KiB, the smallest innermost cache in use.
enum { BLOCK_BYTES = 4096 };

static bool is_widened(cadre_dtype dtype)
{
    return cadre_accumulator(dtype) != dtype;
}

// The tree over n ranks holds one node for each bit of the number pushed so
// far, and the one that is being pushed.
size_t cadre_fan_in_scratch_bytes(int world_size)
{
    size_t n_blocks = 1;
    for (int left = world_size; left > 0; left /= 2) {
        n_blocks++;
    }
    return n_blocks * BLOCK_BYTES;
}

size_t cadre_fan_in_elements(cadre_dtype dtype)
{
    return BLOCK_BYTES / cadre_dtype_bytes(cadre_accumulator(dtype));
}

// A node of the tree has a block of the scratch by its depth in it.
static char *block_of(const cadre_fan_in *f, int depth)
{
    return f->scratch + (size_t)depth * BLOCK_BYTES;
}

static const void *leaf(const cadre_fan_in *f, int r, int depth, size_t count)
{
    if (!is_widened(f->dtype)) {
        return f->in[r];
    }
    cadre_widen(f->dtype, (void *)block_of(f, depth), f->in[r], count);
    return block_of(f, depth);
}

// The last addition makes the result, if nothing is left to be done with it.
static bool ends(const cadre_fan_in *f)
{
    return !is_widened(f->dtype) && f->op != CADRE_MEAN;
}

bool cadre_fan_in_is_direct(const cadre_fan_in *f)
{
    return f->world_size == 2 && ends(f);
}

// With more than two places for the result, memory is faster if sums are made
// where a result goes, and a block goes from there to one after the other.
static bool sums_there(const cadre_fan_in *f)
{
    return ends(f) && f->n_to == f->world_size && f->n_to > 2;
}

// A node of the tree: its numbers, and where a sum that begins with it goes.
typedef struct node {
    const void *numbers;
    void *sum;
} node;

// Adds the second of two nodes to the first.
static void add(const cadre_fan_in *f, node *pair, bool is_last, size_t count)
{
    bool to_all = is_last && ends(f) && !sums_there(f);
    cadre_reduce_to(cadre_accumulator(f->dtype), f->op, pair[0].numbers,
        pair[1].numbers, count, to_all ? f->to : &pair[0].sum,
        to_all ? f->n_to : 1);
    pair[0].numbers = pair[0].sum;
}

// Adds up all that the ranks bring.
static const void *add_up(const cadre_fan_in *f, size_t count)
{
    CADRE_ASSERT(f->world_size > 0);
    node nodes[CADRE_TREE_DEPTH] = {{0}};
    cadre_tree tree = {0};
    cadre_tree_pair pair;
    for (int r = 0; r < f->world_size; r++) {
        int depth = tree.n_nodes;
        nodes[depth] = (node){
            .numbers = leaf(f, r, depth, count),
            .sum = sums_there(f) ? f->to[r] : block_of(f, depth),
        };
        cadre_tree_push(&tree, 0, NULL);
        while (cadre_tree_merge(&tree, &pair)) {
            bool is_last = r == f->world_size - 1 && tree.n_nodes == 1;
            add(f, &nodes[tree.n_nodes - 1], is_last, count);
        }
    }
    while (cadre_tree_join(&tree, &pair)) {
        add(f, &nodes[tree.n_nodes - 1], tree.n_nodes == 1, count);
    }
    return nodes[0].numbers;
}

void cadre_fan_in_block(const cadre_fan_in *f, size_t count)
{
    cadre_dtype accumulator = cadre_accumulator(f->dtype);
    size_t nbytes = count * cadre_dtype_bytes(f->dtype);
    const void *sum = add_up(f, count);
    if (f->world_size > 1 && ends(f)) {
        for (int k = 1; k < f->n_to && sums_there(f); k++) {
            memcpy(f->to[k], sum, nbytes);
        }
        return;
    }
    char *result = block_of(f, 0);
    if (sum != result) { // of a single rank
        memcpy(result, sum, nbytes);
    }
    cadre_reduce_finish(accumulator, f->op, result, count, f->world_size);
    if (is_widened(f->dtype)) {
        result = block_of(f, 1);
        cadre_narrow(f->dtype, (void *)result, (void *)block_of(f, 0), count);
    }
    for (int k = 0; k < f->n_to; k++) {
        memcpy(f->to[k], result, nbytes);
    }
}
