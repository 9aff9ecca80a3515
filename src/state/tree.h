// SPDX-License-Identifier: Apache-2.0
//
// The fixed tree of summation as a stack: a binary counter (docs/numerics.md
// sections 2 and 3).  Nodes are pushed from left to right; two neighbours of one
// level are added up at once, and what is left at the end is joined from the
// right.
//
//     cadre_tree_pair pair;
//     cadre_tree_push(&tree, level, node);
//     while (cadre_tree_merge(&tree, &pair)) {
//         ...                               // left = left + right
//         ...                               // right is free again
//     }
//     while (cadre_tree_join(&tree, &pair)) {
//         ...                               // the same, after the last push
//     }
//     sum = cadre_tree_take(&tree);
//
// It moves no numbers: it says which two nodes are to be added, right into left;
// who would rather have the sum elsewhere says so.
//
// Memory:  a plain value, {0} is an empty tree; nodes belong to the caller.
// Threads: one at a time.

#ifndef CADRE_STATE_TREE_H
#define CADRE_STATE_TREE_H

#include <stdbool.h>

// Levels in the stack are strictly falling, so 2^32 leaves fit.
enum { CADRE_TREE_DEPTH = 33 };

typedef struct cadre_tree {
    int n_nodes;
    struct {
        void *node;
        int level;
    } stack[CADRE_TREE_DEPTH];
} cadre_tree;

typedef struct cadre_tree_pair {
    void *left;
    void *right;
} cadre_tree_pair;

/**
 * Puts the next node on the stack: the sum of 2^level leaves, or of fewer if it
 * is the last.  All merges of the push before must have been taken.
 */
void cadre_tree_push(cadre_tree *tree, int level, void *node);

/** True and the pair to add if the two nodes on top have equal level. */
bool cadre_tree_merge(cadre_tree *tree, cadre_tree_pair *pair);

/** After the last push: true and the pair to add if two nodes are left. */
bool cadre_tree_join(cadre_tree *tree, cadre_tree_pair *pair);

/** The sum of the pair just taken is kept in this node. */
void cadre_tree_keep(cadre_tree *tree, void *node);

/** The one node that is left, the sum over all; the tree is empty again. */
void *cadre_tree_take(cadre_tree *tree);

#endif // CADRE_STATE_TREE_H
