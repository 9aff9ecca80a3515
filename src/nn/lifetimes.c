// SPDX-License-Identifier: Apache-2.0

#include "nn/lifetimes.h"

#include "base/alloc.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static size_t whole_lines(size_t count)
{
    enum { LINE = 16 }; // floats
    return (count + LINE - 1) / LINE * LINE;
}

// The larger first; of two alike the one that comes first in memory.
static int larger_first(const void *a, const void *b)
{
    const cadre_lifetime *const *left = a;
    const cadre_lifetime *const *right = b;
    if ((*left)->count != (*right)->count) {
        return (*left)->count > (*right)->count ? -1 : 1;
    }
    return *left < *right ? -1 : *left > *right;
}

static bool meet(const cadre_lifetime *a, const cadre_lifetime *b)
{
    return a->first <= b->last && b->first <= a->last;
}

// The offset of the smallest gap between those of the placed ones, which are in
// the order of their offsets, that live at the same time; behind them if there
// is none.
static size_t best_fit(const cadre_lifetime *buffer,
    cadre_lifetime *const *placed, size_t n_placed)
{
    const size_t wanted = whole_lines(buffer->count);
    size_t best = SIZE_MAX;
    size_t best_gap = SIZE_MAX;
    size_t end = 0; // of those that came so far
    for (size_t i = 0; i < n_placed; i++) {
        const cadre_lifetime *other = placed[i];
        if (!meet(buffer, other)) {
            continue;
        }
        if (other->offset >= end + wanted && other->offset - end < best_gap) {
            best_gap = other->offset - end;
            best = end;
        }
        size_t other_end = other->offset + whole_lines(other->count);
        end = other_end > end ? other_end : end;
    }
    return best == SIZE_MAX ? end : best;
}

// Keeps the order of offsets.
static void insert(
    cadre_lifetime *buffer, cadre_lifetime **placed, size_t n_placed)
{
    size_t at = n_placed;
    while (at > 0 && placed[at - 1]->offset > buffer->offset) {
        placed[at] = placed[at - 1];
        at--;
    }
    placed[at] = buffer;
}

cadre_status cadre_lifetimes_place(cadre_lifetime *all, size_t n, size_t *count)
{
    // NOLINTNEXTLINE(bugprone-sizeof-expression): of a pointer it is meant
    cadre_lifetime **order = cadre_alloc_array(2 * n, sizeof(*order));
    if (order == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_lifetime **placed = order + n;
    size_t n_wanted = 0;
    for (size_t i = 0; i < n; i++) {
        if (all[i].count > 0) {
            order[n_wanted++] = &all[i];
        }
    }
    qsort(order, n_wanted, sizeof(cadre_lifetime *), larger_first);

    *count = 0;
    for (size_t i = 0; i < n_wanted; i++) {
        cadre_lifetime *buffer = order[i];
        buffer->offset = best_fit(buffer, placed, i);
        insert(buffer, placed, i);
        size_t end = buffer->offset + whole_lines(buffer->count);
        *count = end > *count ? end : *count;
    }
    cadre_free(order);
    return CADRE_OK;
}
