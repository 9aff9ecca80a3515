// SPDX-License-Identifier: Apache-2.0

#include "parallel/owned.h"

#include "base/check.h"
#include "kernel/reduce.h"
#include "kernel/squares.h"

void cadre_owned_begin(
    cadre_owned *own, float *arrays, int n_arrays, size_t elements)
{
    own->arrays = arrays;
    own->arrays_end = arrays + (size_t)n_arrays * elements;
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

static bool is_array(const cadre_owned *own, const float *node)
{
    return (uintptr_t)node >= (uintptr_t)own->arrays &&
           (uintptr_t)node < (uintptr_t)own->arrays_end;
}

// Where a slice of a node lies.
static float *slice_of(
    const cadre_owned *own, float *node, int i, size_t packed)
{
    return node + (is_array(own, node) ? packed : own->part->slices[i].offset);
}

// Where the sum of a pair goes.  One of the two may lie in this rank's plane:
// there, since that is where it is wanted.  A peer's stays as it is.
static float *choose_sum(cadre_owned *own, const cadre_tree_pair *pair)
{
    float *left = pair->left;
    float *right = pair->right;
    if (left == own->plane || right == own->plane) {
        return own->plane;
    }
    if (is_array(own, left) || is_array(own, right)) {
        return is_array(own, left) ? left : right;
    }
    return cadre_owned_take(own);
}

static void give_back_unless(cadre_owned *own, float *node, const float *kept)
{
    if (node != kept && is_array(own, node)) {
        cadre_owned_give_back(own, node);
    }
}

static void add_pair(cadre_owned *own, const cadre_tree_pair *pair)
{
    float *sum = choose_sum(own, pair);
    size_t packed = 0;
    for (int i = 0; i < own->part->n_slices; i++) {
        size_t count = own->part->slices[i].count;
        void *to[] = {slice_of(own, sum, i, packed)};
        cadre_reduce_to(CADRE_F32, CADRE_SUM,
            slice_of(own, pair->left, i, packed),
            slice_of(own, pair->right, i, packed), count, to, 1);
        packed += count;
    }
    cadre_tree_keep(&own->tree, sum);
    give_back_unless(own, pair->left, sum);
    give_back_unless(own, pair->right, sum);
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
    if (own->sum != own->plane && !is_array(own, own->sum)) {
        float *copy = cadre_owned_take(own);
        cadre_bucket_pack(own->part, own->sum, copy);
        own->sum = copy;
    }
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
