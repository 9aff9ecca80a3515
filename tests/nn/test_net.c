// SPDX-License-Identifier: Apache-2.0
//
// Plans of nets: what is refused, what parameters come out, initial values.

#include "base/alloc.h"
#include "base/random.h"
#include "nn/net.h"
#include "support/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static cadre_shape row(int64_t elements)
{
    return (cadre_shape){elements, 1, 1, 1, 0};
}

static const cadre_layer mlp[] = {
    {.kind = "linear", .name = "fc1", .width = 7},
    {.kind = "relu"},
    {.kind = "linear", .name = "fc2", .width = 3},
};

static void describes_parameters(void **state)
{
    (void)state;
    cadre_net *net = NULL;
    CHECK_OK(cadre_net_create(mlp, 3, row(5), 3, &net));
    assert_int_equal(cadre_net_param_count(net), 4);

    const struct {
        const char *name;
        size_t count;
        int64_t shape[2];
        int n_dims;
        int fan_in;
    } wanted[] = {
        {"fc1.weight", 35, {7, 5}, 2, 5},
        {"fc1.bias", 7, {7, 0}, 1, 5},
        {"fc2.weight", 21, {3, 7}, 2, 7},
        {"fc2.bias", 3, {3, 0}, 1, 7},
    };
    for (int p = 0; p < 4; p++) {
        const cadre_net_param *param = cadre_net_param_at(net, p);
        assert_string_equal(param->name, wanted[p].name);
        assert_int_equal(param->n_dims, wanted[p].n_dims);
        for (int d = 0; d < param->n_dims; d++) {
            assert_int_equal(param->shape[d], wanted[p].shape[d]);
        }
        assert_int_equal(param->count, wanted[p].count);
        assert_true(param->init_bound == (float)(1.0 / sqrt(wanted[p].fan_in)));
    }
    cadre_net_destroy(net);
}

