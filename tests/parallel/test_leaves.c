// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "base/alloc.h"
#include "parallel/leaves.h"
#include <math.h>

// A layout of one parameter with one element, one used by nobody, and one that
// is frozen: enough to follow a sum.
static cadre_layout tiny_layout(void)
{
    cadre_layout layout = {0};
    int64_t one = 1;
    CHECK_OK(cadre_layout_add(&layout, "x", "x", &one, 1, false));
    CHECK_OK(cadre_layout_add(&layout, "unused", "x", &one, 1, false));
    CHECK_OK(cadre_layout_add(&layout, "frozen", "x", &one, 1, true));
    return layout;
}

typedef struct fixture {
    cadre_layout layout;
    cadre_buckets buckets;
    cadre_leaves leaves;
    float *memory;
} fixture;

static void start(fixture *f, const cadre_dealing *d, int rank, int threads)
{
    *f = (fixture){.layout = tiny_layout()};
    int n = cadre_leaves_windows(d, rank, threads);
    f->memory =
        cadre_alloc_array((size_t)n * f->layout.n_elements, sizeof(float));
    assert_non_null(f->memory);
    CHECK_OK(cadre_buckets_init(&f->buckets, &f->layout, d->world_size, 1024));
    CHECK_OK(cadre_leaves_init(
        &f->leaves, &f->layout, &f->buckets, d, rank, f->memory, n));
}

static void stop(fixture *f)
{
    cadre_leaves_fini(&f->leaves);
    cadre_buckets_fini(&f->buckets);
    cadre_free(f->memory);
    cadre_layout_fini(&f->layout);
}

static void compute(fixture *f, int leaf, float value)
{
    float *g = cadre_leaves_grad(&f->leaves, leaf, 0);
    assert_non_null(g);
    assert_true(*g == 0.0f && !signbit(*g));
    *g = value;
    assert_ptr_equal(cadre_leaves_grad(&f->leaves, leaf, 0), g);
    bool complete;
    CHECK_OK(cadre_leaves_ready(&f->leaves, leaf, 0, &complete));
    CHECK_OK(cadre_leaves_close(&f->leaves, leaf, (double)value, 1));
}

// The leaves of the test vectors (docs/numerics.md section 10), as one block.
static void a_block_is_summed_along_the_tree(void **state)
{
    (void)state;
    const struct {
        int v;
        uint32_t bits;
    } vectors[] = {{6, 0xc0313b15u}, {8, 0xbf9d89dbu}, {12, 0x40b13b13u},
        {13, 0x40ffffffu}, {16, 0x4189d89du}};
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        cadre_dealing d = {
            .n_leaves = vectors[i].v, .block = 16, .world_size = 1};
        fixture f;
        start(&f, &d, 0, 1);
        for (int step = 0; step < 2; step++) {
            cadre_leaves_begin(&f.leaves);
            int leaf;
            while (cadre_leaves_open(&f.leaves, &leaf) == CADRE_LEAF_OPENED) {
                compute(&f, leaf, (float)((4 * leaf - 16) / 13.0));
            }
            assert_int_equal(cadre_leaves_closed(&f.leaves), vectors[i].v);
            const float *sum = cadre_leaves_node(&f.leaves, 0, 0);
            assert_non_null(sum);
            uint32_t bits;
            memcpy(&bits, sum, sizeof(bits));
            assert_int_equal(bits, vectors[i].bits);
            assert_true(sum[f.layout.segments[1].offset] == 0.0f);
        }
        stop(&f);
    }
}

