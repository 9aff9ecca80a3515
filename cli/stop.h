// SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C and SIGTERM: the first one asks for a stop after the step, the second
// one has the system's effect.

#ifndef CADRE_CLI_STOP_H
#define CADRE_CLI_STOP_H

#include <stdbool.h>

/** Catches both from now on.  loud: the first one is answered on the screen. */
void stop_install(bool loud);

/** A cadre_train_hooks.stop_signal: the signal that came, or 0. */
int stop_signal(void *ctx);

#endif // CADRE_CLI_STOP_H