// Extents that are left 0 are 1, and there are no other parameters.
static void takes_shapes_as_users_write_them(void **state)
{
    (void)state;
    const cadre_layer fc = {.kind = "linear", .name = "fc", .width = 3};
    const cadre_layer tok = {
        .kind = "embedding", .name = "tok", .width = 3, .vocabulary = 9};
    const struct {
        cadre_layer layer;
        cadre_shape input;
        int64_t shape[2];
    } cases[] = {
        {fc, {.channels = 5}, {3, 5}},
        {fc, {.height = 2, .width = 3}, {3, 6}},
        {tok, {.tokens = 4}, {9, 3}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cadre_net *net = NULL;
        CHECK_OK(cadre_net_create(&cases[i].layer, 1, cases[i].input, 3, &net));
        const cadre_net_param *weight = cadre_net_param_at(net, 0);
        assert_memory_equal(weight->shape, cases[i].shape, sizeof(int64_t[2]));
        int count = cadre_net_param_count(net);
        assert_null(cadre_net_param_at(net, -1));
        assert_null(cadre_net_param_at(net, count));
        float untouched = 7.0f;
        cadre_net_initialize(net, 1, count, &untouched);
        assert_true(untouched == 7.0f);
        cadre_net_destroy(net);
    }
}

static void describes_convolutions(void **state)
{
    (void)state;
    const cadre_layer layers[] = {
        {.kind = "conv2d",
            .name = "conv",
            .width = 7,
            .kernel = 3,
            .stride = 2},
        {.kind = "linear", .name = "fc", .width = 3},
    };
    cadre_net *net = NULL;
    const cadre_shape image = {2, 9, 6, 1, 0};
    CHECK_OK(cadre_net_create(layers, 2, image, 3, &net));
    assert_int_equal(cadre_net_param_count(net), 4);
    const cadre_net_param *weight = cadre_net_param_at(net, 0);
    const int64_t wanted[] = {7, 2, 3, 3};
    assert_string_equal(weight->name, "conv.weight");
    assert_int_equal(weight->n_dims, 4);
    assert_memory_equal(weight->shape, wanted, sizeof(wanted));
    assert_true(weight->init_bound == (float)(1.0 / sqrt(18.0)));
    assert_string_equal(cadre_net_param_at(net, 1)->name, "conv.bias");
    assert_int_equal(cadre_net_param_at(net, 1)->count, 7);
    // Windows fit 4 times in 9 rows and 2 times in 6 columns.
    assert_int_equal(cadre_net_param_at(net, 2)->shape[1], 7 * 4 * 2);
    cadre_net_destroy(net);
}

static void refuses_images_that_make_no_sense(void **state)
{
    (void)state;
    const struct {
        cadre_layer layer;
        const char *words;
    } cases[] = {
        {{.kind = "conv2d", .width = 3, .kernel = 3}, "needs a name"},
        {{.kind = "conv2d", .name = "c", .kernel = 3}, "conv2d from 1 to 0"},
        {{.kind = "conv2d", .name = "c", .width = 3}, "kernel 0"},
        {{.kind = "conv2d", .name = "c", .width = 3, .kernel = 9},
            "a window of 9 does not fit an image of 8 x 8"},
        {{.kind = "conv2d", .name = "c", .width = 3, .kernel = 3, .stride = -1},
            "stride -1"},
        {{.kind = "conv2d", .name = "c", .width = 3, .kernel = 3, .rate = 0.5f},
            "conv2d has no rate"},
        {{.kind = "maxpool2d", .kernel = 3, .padding = 2},
            "more than half the kernel"},
        {{.kind = "avgpool2d"}, "kernel 0"},
        {{.kind = "avgpool2d", .width = 2, .kernel = 2}, "has no width"},
        {{.kind = "dropout"}, "dropout of rate 0"},
        {{.kind = "dropout", .rate = 1.0f}, "dropout of rate 1"},
        {{.kind = "relu", .kernel = 3}, "relu has no kernel"},
        {{.kind = "relayout"}, "there is no kind 'relayout'"},
    };
    cadre_net *net = NULL;
    const cadre_shape image = {1, 8, 8, 1, 0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CHECK_FAILS(cadre_net_create(&cases[i].layer, 1, image, 64, &net),
            CADRE_ERR_INVALID_ARG, cases[i].words);
    }
    assert_null(net);
}

static const cadre_shape text = {1, 1, 1, 1, 9};

static void refuses_texts_that_make_no_sense(void **state)
{
    (void)state;
    const cadre_layer embed = {
        .kind = "embedding", .name = "tok", .width = 6, .vocabulary = 64};
    const struct {
        cadre_layer layer;
        const char *words;
    } cases[] = {
        {{.kind = "embedding", .width = 6, .vocabulary = 64}, "needs a name"},
        {{.kind = "embedding", .name = "e", .width = 6, .vocabulary = 64},
            "and it comes first"},
        {{.kind = "positions"}, "needs a name"},
        {{.kind = "positions", .name = "p", .width = 6}, "has no width"},
        {{.kind = "positions", .name = "p", .deviation = -1.0f},
            "deviation -1"},
        {{.kind = "layer_norm"}, "needs a name"},
        {{.kind = "causal_attention", .heads = 0}, "0 heads of q"},
        {{.kind = "causal_attention", .heads = 3}, "3 heads of q"},
        {{.kind = "attention", .heads = 3, .kv_heads = 2},
            "3 heads of q and 2 each of k and v, of 6 channels"},
        {{.kind = "attention", .heads = 1, .kv_heads = -1}, "and -1 each"},
        {{.kind = "rotary", .heads = 2, .kv_heads = 2},
            "rotary with heads of 1 channels"},
        {{.kind = "rms_norm"}, "rms_norm needs a name"},
        {{.kind = "swiglu", .kv_heads = 1}, "swiglu has no kv_heads"},
        {{.kind = "conv2d", .name = "c", .width = 3, .kernel = 1},
            "conv2d works on images"},
        {{.kind = "maxpool2d", .kernel = 1}, "maxpool2d works on images"},
        {{.kind = "add"}, "add needs a residual before it"},
        {{.kind = "residual"}, "the last residual has no add"},
        {{.kind = "unembedding"}, "tied has to name an embedding"},
        {{.kind = "unembedding", .tied = "kot"},
            "tied has to name an embedding"},
        {{.kind = "gelu", .tied = "tok"}, "gelu has no tied"},
        {{.kind = "gelu", .heads = 1}, "gelu has no heads"},
    };
    cadre_net *net = NULL;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const cadre_layer layers[] = {embed, cases[i].layer};
        CHECK_FAILS(cadre_net_create(layers, 2, text, 64, &net),
            CADRE_ERR_INVALID_ARG, cases[i].words);
    }
    const cadre_layer behind[] = {
        {.kind = "linear", .name = "fc", .width = 1}, embed};
    CHECK_FAILS(cadre_net_create(behind, 2, text, 6, &net),
        CADRE_ERR_INVALID_ARG, "and it comes first");
    const cadre_layer lone[] = {{.kind = "causal_attention", .heads = 1},
        {.kind = "positions"}, {.kind = "swiglu"}};
    CHECK_FAILS(cadre_net_create(&lone[0], 1, row(6), 2, &net),
        CADRE_ERR_INVALID_ARG, "works on text");
    CHECK_FAILS(cadre_net_create(&lone[1], 1, row(6), 6, &net),
        CADRE_ERR_INVALID_ARG, "positions works on text");
    CHECK_FAILS(cadre_net_create(&lone[2], 1, row(5), 5, &net),
        CADRE_ERR_INVALID_ARG, "swiglu works on rows of two halves");
    assert_null(net);
}

