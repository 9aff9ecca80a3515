// SPDX-License-Identifier: Apache-2.0
//
// Cores for ranks: of those that this process may use, each rank gets the next
// few, from the first on again when there are no more.
//
// Memory:  none.
// Threads: any.

#ifndef CADRE_LAUNCH_BIND_H
#define CADRE_LAUNCH_BIND_H

#include <stdbool.h>

/**
 * Leaves the calling thread the n_cores cores of a rank, and no others: those
 * numbered from local_rank * n_cores on.  Safe between fork() and exec().
 *
 * Returns false, and errno says why, if the system refuses.
 */
bool cadre_bind_to_cores(int local_rank, int n_cores);

#endif // CADRE_LAUNCH_BIND_H
