// SPDX-License-Identifier: Apache-2.0
//
// What a program writes to its standard output.
//
// Threads: any.

#ifndef CADRE_DATA_PROGRAM_H
#define CADRE_DATA_PROGRAM_H

#include "cadre/status.h"
#include <stddef.h>
#include <stdint.h>

/**
 * Runs a program, argv[0] being its whole path, with no input and an
 * environment of its own, and waits for its end.  *data is given to
 * cadre_free().
 *
 * Errors: CADRE_ERR_NOT_FOUND  there is no such program
 *         CADRE_ERR_TIMEOUT    it has not ended in time; it is killed
 *         CADRE_ERR_CORRUPT    it failed, or wrote more than most bytes
 *         CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_program_output(const char *const argv[], size_t most,
    int timeout_ms, uint8_t **data, size_t *nbytes);

#endif // CADRE_DATA_PROGRAM_H
