// SPDX-License-Identifier: Apache-2.0
//
// The tree as a stack, dealt in blocks and rounds, against its recursive
// definition (docs/numerics.md section 2), as structure and as bits.

#include "support/check.h"

#include "base/hash.h"
#include "state/leaf.h"
#include "state/tree.h"

enum { MAX_LEAVES = 48 };

// A node of the structure: its hash tells how it was added up.
typedef struct node {
    uint64_t structure;
    float value;
    int n_uses; // as an operand on the right: it is free then
} node;

static node leaf_node(int leaf)
{
    uint64_t name = (uint64_t)leaf;
    return (node){
        .structure = cadre_hash(&name, sizeof(name), 1),
        .value = (float)((4 * leaf - 16) / 13.0),
    };
}

static void add(node *left, node *right)
{
    assert_int_equal(left->n_uses, 0);
    assert_int_equal(right->n_uses, 0);
    const uint64_t both[2] = {left->structure, right->structure};
    left->structure = cadre_hash(both, sizeof(both), 2);
    left->value = left->value + right->value;
    right->n_uses++;
}

// Split at the largest power of two smaller than the count.
static node recursive_sum(int lo, int hi)
{
    if (hi - lo == 1) {
        return leaf_node(lo);
    }
    int half = 1;
    while (2 * half < hi - lo) {
        half *= 2;
    }
    node left = recursive_sum(lo, lo + half);
    node right = recursive_sum(lo + half, hi);
    add(&left, &right);
    return left;
}

static void push(cadre_tree *tree, int level, node *x)
{
    cadre_tree_pair pair;
    cadre_tree_push(tree, level, x);
    while (cadre_tree_merge(tree, &pair)) {
        add(pair.left, pair.right);
    }
}

static node *close_tree(cadre_tree *tree)
{
    cadre_tree_pair pair;
    while (cadre_tree_join(tree, &pair)) {
        add(pair.left, pair.right);
    }
    node *sum = cadre_tree_take(tree);
    assert_int_equal(tree->n_nodes, 0);
    return sum;
}

static int log2_of(int power)
{
    int level = 0;
    while (1 << level < power) {
        level++;
    }
    return level;
}

// The step of docs/numerics.md section 3, for one element.
static node step_sum(const cadre_dealing *d)
{
    node leaves[MAX_LEAVES];
    cadre_tree owner = {0};
    for (int round = 0; round < cadre_dealing_rounds(d); round++) {
        for (int rank = 0; rank < d->world_size; rank++) {
            if (!cadre_dealing_has_block(d, rank, round)) {
                continue;
            }
            int block = round * d->world_size + rank;
            cadre_tree local = {0};
            for (int i = 0; i < cadre_dealing_block_leaves(d, block); i++) {
                int leaf = block * d->block + i;
                leaves[leaf] = leaf_node(leaf);
                push(&local, 0, &leaves[leaf]);
            }
            push(&owner, log2_of(d->block), close_tree(&local));
        }
    }
    return *close_tree(&owner);
}

static void dealing_never_changes_the_tree(void **state)
{
    (void)state;
    int n_cases = 0;
    for (int v = 1; v <= MAX_LEAVES; v++) {
        node wanted = recursive_sum(0, v);
        for (int n = 1; n <= v; n++) {
            for (int k = 1; k < 2 * v; k *= 2) {
                cadre_dealing d = {v, k, n};
                node sum = step_sum(&d);
                assert_true(sum.structure == wanted.structure);
                assert_memory_equal(&sum.value, &wanted.value, sizeof(float));
                n_cases++;
            }
        }
    }
    assert_true(n_cases > 5000);
}