// With three leaves open at once, ended in every order, the bits stay.
static void the_order_in_which_leaves_end_does_not_matter(void **state)
{
    (void)state;
    cadre_dealing d = {.n_leaves = 6, .block = 8, .world_size = 1};
    const int orders[6][3] = {
        {0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (int o = 0; o < 6; o++) {
        fixture f;
        start(&f, &d, 0, 3);
        for (int base = 0; base < 6; base += 3) {
            int leaf[3];
            for (int i = 0; i < 3; i++) {
                assert_int_equal(
                    cadre_leaves_open(&f.leaves, &leaf[i]), CADRE_LEAF_OPENED);
                assert_int_equal(leaf[i], base + i);
            }
            for (int i = 0; i < 3; i++) {
                int l = leaf[orders[o][i]];
                compute(&f, l, (float)((4 * l - 16) / 13.0));
            }
        }
        uint32_t bits;
        memcpy(&bits, cadre_leaves_node(&f.leaves, 0, 0), sizeof(bits));
        assert_int_equal(bits, 0xc0313b15u);
        stop(&f);
    }
}

// One leaf open at a time never waits for a window within a block.
static void windows_suffice_for_a_block(void **state)
{
    (void)state;
    for (int v = 1; v <= 48; v++) {
        for (int n = 1; n <= v; n++) {
            for (int k = 1; k <= 64; k *= 2) {
                cadre_dealing d = {.n_leaves = v, .block = k, .world_size = n};
                fixture f;
                start(&f, &d, 0, 1);
                int leaf;
                int own = cadre_dealing_rank_leaves(&d, 0);
                for (int i = 0; i < own; i++) {
                    if (i > 0 && i % k == 0) {
                        cadre_leaves_release(&f.leaves, i / k - 1);
                    }
                    assert_int_equal(
                        cadre_leaves_open(&f.leaves, &leaf), CADRE_LEAF_OPENED);
                    compute(&f, leaf, 1.0f);
                }
                assert_int_equal(
                    cadre_leaves_open(&f.leaves, &leaf), CADRE_LEAF_NONE_LEFT);
                stop(&f);
            }
        }
    }
}

static void a_full_pool_says_so(void **state)
{
    (void)state;
    cadre_dealing d = {.n_leaves = 4, .block = 1, .world_size = 1};
    fixture f;
    start(&f, &d, 0, 1);
    int leaf;
    assert_int_equal(cadre_leaves_open(&f.leaves, &leaf), CADRE_LEAF_OPENED);
    compute(&f, leaf, 1.0f);
    assert_int_equal(cadre_leaves_open(&f.leaves, &leaf), CADRE_LEAF_NO_WINDOW);
    cadre_leaves_release(&f.leaves, 0);
    assert_int_equal(cadre_leaves_open(&f.leaves, &leaf), CADRE_LEAF_OPENED);
    stop(&f);
}

static void misuse_is_named(void **state)
{
    (void)state;
    cadre_dealing d = {.n_leaves = 4, .block = 1, .world_size = 2};
    fixture f;
    start(&f, &d, 1, 2);
    int leaf;
    bool complete;
    assert_int_equal(cadre_leaves_open(&f.leaves, &leaf), CADRE_LEAF_OPENED);
    assert_int_equal(leaf, 1);
    assert_null(cadre_leaves_grad(&f.leaves, 0, 0));  // another rank's
    assert_null(cadre_leaves_grad(&f.leaves, 3, 0));  // not open
    assert_null(cadre_leaves_grad(&f.leaves, 99, 0)); // no such leaf
    assert_null(cadre_leaves_grad(&f.leaves, 1, 2));  // frozen
    assert_null(cadre_leaves_grad(&f.leaves, 1, 7));  // no such parameter
    CHECK_FAILS(cadre_leaves_ready(&f.leaves, 1, 0, &complete), CADRE_ERR_STATE,
        "never asked");
    assert_non_null(cadre_leaves_grad(&f.leaves, 1, 0));
    CHECK_FAILS(cadre_leaves_close(&f.leaves, 1, 0.0, 1), CADRE_ERR_STATE,
        "'x' in leaf 1 was asked for and never marked");
    CHECK_OK(cadre_leaves_ready(&f.leaves, 1, 0, &complete));
    CHECK_FAILS(cadre_leaves_ready(&f.leaves, 1, 0, &complete), CADRE_ERR_STATE,
        "twice");
    CHECK_FAILS(cadre_leaves_close(&f.leaves, 1, 0.0, -1),
        CADRE_ERR_INVALID_ARG, "weight");
    CHECK_OK(cadre_leaves_close(&f.leaves, 1, 0.0, 0));
    CHECK_FAILS(
        cadre_leaves_close(&f.leaves, 1, 0.0, 1), CADRE_ERR_STATE, "not open");
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_summed_along_the_tree),
        cmocka_unit_test(the_order_in_which_leaves_end_does_not_matter),
        cmocka_unit_test(windows_suffice_for_a_block),
        cmocka_unit_test(a_full_pool_says_so),
        cmocka_unit_test(misuse_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
