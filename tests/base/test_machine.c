// SPDX-License-Identifier: Apache-2.0

#define _GNU_SOURCE // unshare

#include "support/check.h"

#include "base/machine.h"
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void names_the_running_kernel(void **state)
{
    (void)state;
    char boot_id[37];
    char text[CADRE_MACHINE_BYTES];
    char again[CADRE_MACHINE_BYTES];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    assert_non_null(file);
    assert_non_null(fgets(boot_id, sizeof(boot_id), file));
    (void)fclose(file);
    cadre_machine_text(text);
    assert_memory_equal(text, boot_id, 36);
    assert_true(strlen(text) > 36 && strlen(text) < sizeof(text));
    cadre_machine_text(again);
    assert_string_equal(text, again);
}

// Where Unix sockets or users are others, it is another place.
static void differs_between_namespaces(void **state)
{
    (void)state;
    enum { SAME, OTHER, NOT_ALLOWED };
    static const int kinds[] = {CLONE_NEWUSER, CLONE_NEWUSER | CLONE_NEWNET};
    char text[CADRE_MACHINE_BYTES];
    cadre_machine_text(text);
    for (int i = 0; i < 2; i++) {
        int status;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            char there[CADRE_MACHINE_BYTES];
            if (unshare(kinds[i]) != 0) {
                _exit(NOT_ALLOWED);
            }
            cadre_machine_text(there);
            _exit(strcmp(text, there) == 0 || there[0] == '\0' ? SAME : OTHER);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == NOT_ALLOWED) {
            print_message("this machine makes no namespaces\n");
            skip();
        }
        assert_int_equal(WEXITSTATUS(status), OTHER);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_the_running_kernel),
        cmocka_unit_test(differs_between_namespaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
