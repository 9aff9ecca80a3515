// SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C and SIGTERM: the first one asks for a stop soon, the second
// one has the system's effect.

#ifndef CADRE_CLI_STOP_H
#define CADRE_CLI_STOP_H

/**
 * Catches both from now on.  The first one is answered with the text on
 * standard error; NULL: by another rank.
 */
void stop_install(const char *text);

/** A cadre_train_hooks.stop_signal: the signal that came, or 0. */
int stop_signal(void *ctx);

#endif // CADRE_CLI_STOP_H
