// SPDX-License-Identifier: Apache-2.0
//
// --bind of the commands that start ranks.

#ifndef CADRE_CLI_BIND_H
#define CADRE_CLI_BIND_H

#include <cadre/launch.h>
#include <stdbool.h>

/** "core", or "none" as NULL is; anything else is refused, and it is said. */
bool bind_from_word(
    const char *command_name, const char *word, cadre_bind *bind);

#endif // CADRE_CLI_BIND_H
