// SPDX-License-Identifier: Apache-2.0
//
// A handler that interrupts the computing thread, as a profiler's or a timer's
// does, must not show in the results.

#include "nn/compute.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_does_not_disturb_a_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
