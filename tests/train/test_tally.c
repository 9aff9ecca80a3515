// SPDX-License-Identifier: Apache-2.0

#include "train/tally.h"

#include "support/check.h"
#include <math.h>

static void add(cadre_tally *t, double loss, int64_t ns)
{
    const cadre_step_report report = {
        .loss = loss,
        .weight = 64,
        .exposed_ms = 0.5,
        .bytes_sent = 100,
        .overhead_bytes = 7,
        .skipped = !isfinite(loss),
    };
    const cadre_step_times times = {.ns = ns};
    cadre_tally_add(t, &report, &times);
}

static void knows_nothing_before_a_step(void **state)
{
    (void)state;
    cadre_tally t;
    CHECK_OK(cadre_tally_init(&t, 10, 1));
    assert_true(isnan(cadre_tally_loss(&t)));
    assert_true(isnan(cadre_tally_samples_per_second(&t)));
    assert_true(isnan(cadre_tally_median_ms(&t)));
    cadre_tally_fini(&t);
}

static void loss_is_the_mean_of_the_last_ten(void **state)
{
    (void)state;
    cadre_tally t;
    CHECK_OK(cadre_tally_init(&t, 100, 1));
    add(&t, 3, 1);
    add(&t, 5, 1);
    assert_true(cadre_tally_loss(&t) == 4);
    for (int i = 1; i <= 20; i++) {
        add(&t, i, 1);
    }
    assert_true(cadre_tally_loss(&t) == 15.5);
    cadre_tally_fini(&t);
}

static void a_skipped_step_has_no_loss(void **state)
{
    (void)state;
    cadre_tally t;
    CHECK_OK(cadre_tally_init(&t, 100, 1));
    add(&t, (double)NAN, 1);
    assert_true(isnan(cadre_tally_loss(&t)));
    assert_int_equal(t.n_skipped, 1);
    add(&t, 3, 1);
    add(&t, (double)NAN, 1);
    add(&t, 5, 1);
    assert_true(cadre_tally_loss(&t) == 4);
    cadre_tally_fini(&t);
}

static void the_first_five_steps_have_no_speed(void **state)
{
    (void)state;
    cadre_tally t;
    CHECK_OK(cadre_tally_init(&t, 8, 1));
    for (int i = 0; i < 5; i++) {
        add(&t, 1, 1000000000);
    }
    assert_true(isnan(cadre_tally_samples_per_second(&t)));
    add(&t, 1, 1000000);
    add(&t, 1, 9000000);
    add(&t, 1, 2000000);
    assert_true(cadre_tally_samples_per_second(&t) == 16000);
    assert_true(cadre_tally_median_ms(&t) == 2);
    assert_int_equal(t.exposed_ns, 1500000);
    assert_int_equal(t.bytes_sent, 800);
    assert_int_equal(t.overhead_bytes, 56);
    cadre_tally_fini(&t);
}

static void the_median_of_an_even_number_is_between_two(void **state)
{
    (void)state;
    cadre_tally t;
    CHECK_OK(cadre_tally_init(&t, 9, 1));
    for (int i = 0; i < 5; i++) {
        add(&t, 1, 1);
    }
    add(&t, 1, 4000000);
    add(&t, 1, 1000000);
    add(&t, 1, 8000000);
    add(&t, 1, 2000000);
    assert_true(cadre_tally_median_ms(&t) == 3);
    cadre_tally_fini(&t);
}

static void a_run_that_goes_on_has_the_losses_from_before(void **state)
{
    (void)state;
    cadre_tally whole;
    cadre_tally first;
    cadre_tally rest;
    CHECK_OK(cadre_tally_init(&whole, 30, 1));
    CHECK_OK(cadre_tally_init(&first, 30, 1));
    CHECK_OK(cadre_tally_init(&rest, 30, 1));
    for (int i = 1; i <= 14; i++) {
        add(&whole, i * 0.1, 1);
        add(&first, i * 0.1, 1);
    }
    double losses[CADRE_TALLY_LOSSES];
    int n = cadre_tally_losses(&first, losses);
    assert_int_equal(n, CADRE_TALLY_LOSSES);
    cadre_tally_resume(&rest, first.n_steps, 3, losses, n);
    assert_true(cadre_tally_loss(&rest) == cadre_tally_loss(&whole));
    assert_int_equal(rest.n_skipped, 3);
    for (int i = 15; i <= 17; i++) {
        add(&whole, i * 0.1, 1);
        add(&rest, i * 0.1, 1);
    }
    assert_true(cadre_tally_loss(&rest) == cadre_tally_loss(&whole));
    assert_int_equal(rest.n_steps, 17);
    assert_int_equal(rest.bytes_sent, 300);
    // Its first steps are warm-up again.
    assert_int_equal(rest.n_measured, 0);
    cadre_tally_fini(&rest);
    cadre_tally_fini(&first);
    cadre_tally_fini(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_nothing_before_a_step),
        cmocka_unit_test(loss_is_the_mean_of_the_last_ten),
        cmocka_unit_test(a_skipped_step_has_no_loss),
        cmocka_unit_test(the_first_five_steps_have_no_speed),
        cmocka_unit_test(the_median_of_an_even_number_is_between_two),
        cmocka_unit_test(a_run_that_goes_on_has_the_losses_from_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
