// SPDX-License-Identifier: Apache-2.0
//
// One rank's process: begins, and leads a process group of its own, so that
// whatever it starts can be ended with it.

#ifndef CADRE_LAUNCH_SPAWN_H
#define CADRE_LAUNCH_SPAWN_H

#include "cadre/status.h"
#include <sys/types.h>

typedef struct cadre_spawn_options {
    const char *const *argv; // looked up in PATH
    char **environment;
    int output; // becomes standard output; -1: stays as it is
    int error;  // likewise
    int store;  // stays open
    int secret; // likewise
    int local_rank;
    int n_cores; // that it is bound to, by its local rank; 0: it is not
} cadre_spawn_options;

/**
 * Starts a process that ends with the calling thread, however that ends.
 * Signals must be caught (cadre_signals_catch()).
 *
 * Errors: CADRE_ERR_NOT_FOUND  the program cannot be run; *exec_status is 127,
 *                              or 126 if it is there
 *         CADRE_ERR_IO         the process cannot be made
 */
cadre_status cadre_spawn(
    const cadre_spawn_options *options, pid_t *pid, int *exec_status);

#endif // CADRE_LAUNCH_SPAWN_H
