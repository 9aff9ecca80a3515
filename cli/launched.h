// SPDX-License-Identifier: Apache-2.0
//
// What a launcher has told this process, and the cores that it may use.

#ifndef CADRE_CLI_LAUNCHED_H
#define CADRE_CLI_LAUNCHED_H

#include <stdbool.h>

/** This process's rank as the launcher wrote it; NULL without a launcher. */
const char *launched_rank(void);
bool is_launched(void);

/** Ranks on this host, as the launcher wrote it; 0 if it has not. */
int launched_local_ranks(void);

/**
 * Compute threads of a launched rank: OMP_NUM_THREADS, else this host's cores
 * divided among its ranks, at least 1.
 */
int launched_threads(void);

/** Cores that this process may run on, at least 1. */
int core_count(void);

#endif // CADRE_CLI_LAUNCHED_H
