// SPDX-License-Identifier: Apache-2.0
//
// A file as a whole, in memory.
//
// Threads: any.

#ifndef CADRE_DATA_WHOLE_FILE_H
#define CADRE_DATA_WHOLE_FILE_H

#include "cadre/status.h"
#include <stddef.h>
#include <stdint.h>

/**
 * Reads a file of 1 to most bytes; *data is given to cadre_free().
 *
 * Errors: CADRE_ERR_NOT_FOUND    it is not there
 *         CADRE_ERR_INVALID_ARG  it is empty, or larger
 *         CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_whole_file_read(
    const char *path, size_t most, uint8_t **data, size_t *nbytes);

/**
 * Reads nbytes from an open file, whose path is for the texts of errors.
 *
 * Errors: CADRE_ERR_IO  also if it ends before
 */
cadre_status cadre_whole_file_fill(
    int fd, const char *path, uint8_t *data, size_t nbytes);

#endif // CADRE_DATA_WHOLE_FILE_H
