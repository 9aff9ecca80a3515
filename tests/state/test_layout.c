// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "state/layout.h"
#include <jansson.h>
#include <math.h>

static void add(cadre_layout *layout, const char *name, const char *unit,
    int64_t rows, int64_t columns, bool frozen)
{
    int64_t shape[2] = {rows, columns};
    CHECK_OK(cadre_layout_add(layout, name, unit, shape, 2, frozen));
}

static cadre_layout example(void)
{
    cadre_layout layout = {0};
    add(&layout, "fc1.weight", "fc1", 10, 33, false);
    add(&layout, "fc1.bias", "fc1", 1, 10, false);
    add(&layout, "norm.scale", "norm", 1, 7, true);
    add(&layout, "fc2.weight", "fc2", 3, 10, false);
    return layout;
}

static void units_start_at_quanta_and_segments_at_cache_lines(void **state)
{
    (void)state;
    cadre_layout layout = example();
    assert_int_equal(layout.n_units, 3);
    assert_int_equal(layout.segments[0].offset, 0);
    assert_int_equal(layout.segments[1].offset, 336); // 330, rounded up to 16
    assert_int_equal(layout.units[0].hi, 346);
    assert_int_equal(layout.segments[2].offset, 512);
    assert_int_equal(layout.segments[3].offset, 768);
    assert_int_equal(layout.n_elements, 798);
    cadre_layout_fini(&layout);
}

static void refuses_names_and_shapes_that_make_no_sense(void **state)
{
    (void)state;
    cadre_layout layout = example();
    int64_t good = 1;
    int64_t zero = 0;
    int64_t huge[2] = {INT64_MAX, INT64_MAX};
    char long_name[300];
    memset(long_name, 'a', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    CHECK_FAILS(cadre_layout_add(&layout, "fc2.weight", "fc2", &good, 1, false),
        CADRE_ERR_INVALID_ARG, "already");
    CHECK_FAILS(cadre_layout_add(&layout, "", "u", &good, 1, false),
        CADRE_ERR_INVALID_ARG, "name");
    CHECK_FAILS(cadre_layout_add(&layout, "a\nb", "u", &good, 1, false),
        CADRE_ERR_INVALID_ARG, "control");
    CHECK_FAILS(cadre_layout_add(&layout, long_name, "u", &good, 1, false),
        CADRE_ERR_INVALID_ARG, "255");
    CHECK_FAILS(cadre_layout_add(&layout, "x", "u", &zero, 1, false),
        CADRE_ERR_INVALID_ARG, "extents");
    CHECK_FAILS(cadre_layout_add(&layout, "x", "u", huge, 2, false),
        CADRE_ERR_INVALID_ARG, "memory");
    CHECK_FAILS(cadre_layout_add(&layout, "x", "u", &good, 0, false),
        CADRE_ERR_INVALID_ARG, "extents");
    const char *const no_utf8[] = {"\xff", "a\x80", "\xc0\x80", "\xe2\x82",
        "\xed\xa0\x80", "\xf4\x90\x80\x80", "__metadata__"};
    for (size_t i = 0; i < sizeof(no_utf8) / sizeof(no_utf8[0]); i++) {
        CHECK_FAILS(cadre_layout_add(&layout, no_utf8[i], "u", &good, 1, false),
            CADRE_ERR_INVALID_ARG, "UTF-8");
    }
    assert_int_equal(layout.n_segments, 4);
    CHECK_OK(cadre_layout_add(&layout,
        "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", "u", &good, 1,
        false));
    cadre_layout_fini(&layout);
}

static void slices_leave_out_gaps_and_frozen_segments(void **state)
{
    (void)state;
    cadre_layout layout = example();
    cadre_slice slices[4];
    assert_int_equal(
        cadre_layout_slices(&layout, 0, (cadre_shard){256, 346}, slices), 2);
    assert_int_equal(slices[0].offset, 256);
    assert_int_equal(slices[0].count, 74);
    assert_int_equal(slices[1].offset, 336);
    assert_int_equal(slices[1].count, 10);
    assert_int_equal(
        cadre_layout_slices(&layout, 0, (cadre_shard){330, 336}, slices), 0);
    assert_int_equal(
        cadre_layout_slices(&layout, 1, (cadre_shard){512, 519}, slices), 0);
    cadre_layout_fini(&layout);
}

static void its_hash_knows_every_detail(void **state)
{
    (void)state;
    cadre_layout a = example();
    uint64_t hash = cadre_layout_hash(&a);
    cadre_layout b = example();
    assert_true(cadre_layout_hash(&b) == hash);
    b.segments[2].frozen = false;
    assert_true(cadre_layout_hash(&b) != hash);
    b.segments[2].frozen = true;
    b.segments[3].shape[0] = 10;
    b.segments[3].shape[1] = 3;
    assert_true(cadre_layout_hash(&b) != hash);
    cadre_layout_fini(&a);
    cadre_layout_fini(&b);
}

static void its_json_says_where_everything_is(void **state)
{
    (void)state;
    cadre_layout layout = example();
    char *text = cadre_layout_json(&layout);
    assert_non_null(text);
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    const json_t *segments = json_object_get(root, "segments");
    assert_int_equal(json_array_size(segments), 4);
    const json_t *bias = json_array_get(segments, 1);
    assert_string_equal(
        json_string_value(json_object_get(bias, "name")), "fc1.bias");
    assert_int_equal(json_integer_value(json_object_get(bias, "offset")), 336);
    assert_int_equal(
        json_integer_value(json_object_get(bias, "unit_start")), 0);
    json_decref(root);
    cadre_free(text);
    cadre_layout_fini(&layout);
}

static void piece_hashes_are_cut_at_quanta_and_read_nans_alike(void **state)
{
    (void)state;
    float x[600];
    for (int i = 0; i < 600; i++) {
        x[i] = (float)i * 0.5f;
    }
    x[300] = NAN;
    uint64_t expected = cadre_hash(x, 246 * sizeof(float), 10);
    uint32_t middle[256];
    memcpy(middle, x + 246, sizeof(middle));
    middle[300 - 246] = 0x7fc00000u;
    expected += cadre_hash(middle, sizeof(middle), 256);
    expected += cadre_hash(x + 502, 98 * sizeof(float), 512);
    assert_true(cadre_piece_hash(x, 10, 600) == expected);

    uint32_t other_nan = 0xffc12345u;
    memcpy(&x[300], &other_nan, sizeof(other_nan));
    assert_true(cadre_piece_hash(x, 10, 600) == expected);
    x[301] = -x[301];
    assert_true(cadre_piece_hash(x, 10, 600) != expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_start_at_quanta_and_segments_at_cache_lines),
        cmocka_unit_test(refuses_names_and_shapes_that_make_no_sense),
        cmocka_unit_test(slices_leave_out_gaps_and_frozen_segments),
        cmocka_unit_test(its_hash_knows_every_detail),
        cmocka_unit_test(its_json_says_where_everything_is),
        cmocka_unit_test(piece_hashes_are_cut_at_quanta_and_read_nans_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
