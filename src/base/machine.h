// SPDX-License-Identifier: Apache-2.0
//
// Which host this process runs on, as the kernel identifies it.
//
// Threads: any.

#ifndef CADRE_BASE_MACHINE_H
#define CADRE_BASE_MACHINE_H

enum { CADRE_MACHINE_BYTES = 64 };

/**
 * Names the running kernel (its boot id) and what of it this process sees: the
 * network namespace, where abstract Unix sockets have their names, and the user
 * namespace, where users have their numbers.  Two processes with the same text
 * can reach each other and know each other's user.  "" if it is not known.
 */
void cadre_machine_text(char text[CADRE_MACHINE_BYTES]);

#endif // CADRE_BASE_MACHINE_H
