// SPDX-License-Identifier: Apache-2.0

#include "train/passes.h"

static void add_size(cadre_pass_sizes *list, int64_t n_samples)
{
    for (int i = 0; i < list->n; i++) {
        if (list->sizes[i] == n_samples) {
            return;
        }
    }
    if (n_samples > 0) {
        list->sizes[list->n++] = n_samples;
    }
}

// The passes of one leaf: whole ones, and what is left.
static void add_leaf_sizes(
    cadre_pass_sizes *list, int64_t leaf, int64_t micro_batch)
{
    if (micro_batch == 0 || micro_batch >= leaf) {
        add_size(list, leaf);
        return;
    }
    add_size(list, micro_batch);
    add_size(list, leaf % micro_batch);
}

cadre_pass_sizes cadre_pass_sizes_of(
    const cadre_train_config *config, int64_t n_samples, int n_leaves)
{
    cadre_pass_sizes list = {0};
    const int64_t batches[] = {config->global_batch,
        config->data_drop_last ? 0 : n_samples % config->global_batch};
    for (int i = 0; i < 2; i++) {
        int64_t least = batches[i] / n_leaves;
        add_leaf_sizes(&list, least, config->micro_batch);
        if (batches[i] % n_leaves != 0) {
            add_leaf_sizes(&list, least + 1, config->micro_batch);
        }
    }
    return list;
}