static void refuses_pairs_that_do_not_fit(void **state)
{
    (void)state;
    const cadre_layer wider[] = {{.kind = "residual"},
        {.kind = "linear", .name = "a", .width = 4}, {.kind = "add"}};
    const cadre_layer nested[] = {
        {.kind = "residual"}, {.kind = "residual"}, {.kind = "add"}};
    const cadre_layer twice[] = {
        {.kind = "residual"}, {.kind = "shortcut"}, {.kind = "shortcut"}};
    const cadre_layer ties[] = {
        {.kind = "embedding", .name = "tok", .width = 6, .vocabulary = 64},
        {.kind = "linear", .name = "a", .width = 5},
        {.kind = "unembedding", .tied = "tok"}};
    cadre_net *net = NULL;
    CHECK_FAILS(cadre_net_create(wider, 3, row(5), 4, &net),
        CADRE_ERR_INVALID_ARG,
        "layer 3: what is added has 4 channels of 1 x 1, what it is added to");
    CHECK_FAILS(cadre_net_create(nested, 3, row(5), 5, &net),
        CADRE_ERR_INVALID_ARG, "layer 2: the residual before has no add");
    CHECK_FAILS(cadre_net_create(&twice[1], 1, row(5), 5, &net),
        CADRE_ERR_INVALID_ARG, "layer 1: shortcut needs a residual");
    CHECK_FAILS(cadre_net_create(twice, 3, row(5), 5, &net),
        CADRE_ERR_INVALID_ARG, "layer 3: shortcut needs a residual");
    CHECK_FAILS(cadre_net_create(ties, 3, text, 64, &net),
        CADRE_ERR_INVALID_ARG, "unembedding of 5 channels, but 'tok' makes 6");
    assert_null(net);
}

