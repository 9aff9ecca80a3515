// SPDX-License-Identifier: Apache-2.0
//
// Which host this process runs on and as whom, as the kernel identifies it.
//
// Threads: any.

#ifndef CADRE_BASE_MACHINE_H
#define CADRE_BASE_MACHINE_H

enum { CADRE_MACHINE_BYTES = 80 };

/**
 * Names the running kernel (its boot id) and what of it this process sees: the
 * network namespace, where abstract Unix sockets have their names, the user
 * namespace, where users have their numbers, and the user's number.  Processes
 * with the same text can reach each other and are one user's.  "" if it is not
 * known.
 */
void cadre_machine_text(char text[CADRE_MACHINE_BYTES]);

#endif // CADRE_BASE_MACHINE_H
