// SPDX-License-Identifier: Apache-2.0
//
// A handler that interrupts the computing thread, as a profiler's or a timer's
// does, must not show in the results.

#include "nn/compute.h"
#include "nn/compute_conv.h"

#include "base/alloc.h"
#include "support/check.h"
#include <signal.h>
#include <sys/time.h>

// Some of these write outside of their result when they are interrupted.
enum { ROWS = 43, COLUMNS = 256, DEPTH = 512, ROUNDS = 1000 };

static volatile sig_atomic_t n_signals;

static void count(int signal_number)
{
    (void)signal_number;
    n_signals++;
}

static void interrupt_every_us(int microseconds)
{
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    const struct itimerval often = {
        .it_interval = {.tv_usec = microseconds},
        .it_value = {.tv_usec = microseconds},
    };
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
}

static float *small_numbers(size_t n)
{
    float *values = cadre_alloc_array(n, sizeof(*values));
    assert_non_null(values);
    for (size_t i = 0; i < n; i++) {
        values[i] = (float)((int)(i * 7 % 11) - 5);
    }
    return values;
}

static void a_signal_does_not_disturb_a_product(void **state)
{
    (void)state;
    float *a = small_numbers(ROWS * DEPTH);
    float *b = small_numbers(DEPTH * COLUMNS);
    float *wanted = small_numbers(ROWS * COLUMNS);
    float *found = small_numbers(ROWS * COLUMNS);
    const cadre_factor left = {.matrix = {a, ROWS, DEPTH, DEPTH}};
    const cadre_factor right = {.matrix = {b, DEPTH, COLUMNS, COLUMNS}};
    const cadre_matrix first = {wanted, ROWS, COLUMNS, COLUMNS};
    const cadre_matrix again = {found, ROWS, COLUMNS, COLUMNS};
    CHECK_OK(cadre_compute_product(left, right, first));

    interrupt_every_us(100);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK_OK(cadre_compute_product(left, right, again));
        assert_memory_equal(found, wanted, ROWS * COLUMNS * sizeof(found[0]));
    }
    interrupt_every_us(0);
    assert_true(n_signals > 0);

    cadre_free(a);
    cadre_free(b);
    cadre_free(wanted);
    cadre_free(found);
}

static void a_signal_does_not_disturb_a_convolution(void **state)
{
    (void)state;
    enum {
        N = 2,
        CHANNELS = 16,
        SIDE = 14,
        IMAGES = N * CHANNELS * SIDE * SIDE,
        WEIGHTS = CHANNELS * CHANNELS * 9
    };
    const cadre_shape shape = {CHANNELS, SIDE, SIDE, cadre_compute_block(), 0};
    const cadre_conv_options options = {.n_samples = N,
        .in = shape,
        .x_stride = CHANNELS * SIDE * SIDE,
        .out = shape,
        .kernel = 3,
        .stride = 1,
        .dilation = 1,
        .groups = 1,
        .bias = true,
        .padding = 1,
        .relu = true,
        .param_gradients = true,
        .input_gradient = true};
    cadre_conv *conv = NULL;
    CHECK_OK(cadre_conv_create(&options, &conv));
    float *scratch = small_numbers(cadre_conv_scratch(conv));
    float *x = small_numbers(IMAGES);
    float *weight = small_numbers(WEIGHTS);
    float *bias = small_numbers(CHANNELS);
    float *found[] = {small_numbers(IMAGES), small_numbers(IMAGES),
        small_numbers(WEIGHTS), small_numbers(CHANNELS)};
    float *wanted[] = {small_numbers(IMAGES), small_numbers(IMAGES),
        small_numbers(WEIGHTS), small_numbers(CHANNELS)};
    const size_t counts[] = {IMAGES, IMAGES, WEIGHTS, CHANNELS};
    n_signals = 0;
    for (int i = 0; i < ROUNDS; i++) {
        float **out = i == 0 ? wanted : found;
        CHECK_OK(cadre_conv_forward(conv, x, weight, bias, out[0], scratch));
        CHECK_OK(cadre_conv_input_gradient(conv, weight, x, out[1], scratch));
        CHECK_OK(
            cadre_conv_param_gradients(conv, x, x, out[2], out[3], scratch));
        for (size_t k = 0; k < 4 && i > 0; k++) {
            assert_memory_equal(
                found[k], wanted[k], counts[k] * sizeof(*found[k]));
        }
        if (i == 0) {
            interrupt_every_us(100);
        }
    }
    interrupt_every_us(0);
    assert_true(n_signals > 0);
    for (size_t k = 0; k < 4; k++) {
        cadre_free(found[k]);
        cadre_free(wanted[k]);
    }
    cadre_free(scratch);
    cadre_free(x);
    cadre_free(weight);
    cadre_free(bias);
    cadre_conv_destroy(conv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_does_not_disturb_a_convolution),
        cmocka_unit_test(a_signal_does_not_disturb_a_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
