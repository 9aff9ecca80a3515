// SPDX-License-Identifier: Apache-2.0

#include "optim/schedule.h"

// sin(pi u / 2) for u from 0 to 1/2: Taylor's series, whose next term is below
// 2^-63 of the sum there.
static double quarter_sine(double u)
{
    static const double inverse_factorials[] = {
        1.0 / 355687428096000, // 17!
        -1.0 / 1307674368000,
        1.0 / 6227020800,
        -1.0 / 39916800,
        1.0 / 362880,
        -1.0 / 5040,
        1.0 / 120,
        -1.0 / 6,
    };
    const double half_pi = 0x1.921fb54442d18p+0;
    double x = u * half_pi;
    double square = x * x;
    double sum = 0;
    for (int i = 0; i < 8; i++) {
        sum = (sum + inverse_factorials[i]) * square;
    }
    return x + x * sum;
}

// (1 + cos(pi p)) / 2 = 1 - sin(pi p / 2)^2 = sin(pi (1 - p) / 2)^2, of which
// each half of the range takes the one with the small argument: 1 - p is exact.
double cadre_cosine_fall(double p)
{
    double sine = quarter_sine(p <= 0.5 ? p : 1.0 - p);
    return p <= 0.5 ? 1.0 - sine * sine : sine * sine;
}

// By repeated squaring: the same products everywhere, and few of them.
static double power(double base, int64_t exponent)
{
    double product = 1.0;
    for (; exponent > 0; exponent /= 2) {
        product = exponent % 2 == 1 ? product * base : product;
        base = base * base;
    }
    return product;
}

// How much of the way from min_lr_factor up to 1 is left.
static double height(const cadre_rate_plan *plan, int64_t t)
{
    if (t > plan->total_steps) {
        return 0.0;
    }
    double p = (double)(t - 1 - plan->warmup_steps) /
               (double)(plan->total_steps - plan->warmup_steps);
    return plan->shape == CADRE_RATE_COSINE ? cadre_cosine_fall(p) : 1.0 - p;
}

double cadre_rate(const cadre_rate_plan *plan, int64_t t)
{
    if (t < plan->warmup_steps) {
        return plan->lr * ((double)t / (double)plan->warmup_steps);
    }
    if (t == plan->warmup_steps || plan->shape == CADRE_RATE_CONSTANT) {
        return plan->lr;
    }
    if (plan->shape == CADRE_RATE_STEP) {
        int64_t n_falls = (t - 1 - plan->warmup_steps) / plan->step_every;
        return plan->lr * power(plan->step_factor, n_falls);
    }
    double least = plan->min_lr_factor;
    return plan->lr * (least + (1.0 - least) * height(plan, t));
}
