// SPDX-License-Identifier: Apache-2.0
//
// Signals as bytes in a pipe, so that they can be waited for with all else.
//
// Threads: one launch at a time in a process, since handlers are the process's.

#ifndef CADRE_LAUNCH_SIGNALS_H
#define CADRE_LAUNCH_SIGNALS_H

#include "cadre/status.h"
#include <signal.h>

/**
 * Catches SIGCHLD, SIGINT and SIGTERM and ignores SIGPIPE.
 *
 * Errors: CADRE_ERR_STATE  a launch is running already
 *         CADRE_ERR_IO
 */
cadre_status cadre_signals_catch(void);

/** Readable when one has come. */
int cadre_signals_fd(void);

/** The next that has come, or 0. */
int cadre_signals_next(void);

/**
 * In a new process, before it runs its program: as it was before, with the
 * signals of mask blocked, but that SIGINT and SIGTERM, which the launcher
 * passes on, are neither ignored nor blocked.
 */
void cadre_signals_restore_in_child(const sigset_t *mask);

/** As it was before. */
void cadre_signals_release(void);

#endif // CADRE_LAUNCH_SIGNALS_H
