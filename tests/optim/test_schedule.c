// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "optim/schedule.h"
#include <float.h>
#include <math.h>

static void the_rate_rises_and_stays(void **state)
{
    (void)state;
    const cadre_rate_plan plan = {.lr = 0.4, .warmup_steps = 4};
    assert_true(cadre_rate(&plan, 1) == 0.1);
    assert_true(cadre_rate(&plan, 3) == 0.4 * 0.75);
    assert_true(cadre_rate(&plan, 4) == 0.4);
    assert_true(cadre_rate(&plan, 1000) == 0.4);
    const cadre_rate_plan at_once = {.lr = 0.4};
    assert_true(cadre_rate(&at_once, 1) == 0.4);
}

// (1 + cos(pi p)) / 2, correctly rounded: computed with 60 digits.
static void cosine_is_within_its_bound_of_true_values(void **state)
{
    (void)state;
    static const struct {
        double p;
        double value;
    } cases[] = {
        {0x1.0000000000000p-30, 0x1.0000000000000p+0},
        {0x1.0000000000000p-8, 0x1.fffb10b4dc96ep-1},
        {0x1.999999999999ap-4, 0x1.f378709a22a80p-1},
        {0x1.0000000000000p-2, 0x1.b504f333f9de6p-1},
        {0x1.5555555555555p-2, 0x1.8000000000000p-1},
        {0x1.ffe5c91d14e3cp-2, 0x1.001496b7bf8dcp-1},
        {0x1.0000000000000p-1, 0x1.0000000000000p-1},
        {0x1.00014f8b588e3p-1, 0x1.fffbe1db3ef6fp-2},
        {0x1.3333333333333p-1, 0x1.61c8864680b59p-2},
        {0x1.5555555555555p-1, 0x1.0000000000001p-2},
        {0x1.8000000000000p-1, 0x1.2bec333018867p-3},
        {0x1.ccccccccccccdp-1, 0x1.90f1ecbbab007p-6},
        {0x1.fae147ae147aep-1, 0x1.02b458bbde995p-12},
        {0x1.ffffde7210be9p-1, 0x1.5b417e5030efdp-39},
        {0x1.fffffffffe000p-1, 0x1.3bd3cc9be45dep-79},
    };
    assert_true(cadre_cosine_fall(0.0) == 1.0);
    assert_true(cadre_cosine_fall(1.0) == 0.0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double found = cadre_cosine_fall(cases[i].p);
        double off = fabs(found - cases[i].value) / cases[i].value;
        assert_true(off <= 4 * DBL_EPSILON);
    }
}

// Everywhere, by the host's own functions in a longer format where it has one.
static void cosine_is_smooth_and_falls(void **state)
{
    (void)state;
    enum { N = 200000 };
    const long double half_pi = 1.57079632679489661923132169163975144L;
    double before = 1.0;
    for (int i = 0; i <= N; i++) {
        double p = (double)i / N;
        double found = cadre_cosine_fall(p);
        // Of the small argument: near 1 the cosine would lose digits.
        long double root = p <= 0.5 ? cosl(half_pi * (long double)p)
                                    : sinl(half_pi * (1.0L - (long double)p));
        long double wanted = root * root;
        long double off = fabsl((long double)found - wanted);
        assert_true(off <= 4 * DBL_EPSILON * wanted);
        assert_true(found <= before);
        before = found;
    }
}

// As CosineAnnealingLR(T_max=8, eta_min=0.1) behind a warm-up of 2 has it.
static void cosine_falls_from_lr_to_its_end(void **state)
{
    (void)state;
    const cadre_rate_plan plan = {
        .shape = CADRE_RATE_COSINE,
        .lr = 1.0,
        .warmup_steps = 2,
        .total_steps = 10,
        .min_lr_factor = 0.1,
    };
    assert_true(cadre_rate(&plan, 1) == 0.5);
    assert_true(cadre_rate(&plan, 2) == 1.0);
    assert_true(cadre_rate(&plan, 3) == 1.0);
    for (int t = 3; t <= 10; t++) {
        double wanted = 0.1 + 0.9 * (1 + cos(acos(-1.0) * (t - 3) / 8)) / 2;
        assert_true(fabs(cadre_rate(&plan, t) - wanted) < 1e-15);
    }
    assert_true(cadre_rate(&plan, 7) == 0.1 + 0.9 * cadre_cosine_fall(0.5));
    assert_true(cadre_rate(&plan, 11) == 0.1);
    assert_true(cadre_rate(&plan, INT64_MAX) == 0.1);
}

static void linear_falls_along_a_line(void **state)
{
    (void)state;
    cadre_rate_plan plan = {
        .shape = CADRE_RATE_LINEAR, .lr = 2.0, .total_steps = 4};
    const double wanted[] = {2.0, 1.5, 1.0, 0.5, 0.0, 0.0};
    for (int t = 1; t <= 6; t++) {
        assert_true(cadre_rate(&plan, t) == wanted[t - 1]);
    }
    plan.min_lr_factor = 0.5;
    assert_true(cadre_rate(&plan, 3) == 1.5);
    assert_true(cadre_rate(&plan, 5) == 1.0);
}

static void steps_fall_after_every_few_updates(void **state)
{
    (void)state;
    const cadre_rate_plan plan = {
        .shape = CADRE_RATE_STEP,
        .lr = 4.0,
        .warmup_steps = 1,
        .step_every = 3,
        .step_factor = 0.5,
    };
    const double wanted[] = {4, 4, 4, 4, 2, 2, 2, 1, 1, 1, 0.5};
    for (int t = 1; t <= 11; t++) {
        assert_true(cadre_rate(&plan, t) == wanted[t - 1]);
    }
    assert_true(cadre_rate(&plan, INT64_MAX) == 0.0);
}

static void a_warm_up_may_be_longer_than_the_run(void **state)
{
    (void)state;
    for (int shape = CADRE_RATE_COSINE; shape <= CADRE_RATE_LINEAR; shape++) {
        const cadre_rate_plan plan = {
            .shape = (cadre_rate_shape)shape,
            .lr = 1.0,
            .warmup_steps = 8,
            .total_steps = 4,
            .min_lr_factor = 0.25,
        };
        assert_true(cadre_rate(&plan, 4) == 0.5);
        assert_true(cadre_rate(&plan, 8) == 1.0);
        assert_true(cadre_rate(&plan, 9) == 0.25);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rate_rises_and_stays),
        cmocka_unit_test(cosine_is_within_its_bound_of_true_values),
        cmocka_unit_test(cosine_is_smooth_and_falls),
        cmocka_unit_test(cosine_falls_from_lr_to_its_end),
        cmocka_unit_test(linear_falls_along_a_line),
        cmocka_unit_test(steps_fall_after_every_few_updates),
        cmocka_unit_test(a_warm_up_may_be_longer_than_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
