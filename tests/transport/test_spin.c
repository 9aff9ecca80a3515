// SPDX-License-Identifier: Apache-2.0
//
// When a wait spins: only where that has brought something lately.

#include "support/check.h"

#include "transport/spin.h"

enum { SHORT_NS = 1000, LONG_NS = CADRE_SPIN_NS };

static bool spins(const cadre_spin *spin)
{
    return cadre_spin_end(spin, 5) > 5;
}

static void only_behind_a_short_wait(void **state)
{
    (void)state;
    cadre_spin spin = {.allowed = true};
    assert_false(spins(&spin));
    cadre_spin_learn(&spin, SHORT_NS);
    assert_int_equal(cadre_spin_end(&spin, 5), 5 + CADRE_SPIN_NS);
    for (int i = 0; i < 100; i++) {
        cadre_spin_learn(&spin, SHORT_NS);
        assert_true(spins(&spin));
    }
    cadre_spin_learn(&spin, LONG_NS);
    assert_false(spins(&spin));
}

static void never_without_cores(void **state)
{
    (void)state;
    cadre_spin spin = {.allowed = false};
    for (int i = 0; i < 100; i++) {
        cadre_spin_learn(&spin, SHORT_NS);
        assert_false(spins(&spin));
    }
}

// Waits that are left out before it spins, each of them short.
static int count_rests(cadre_spin *spin)
{
    int n = 0;
    while (!spins(spin)) {
        cadre_spin_learn(spin, SHORT_NS);
        n++;
    }
    return n;
}

// As with two ranks on one core: it is short only if the other may run.
static void less_and_less_where_it_brings_nothing(void **state)
{
    (void)state;
    cadre_spin spin = {.allowed = true};
    cadre_spin_learn(&spin, SHORT_NS);
    for (int wanted = 1; wanted < CADRE_SPIN_MOST_RESTS;
         wanted = 2 * wanted + 1) {
        cadre_spin_learn(&spin, LONG_NS);
        assert_int_equal(count_rests(&spin), wanted);
    }
    for (int i = 0; i < 3; i++) {
        cadre_spin_learn(&spin, LONG_NS);
        assert_int_equal(count_rests(&spin), CADRE_SPIN_MOST_RESTS);
    }
    // Once is enough to trust it again.
    cadre_spin_learn(&spin, SHORT_NS);
    assert_true(spins(&spin));
    cadre_spin_learn(&spin, LONG_NS);
    assert_int_equal(count_rests(&spin), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_behind_a_short_wait),
        cmocka_unit_test(never_without_cores),
        cmocka_unit_test(less_and_less_where_it_brings_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
