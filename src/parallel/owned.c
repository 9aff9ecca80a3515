// SPDX-License-Identifier: Apache-2.0

#include "parallel/owned.h"

#include "base/check.h"
#include "kernel/reduce.h"
#include "kernel/squares.h"

void cadre_owned_begin(
    cadre_owned *own, float *arrays, int n_arrays, size_t elements)
{
    own->n_free = n_arrays;
    for (int i = 0; i < n_arrays; i++) {
        own->free[i] = arrays + (size_t)i * elements;
    }
    own->plane = NULL;
    own->tree = (cadre_tree){0};
    own->sum = NULL;
}

float *cadre_owned_take(cadre_owned *own)
{
    CADRE_ASSERT(own->n_free > 0);
    return own->free[--own->n_free];
}

void cadre_owned_give_back(cadre_owned *own, float *array)
{
    own->free[own->n_free++] = array;
}

// Where a slice of a node lies: in the plane by its offset, else packed.
static float *slice_of(
    const cadre_owned *own, float *node, int i, size_t packed)
{
    return node + (node == own->plane ? own->part->slices[i].offset : packed);
}

// Adds up a pair.  One of the two may lie in this rank's plane: then the sum
// does as well, since it is wanted there (x + y has the bits of y + x).
static void add_pair(cadre_owned *own, const cadre_tree_pair *pair)
{
    bool to_right = pair->right == own->plane;
    float *sum = to_right ? pair->right : pair->left;
    float *addend = to_right ? pair->left : pair->right;
    size_t packed = 0;
    for (int i = 0; i < own->part->n_slices; i++) {
        size_t count = own->part->slices[i].count;
        cadre_reduce(CADRE_F32, CADRE_SUM, slice_of(own, sum, i, packed),
            slice_of(own, addend, i, packed), count);
        packed += count;
    }
    if (to_right) {
        cadre_tree_keep_right(&own->tree, pair);
    }
    cadre_owned_give_back(own, addend);
}

void cadre_owned_push(cadre_owned *own, int level, float *node)
{
    cadre_tree_pair pair;
    cadre_tree_push(&own->tree, level, node);
    while (cadre_tree_merge(&own->tree, &pair)) {
        add_pair(own, &pair);
    }
}

void cadre_owned_close(cadre_owned *own)
{
    cadre_tree_pair pair;
    while (cadre_tree_join(&own->tree, &pair)) {
        add_pair(own, &pair);
    }
    own->sum = cadre_tree_take(&own->tree);
}

const float *cadre_owned_slice(const cadre_owned *own, int i, size_t packed)
{
    return slice_of(own, own->sum, i, packed);
}

bool cadre_owned_squares(
    const cadre_owned *own, const cadre_layout *layout, cadre_exact *squares)
{
    bool finite = true;
    cadre_exact ignored = {0};
    size_t packed = 0;
    for (int i = 0; i < own->part->n_slices; i++) {
        const cadre_slice *s = &own->part->slices[i];
        bool counts = !layout->segments[s->segment].buffer;
        finite = cadre_add_squares(counts ? squares : &ignored,
                     cadre_owned_slice(own, i, packed), s->offset, s->count) &&
                 finite;
        packed += s->count;
    }
    return finite;
}
