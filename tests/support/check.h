// SPDX-License-Identifier: Apache-2.0
//
// What every test program includes: cmocka, and checks that say more.
//
//     static void adds_two_numbers(void **state)
//     {
//         (void)state;
//         CHECK_OK(cadre_something(&x));
//         assert_int_equal(x, 3);
//     }
//     int main(void)
//     {
//         const struct CMUnitTest tests[] = {
//             cmocka_unit_test(adds_two_numbers),
//         };
//         return cmocka_run_group_tests(tests, NULL, NULL);
//     }

#ifndef CADRE_TESTS_SUPPORT_CHECK_H
#define CADRE_TESTS_SUPPORT_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// After the four above, as cmocka wants it.
#include <cmocka.h>

#include "cadre/status.h"

/** The call must succeed; else its sentence is shown. */
#define CHECK_OK(call)                                                      \
    do {                                                                    \
        cadre_status check_status_ = (call);                                \
        if (check_status_ != CADRE_OK) {                                    \
            fail_msg("%s: %s: %s", #call, cadre_status_name(check_status_), \
                cadre_error_text());                                        \
        }                                                                   \
    } while (0)

/** The call must return this status, and its text must contain words. */
#define CHECK_FAILS(call, wanted, words)                                     \
    do {                                                                     \
        cadre_status check_status_ = (call);                                 \
        if (check_status_ != (wanted)) {                                     \
            fail_msg("%s: %s instead of %s: %s", #call,                      \
                cadre_status_name(check_status_), cadre_status_name(wanted), \
                cadre_error_text());                                         \
        }                                                                    \
        if (strstr(cadre_error_text(), (words)) == NULL) {                   \
            fail_msg("%s: the text lacks '%s': %s", #call, (words),          \
                cadre_error_text());                                         \
        }                                                                    \
    } while (0)

#include <string.h>

#endif // CADRE_TESTS_SUPPORT_CHECK_H
