// SPDX-License-Identifier: Apache-2.0
//
// Files in the idx format of the MNIST family, gzipped or not: bytes with a
// shape.
//
//     0x00 0x00, the type (0x08: a byte), the number of dimensions; then each
//     extent in 32 bits, big-endian; then the elements, the last index fastest
//
// What the header says is checked against what the caller expects before it is
// believed.
//
// Threads: one thread at a time for each file.

#ifndef CADRE_DATA_IDX_FILE_H
#define CADRE_DATA_IDX_FILE_H

#include "base/fail.h"
#include "cadre/status.h"
#include <stdint.h>
#include <zlib.h>

enum { CADRE_IDX_MAX_DIMS = 3 };

typedef struct cadre_idx_file {
    gzFile stream;
    char *path; // as it was found
    int64_t extents[CADRE_IDX_MAX_DIMS];
} cadre_idx_file;

/**
 * Opens folder/name, or folder/name.gz, and reads its header; it must have
 * n_dims dimensions.
 *
 * Errors: CADRE_ERR_NOT_FOUND  neither is there; names both
 *         CADRE_ERR_CORRUPT    it is no such file
 *         CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_idx_open(
    const char *folder, const char *name, int n_dims, cadre_idx_file *file);

/**
 * Reads the elements, nbytes of them, behind which the file must end.
 *
 * Errors: CADRE_ERR_CORRUPT  it is cut, damaged, or goes on
 *         CADRE_ERR_IO
 */
cadre_status cadre_idx_read(
    cadre_idx_file *file, uint8_t *elements, int64_t nbytes);

/** CADRE_ERR_CORRUPT, with the file's path and what is wrong with it. */
cadre_status cadre_idx_corrupt(
    const cadre_idx_file *file, const char *format, ...) CADRE_PRINTF(2, 3);

void cadre_idx_close(cadre_idx_file *file); // allowed after a failed open

#endif // CADRE_DATA_IDX_FILE_H
