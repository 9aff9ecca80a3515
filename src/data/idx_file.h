// SPDX-License-Identifier: Apache-2.0
//
// Files in the idx format of the MNIST family, gzipped or not: bytes with a
// shape.
//
//     0x00 0x00, the type (0x08: a byte), the number of dimensions; then each
//     extent in 32 bits, big-endian; then the elements, the last index fastest
//
// What the header says is checked against what the caller expects before it is
// believed.  The elements are read once, as a whole or in pieces, or kept and
// read by place: then they lie in the file itself or, if that is gzipped, in one
// without a name beside it (base/unnamed_file.h), so that the system holds in
// memory what it has room for.
//
// Memory:  none for elements that are kept.
// Threads: one thread at a time for each file; kept elements are read by any.

#ifndef CADRE_DATA_IDX_FILE_H
#define CADRE_DATA_IDX_FILE_H

#include "base/fail.h"
#include "cadre/status.h"
#include "data/gunzip.h"
#include <stdint.h>

enum { CADRE_IDX_MAX_DIMS = 3 };

typedef struct cadre_idx_file {
    cadre_gunzip *gunzip; // NULL: the elements lie in it as they are
    char *path;           // as it was found; NULL: it is not open
    int fd;               // of the file, or of the elements unpacked
    int64_t first;        // where the elements begin in it
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

/** What happens to a piece of the elements, which are handed out in a line. */
typedef cadre_status cadre_idx_taker(
    void *ctx, const uint8_t *piece, int64_t nbytes);

/**
 * Hands out the elements, nbytes of them, at least 1, behind which the file must
 * end; *hash becomes theirs.  take may be NULL.
 *
 * Errors: those of cadre_idx_read() and of take, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_idx_each(cadre_idx_file *file, int64_t nbytes,
    cadre_idx_taker *take, void *ctx, uint64_t *hash);

/**
 * Goes once through the elements, nbytes of them, at least 1, behind which the
 * file must end, and keeps them for cadre_idx_read_at(); *hash becomes theirs.
 *
 * Errors: those of cadre_idx_read(), and CADRE_ERR_NO_MEMORY; CADRE_ERR_IO also
 *         if there is no room to unpack them
 */
cadre_status cadre_idx_keep(
    cadre_idx_file *file, int64_t nbytes, uint64_t *hash);

/**
 * Reads kept elements, nbytes from the one at a place on.
 *
 * Errors: CADRE_ERR_CORRUPT  the file has become shorter
 *         CADRE_ERR_IO
 */
cadre_status cadre_idx_read_at(
    const cadre_idx_file *file, int64_t at, uint8_t *elements, size_t nbytes);

/** CADRE_ERR_CORRUPT, with the file's path and what is wrong with it. */
cadre_status cadre_idx_corrupt(
    const cadre_idx_file *file, const char *format, ...) CADRE_PRINTF(2, 3);

void cadre_idx_close(cadre_idx_file *file); // one of zeros is allowed

#endif // CADRE_DATA_IDX_FILE_H
