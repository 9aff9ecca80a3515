// SPDX-License-Identifier: Apache-2.0

#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

// Declared here too, so that a release build of this file has a prototype.
_Noreturn void cadre_assertion_failed(
    const char *expression, const char *file, int line);

_Noreturn void cadre_assertion_failed(
    const char *expression, const char *file, int line)
{
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, expression);
    abort();
}