static void normal_values_follow_the_counters(void **state)
{
    (void)state;
    const cadre_layer layer = {
        .kind = "linear", .name = "fc", .width = 10, .deviation = 0.02f};
    cadre_net *net = NULL;
    CHECK_OK(cadre_net_create(&layer, 1, row(100), 10, &net));
    static float weight[1000];
    static float again[1000];
    float bias[10];
    cadre_net_initialize(net, 42, 0, weight);
    cadre_net_initialize(net, 42, 0, again);
    cadre_net_initialize(net, 42, 1, bias);
    assert_memory_equal(weight, again, sizeof(weight));
    double sum = 0.0;
    double squares = 0.0;
    int n_inside = 0; // of one deviation
    for (size_t i = 0; i < 1000; i++) {
        sum += (double)weight[i];
        squares += (double)weight[i] * (double)weight[i];
        n_inside += fabsf(weight[i]) < 0.02f;
    }
    // Mean 0, variance 0.02^2, 68 % inside, each within 5 sigma.
    assert_true(fabs(sum / 1000) < 5 * 0.02 / sqrt(1000));
    assert_true(fabs(squares / 1000 - 4e-4) < 5 * 4e-4 * sqrt(2.0 / 1000));
    assert_true(abs(n_inside - 683) < 5 * 15);
    for (size_t i = 0; i < 10; i++) {
        assert_true(bias[i] == 0.0f);
    }
    cadre_net_initialize(net, 43, 0, again);
    assert_memory_not_equal(weight, again, sizeof(weight));
    cadre_net_destroy(net);
}

static void initial_values_follow_the_counters(void **state)
{
    (void)state;
    const cadre_layer layer = {.kind = "linear", .name = "fc", .width = 10};
    cadre_net *net = NULL;
    CHECK_OK(cadre_net_create(&layer, 1, row(100), 10, &net));
    static float weight[1000];
    static float again[1000];
    float bias[10];
    cadre_net_initialize(net, 42, 0, weight);
    cadre_net_initialize(net, 42, 0, again);
    cadre_net_initialize(net, 42, 1, bias);
    assert_memory_equal(weight, again, sizeof(weight));

    double sum = 0.0;
    double squares = 0.0;
    for (size_t i = 0; i < 1000; i++) {
        uint32_t words[4];
        cadre_random_words(42, CADRE_STREAM_INITIAL, 0, i / 4, words);
        float unit = 2.0f * cadre_random_unit(words[i % 4]) - 1.0f;
        assert_true(weight[i] == unit * 0.1f);
        sum += (double)weight[i];
        squares += (double)weight[i] * (double)weight[i];
    }
    // Uniform in [-0.1, 0.1): mean 0, variance 0.1^2 / 3, each within 5 sigma.
    assert_true(fabs(sum / 1000) < 5 * 0.1 / sqrt(3.0 * 1000));
    assert_true(fabs(squares / 1000 - 0.01 / 3) < 5 * 0.01 * 0.3 / sqrt(1000));

    // Another parameter, another seed: other values.
    assert_memory_not_equal(weight, bias, sizeof(bias));
    cadre_net_initialize(net, 43, 0, again);
    assert_memory_not_equal(weight, again, sizeof(weight));
    cadre_net_destroy(net);
}