static void the_vectors_of_the_contract_come_out(void **state)
{
    (void)state;
    static const struct {
        int v;
        uint32_t bits;
    } vectors[] = {
        {6, 0xc0313b15},
        {8, 0xbf9d89db},
        {12, 0x40b13b13},
        {13, 0x40ffffff},
        {16, 0x4189d89d},
    };
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        for (int n = 1; n <= vectors[i].v; n++) {
            cadre_dealing d = {vectors[i].v, 1, n};
            node sum = step_sum(&d);
            uint32_t bits;
            memcpy(&bits, &sum.value, sizeof(bits));
            assert_int_equal(bits, vectors[i].bits);
        }
    }
}

static void the_result_is_the_first_node_pushed(void **state)
{
    (void)state;
    node leaves[MAX_LEAVES];
    cadre_tree tree = {0};
    for (int i = 0; i < MAX_LEAVES; i++) {
        leaves[i] = leaf_node(i);
        push(&tree, 0, &leaves[i]);
        // Never more than one node per level, and one more in between.
        assert_true(tree.n_nodes <= log2_of(MAX_LEAVES) + 1);
    }
    assert_ptr_equal(close_tree(&tree), &leaves[0]);
    // All others are free again, each once.
    for (int i = 1; i < MAX_LEAVES; i++) {
        assert_int_equal(leaves[i].n_uses, 1);
    }
}

// Adds a pair, into right if that is the one to keep.
static void add_and_keep(
    cadre_tree *tree, const cadre_tree_pair *pair, const node *keep)
{
    node *left = pair->left;
    node *right = pair->right;
    if (right != keep) {
        add(left, right);
        return;
    }
    node sum = *left;
    add(&sum, right);
    left->n_uses++;
    *right = sum;
    cadre_tree_keep(tree, pair->right);
}

static void any_node_can_be_the_result(void **state)
{
    (void)state;
    enum { N = 13 };
    node wanted = recursive_sum(0, N);
    for (int keep = 0; keep < N; keep++) {
        node leaves[N];
        cadre_tree tree = {0};
        cadre_tree_pair pair;
        for (int i = 0; i < N; i++) {
            leaves[i] = leaf_node(i);
            cadre_tree_push(&tree, 0, &leaves[i]);
            while (cadre_tree_merge(&tree, &pair)) {
                add_and_keep(&tree, &pair, &leaves[keep]);
            }
        }
        while (cadre_tree_join(&tree, &pair)) {
            add_and_keep(&tree, &pair, &leaves[keep]);
        }
        assert_ptr_equal(cadre_tree_take(&tree), &leaves[keep]);
        assert_true(leaves[keep].structure == wanted.structure);
        for (int i = 0; i < N; i++) {
            assert_int_equal(leaves[i].n_uses, i == keep ? 0 : 1);
        }
    }
}

static void a_tree_of_one_is_that_one(void **state)
{
    (void)state;
    node only = leaf_node(3);
    cadre_tree tree = {0};
    cadre_tree_pair pair;
    cadre_tree_push(&tree, 5, &only);
    assert_false(cadre_tree_merge(&tree, &pair));
    assert_false(cadre_tree_join(&tree, &pair));
    assert_ptr_equal(cadre_tree_take(&tree), &only);
}

static void the_deepest_tree_fits(void **state)
{
    (void)state;
    node nodes[CADRE_TREE_DEPTH];
    cadre_tree tree = {0};
    for (int i = 0; i < CADRE_TREE_DEPTH; i++) {
        nodes[i] = leaf_node(i);
        push(&tree, CADRE_TREE_DEPTH - 1 - i, &nodes[i]);
    }
    assert_int_equal(tree.n_nodes, CADRE_TREE_DEPTH);
    assert_ptr_equal(close_tree(&tree), &nodes[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dealing_never_changes_the_tree),
        cmocka_unit_test(the_vectors_of_the_contract_come_out),
        cmocka_unit_test(the_result_is_the_first_node_pushed),
        cmocka_unit_test(any_node_can_be_the_result),
        cmocka_unit_test(a_tree_of_one_is_that_one),
        cmocka_unit_test(the_deepest_tree_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
