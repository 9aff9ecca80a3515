// SPDX-License-Identifier: Apache-2.0

#include "state/tree.h"

#include "base/check.h"
#include <stddef.h>

void cadre_tree_push(cadre_tree *tree, int level, void *node)
{
    CADRE_ASSERT(tree->n_nodes < CADRE_TREE_DEPTH);
    CADRE_ASSERT(
        tree->n_nodes == 0 || tree->stack[tree->n_nodes - 1].level >= level);

    tree->stack[tree->n_nodes].node = node;
    tree->stack[tree->n_nodes].level = level;
    tree->n_nodes++;
}

static void add_top_two(cadre_tree *tree, cadre_tree_pair *pair)
{
    int top = tree->n_nodes - 1;
    pair->left = tree->stack[top - 1].node;
    pair->right = tree->stack[top].node;
    tree->stack[top - 1].level++;
    tree->n_nodes--;
}

bool cadre_tree_merge(cadre_tree *tree, cadre_tree_pair *pair)
{
    int top = tree->n_nodes - 1;
    if (top < 1 || tree->stack[top - 1].level != tree->stack[top].level) {
        return false;
    }
    add_top_two(tree, pair);
    return true;
}

bool cadre_tree_join(cadre_tree *tree, cadre_tree_pair *pair)
{
    if (tree->n_nodes < 2) {
        return false;
    }
    add_top_two(tree, pair);
    return true;
}

void cadre_tree_keep(cadre_tree *tree, void *node)
{
    CADRE_ASSERT(tree->n_nodes > 0);
    tree->stack[tree->n_nodes - 1].node = node;
}

void *cadre_tree_take(cadre_tree *tree)
{
    CADRE_ASSERT(tree->n_nodes == 1);
    tree->n_nodes = 0;
    return tree->stack[0].node;
}
