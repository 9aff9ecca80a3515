// SPDX-License-Identifier: Apache-2.0

#include "bind.h"

#include <stdio.h>
#include <string.h>

bool bind_from_word(
    const char *command_name, const char *word, cadre_bind *bind)
{
    if (word == NULL || strcmp(word, "none") == 0) {
        *bind = CADRE_BIND_NONE;
        return true;
    }
    if (strcmp(word, "core") == 0) {
        *bind = CADRE_BIND_CORE;
        return true;
    }
    fprintf(stderr, "cadre %s: --bind wants 'core' or 'none', not '%s'\n",
        command_name, word);
    return false;
}