static void refuses_what_makes_no_sense(void **state)
{
    (void)state;
    cadre_net *net = NULL;
    const cadre_layer unknown[] = {{.kind = "linear", .name = "a", .width = 4},
        {.kind = "conv9", .name = "b", .width = 3}};
    CHECK_FAILS(cadre_net_create(unknown, 2, row(5), 3, &net),
        CADRE_ERR_INVALID_ARG, "layer 2 b: there is no kind 'conv9'");
    const cadre_layer kindless = {.name = "a", .width = 3};
    CHECK_FAILS(cadre_net_create(&kindless, 1, row(5), 3, &net),
        CADRE_ERR_INVALID_ARG, "layer 1 a: there is no kind ''");
    const cadre_layer nameless = {.kind = "linear", .name = NULL, .width = 3};
    CHECK_FAILS(cadre_net_create(&nameless, 1, row(5), 3, &net),
        CADRE_ERR_INVALID_ARG, "layer 1: linear needs a name");
    const cadre_layer narrow = {.kind = "linear", .name = "a", .width = 0};
    CHECK_FAILS(cadre_net_create(&narrow, 1, row(5), 3, &net),
        CADRE_ERR_INVALID_ARG, "layer 1 a: linear from 5 to 0");
    const cadre_layer vast = {
        .kind = "linear", .name = "a", .width = INT64_MAX};
    CHECK_FAILS(cadre_net_create(&vast, 1, row(5), 3, &net),
        CADRE_ERR_INVALID_ARG, "elements are possible");
    const cadre_layer wide_relu = {.kind = "relu", .width = 3};
    CHECK_FAILS(cadre_net_create(&wide_relu, 1, row(3), 3, &net),
        CADRE_ERR_INVALID_ARG, "layer 1: relu has no width");
    const cadre_layer twins[] = {{.kind = "linear", .name = "a", .width = 4},
        {.kind = "linear", .name = "a", .width = 3}};
    CHECK_FAILS(cadre_net_create(twins, 2, row(5), 3, &net),
        CADRE_ERR_INVALID_ARG, "layer 2 a: layer 1 has the same name");
    char long_name[100];
    memset(long_name, 'n', sizeof(long_name));
    long_name[99] = '\0';
    const cadre_layer named = {.kind = "linear", .name = long_name, .width = 3};
    CHECK_FAILS(cadre_net_create(&named, 1, row(5), 3, &net),
        CADRE_ERR_INVALID_ARG, "longer than 47 bytes");
    CHECK_FAILS(cadre_net_create(mlp, 3, row(5), 4, &net),
        CADRE_ERR_INVALID_ARG,
        "the last layer has 3 outputs, but there are 4 classes");
    CHECK_FAILS(cadre_net_create(mlp, 0, row(5), 3, &net),
        CADRE_ERR_INVALID_ARG, "0 layers");
    CHECK_FAILS(cadre_net_create(mlp, 3, row(-1), 3, &net),
        CADRE_ERR_INVALID_ARG, "from -1 x 1 x 1 elements");
    assert_null(net);
    cadre_net_destroy(NULL);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    cadre_net *net = NULL;
    int failures = 0;
    cadre_status status = CADRE_ERR_NO_MEMORY;
    for (; status != CADRE_OK; failures++) {
        cadre_alloc_fail_after(failures);
        status = cadre_net_create(mlp, 3, row(5), 3, &net);
        cadre_alloc_fail_after(-1);
        assert_true(status == CADRE_OK || status == CADRE_ERR_NO_MEMORY);
        assert_in_range(failures, 0, 100);
    }
    assert_true(failures > 1);

    cadre_net_worker *worker = NULL;
    status = CADRE_ERR_NO_MEMORY;
    for (failures = 0; status != CADRE_OK; failures++) {
        cadre_alloc_fail_after(failures);
        status = cadre_net_worker_create(net, (int64_t[]){4}, 1, &worker);
        cadre_alloc_fail_after(-1);
        assert_true(status == CADRE_OK || status == CADRE_ERR_NO_MEMORY);
        assert_in_range(failures, 0, 100);
    }
    assert_true(failures > 1);
    cadre_net_worker_destroy(worker);
    cadre_net_worker_destroy(NULL);
    cadre_net_destroy(net);
}

static void says_what_computes(void **state)
{
    (void)state;
    assert_int_equal(strncmp(cadre_compute_version(), "oneDNN ", 7), 0);
    assert_true(strlen(cadre_compute_version()) > 7);
    assert_true(strlen(cadre_compute_isa()) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(describes_parameters),
        cmocka_unit_test(takes_shapes_as_users_write_them),
        cmocka_unit_test(describes_convolutions),
        cmocka_unit_test(refuses_images_that_make_no_sense),
        cmocka_unit_test(refuses_texts_that_make_no_sense),
        cmocka_unit_test(refuses_pairs_that_do_not_fit),
        cmocka_unit_test(normal_values_follow_the_counters),
        cmocka_unit_test(initial_values_follow_the_counters),
        cmocka_unit_test(refuses_what_makes_no_sense),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(says_what_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
