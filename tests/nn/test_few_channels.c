// SPDX-License-Identifier: Apache-2.0
//
// The parameter gradients of convolutions of one to three channels: near those
// of the definition in f64, and the same bits on every instruction set.

#include "nn/few_channels.h"

#include "base/alloc.h"
#include "nn/formula.h"
#include "support/isa.h"
#include <math.h>
#include <string.h>

enum { N = 3, MOST_CELLS = 20000, MOST_OUTPUTS = 19, MOST_TAPS = 3 * 7 * 7 };

typedef struct sizes {
    int64_t channels, height, width;
    int64_t outputs, block;
    int64_t kernel, stride, padding, dilation;
} sizes;

static const sizes cases[] = {
    {1, 28, 28, 6, 8, 5, 1, 2, 1},
    {1, 5, 9, 19, 8, 3, 1, 1, 1},
    {2, 11, 7, 9, 16, 3, 2, 0, 1},
    {3, 13, 10, 16, 16, 7, 2, 3, 1},
    {3, 9, 12, 8, 8, 3, 3, 2, 2},
    {2, 6, 6, 17, 16, 1, 1, 0, 1},
};
enum { N_CASES = sizeof(cases) / sizeof(cases[0]) };

typedef struct gradients {
    float weight[MOST_OUTPUTS * MOST_TAPS];
    float bias[MOST_OUTPUTS];
} gradients;

static cadre_conv_options options_of(const sizes *s)
{
    int64_t reach = (s->kernel - 1) * s->dilation + 1;
    return (cadre_conv_options){
        .n_samples = N,
        .in = {s->channels, s->height, s->width, 1, 0},
        .out = {s->outputs,
            (s->height + 2 * s->padding - reach) / s->stride + 1,
            (s->width + 2 * s->padding - reach) / s->stride + 1, s->block, 0},
        .kernel = s->kernel,
        .stride = s->stride,
        .padding = s->padding,
        .dilation = s->dilation,
        .groups = 1,
        .bias = true,
    };
}

static float x[MOST_CELLS];
static float dy[MOST_CELLS];

static int64_t dy_place(
    const cadre_conv_options *o, int64_t n, int64_t c, int64_t h, int64_t w)
{
    int64_t block = o->out.block;
    int64_t row = n * cadre_shape_blocks(o->out) + c / block;
    return ((row * o->out.height + h) * o->out.width + w) * block + c % block;
}

// What is too much in the last block is not to be looked at.
static void fill(const cadre_conv_options *o)
{
    size_t n_x = (size_t)(N * cadre_shape_elements(o->in));
    size_t n_dy = (size_t)(N * cadre_shape_columns(o->out));
    assert_true(n_x <= MOST_CELLS && n_dy <= MOST_CELLS);
    formula_fill(FORMULA_X, n_x, 1.0f, x);
    for (size_t i = 0; i < n_dy; i++) {
        dy[i] = NAN;
    }
    size_t k = 0;
    for (int64_t n = 0; n < N; n++) {
        for (int64_t c = 0; c < o->out.channels; c++) {
            for (int64_t h = 0; h < o->out.height; h++) {
                for (int64_t w = 0; w < o->out.width; w++) {
                    dy[dy_place(o, n, c, h, w)] =
                        formula_value(FORMULA_DY, k++, 1.0f);
                }
            }
        }
    }
}

static void compute(const cadre_conv_options *o, bool bias, gradients *g)
{
    size_t count = cadre_few_channels_scratch(o);
    float *scratch = cadre_alloc_array(count, sizeof(*scratch));
    assert_non_null(scratch);
    for (size_t i = 0; i < count; i++) {
        scratch[i] = NAN; // what others left there
    }
    memset(g, 0xff, sizeof(*g));
    const int64_t elements = cadre_shape_elements(o->in);
    cadre_few_channels_gradients(o,
        (cadre_matrix_view){x, N, elements, elements}, dy, g->weight,
        bias ? g->bias : NULL, scratch);
    cadre_free(scratch);
}

