// SPDX-License-Identifier: Apache-2.0
//
// The environment of a rank: the launcher's, with the names that programs read
// to learn which rank they are (docs/cli.md).

#ifndef CADRE_LAUNCH_ENVIRONMENT_H
#define CADRE_LAUNCH_ENVIRONMENT_H

#include "cadre/status.h"

typedef struct cadre_rank_variables {
    int rank;
    int world_size;
    int threads;
    int port;   // reserved for programs that use RANK and MASTER_ADDR only
    int store;  // the descriptor of the connection to the hub
    int secret; // that of the job's secret
} cadre_rank_variables;

/**
 * Makes the environment, ended by NULL, for execve(); *out is given to
 * cadre_environment_free().
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_environment_make(
    const cadre_rank_variables *variables, char ***out);
void cadre_environment_free(char **environment); // NULL is allowed

#endif // CADRE_LAUNCH_ENVIRONMENT_H
