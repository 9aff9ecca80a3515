// SPDX-License-Identifier: Apache-2.0
//
// Memory that can still be had: a system that promises more than it has ends
// processes when they come to use it.

#ifndef CADRE_CLI_FREE_MEMORY_H
#define CADRE_CLI_FREE_MEMORY_H

#include <stdint.h>

/**
 * Bytes that are free on this host, and within the limit of this process's
 * control group where it is seen; UINT64_MAX if the system does not tell.
 */
uint64_t free_memory(void);

#endif // CADRE_CLI_FREE_MEMORY_H