// The element of x under a filter's element; 0 in the padding.
static double under(
    const cadre_conv_options *o, int64_t n, int64_t c, int64_t h, int64_t w)
{
    if (h < 0 || h >= o->in.height || w < 0 || w >= o->in.width) {
        return 0.0;
    }
    int64_t plane = n * o->in.channels + c;
    return (double)x[(plane * o->in.height + h) * o->in.width + w];
}

// An element of the weights' gradient, or the bias's with no tap.
static double expected(const cadre_conv_options *o, int64_t c, int64_t tap)
{
    int64_t cells = o->kernel * o->kernel;
    double sum = 0.0;
    for (int64_t n = 0; n < N; n++) {
        for (int64_t h = 0; h < o->out.height; h++) {
            for (int64_t w = 0; w < o->out.width; w++) {
                int64_t row = tap % cells / o->kernel;
                double by =
                    tap < 0
                        ? 1.0
                        : under(o, n, tap / cells,
                              h * o->stride - o->padding + row * o->dilation,
                              w * o->stride - o->padding +
                                  tap % o->kernel * o->dilation);
                sum += (double)dy[dy_place(o, n, c, h, w)] * by;
            }
        }
    }
    return sum;
}

static void are_those_of_the_definition(void **state)
{
    use_isa(state);
    static gradients g;
    for (int i = 0; i < N_CASES; i++) {
        const cadre_conv_options o = options_of(&cases[i]);
        assert_true(cadre_few_channels(&o));
        fill(&o);
        compute(&o, true, &g);
        int64_t taps = o.in.channels * o.kernel * o.kernel;
        double apart = 0.0;
        double all = 0.0;
        for (int64_t c = 0; c < o.out.channels; c++) {
            for (int64_t tap = -1; tap < taps; tap++) {
                double want = expected(&o, c, tap);
                double found = tap < 0 ? (double)g.bias[c]
                                       : (double)g.weight[c * taps + tap];
                apart += (found - want) * (found - want);
                all += want * want;
            }
        }
        assert_true(sqrt(apart / all) < 1e-6);
    }
}

static void have_the_bits_of_the_plain_kernel(void **state)
{
    use_isa(state);
    static gradients plain;
    static gradients wide;
    for (int i = 0; i < N_CASES; i++) {
        const cadre_conv_options o = options_of(&cases[i]);
        fill(&o);
        for (int k = 0; k < MOST_CELLS; k += 7) {
            x[k] *= k % 2 == 0 ? 0x1p-130f : -0.0f;
        }
        assert_true(cadre_isa_use(CADRE_ISA_PLAIN));
        compute(&o, true, &plain);
        use_isa(state);
        compute(&o, true, &wide);
        assert_memory_equal(&plain, &wide, sizeof(plain));
    }
}

static void are_the_same_without_a_bias(void **state)
{
    (void)state;
    static gradients with;
    static gradients without;
    const cadre_conv_options o = options_of(&cases[0]);
    fill(&o);
    compute(&o, true, &with);
    compute(&o, false, &without);
    assert_memory_equal(with.weight, without.weight, sizeof(with.weight));
    assert_true(isnan(without.bias[0]));
}

static void others_are_left_to_the_library(void **state)
{
    (void)state;
    cadre_conv_options o = options_of(&cases[3]);
    o.groups = 3;
    assert_false(cadre_few_channels(&o));
    o.groups = 1;
    o.in.block = 8;
    assert_false(cadre_few_channels(&o));
    o.in.block = 1;
    o.out.block = 1;
    assert_false(cadre_few_channels(&o));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_EVERY_ISA(are_those_of_the_definition),
        ON_EVERY_ISA(have_the_bits_of_the_plain_kernel),
        cmocka_unit_test(are_the_same_without_a_bias),
        cmocka_unit_test(others_are_left_to_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
