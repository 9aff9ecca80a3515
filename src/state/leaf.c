// SPDX-License-Identifier: Apache-2.0

#include "state/leaf.h"

void cadre_leaf_samples(
    int64_t n_samples, int n_leaves, int leaf, int64_t *lo, int64_t *hi)
{
    // floor(B l / V) without the product's overflow: B = q V + r.
    int64_t q = n_samples / n_leaves;
    int64_t r = n_samples % n_leaves;
    *lo = q * leaf + r * leaf / n_leaves;
    *hi = q * (leaf + 1) + r * (leaf + 1) / n_leaves;
}

int cadre_fold_deferred(int n_leaves, int world_size)
{
    if (n_leaves % world_size != 0) {
        return 1;
    }
    int share = n_leaves / world_size;
    return share & -share; // the lowest bit that is set
}

int cadre_fold_eager(int n_threads)
{
    int k = 1;
    while (k <= n_threads / 2) {
        k *= 2;
    }
    return k;
}

static int ceil_div(int a, int b)
{
    return (a - 1) / b + 1;
}

int cadre_dealing_level(const cadre_dealing *d)
{
    return __builtin_ctz((unsigned)d->block);
}

int cadre_dealing_blocks(const cadre_dealing *d)
{
    return ceil_div(d->n_leaves, d->block);
}

int cadre_dealing_rounds(const cadre_dealing *d)
{
    return ceil_div(cadre_dealing_blocks(d), d->world_size);
}

int cadre_dealing_block_leaves(const cadre_dealing *d, int block)
{
    int left = d->n_leaves - block * d->block;
    return left < d->block ? left : d->block;
}

bool cadre_dealing_has_block(const cadre_dealing *d, int rank, int round)
{
    return round * d->world_size + rank < cadre_dealing_blocks(d);
}

int cadre_dealing_rank_leaves(const cadre_dealing *d, int rank)
{
    int blocks = cadre_dealing_blocks(d);
    if (rank >= blocks) {
        return 0;
    }
    int own = (blocks - 1 - rank) / d->world_size + 1;
    int last = (own - 1) * d->world_size + rank;
    return (own - 1) * d->block + cadre_dealing_block_leaves(d, last);
}

int cadre_dealing_rank_leaf(const cadre_dealing *d, int rank, int i)
{
    int round = i / d->block;
    return (round * d->world_size + rank) * d->block + i % d->block;
}

int cadre_dealing_leaf_index(const cadre_dealing *d, int leaf)
{
    int block = leaf / d->block;
    return block / d->world_size * d->block + leaf % d->block;
}
