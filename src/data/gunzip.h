// SPDX-License-Identifier: Apache-2.0
//
// A gzipped file, unpacked from its begin to its end: one member or several, and
// nothing behind them.
//
// Memory:  64 KiB, and what zlib takes.
// Threads: one at a time.

#ifndef CADRE_DATA_GUNZIP_H
#define CADRE_DATA_GUNZIP_H

#include "cadre/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cadre_gunzip cadre_gunzip;

/** Whether a file begins as gzipped ones do. */
bool cadre_gunzip_is_wanted(int fd);

/**
 * Begins at the begin of an open file; its path is for the texts of errors, and
 * both are borrowed.
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_gunzip_create(int fd, const char *path, cadre_gunzip **out);
void cadre_gunzip_destroy(cadre_gunzip *g); // NULL is allowed

/**
 * Unpacks nbytes, and *got of them, fewer, only where the file ends.
 *
 * Errors: CADRE_ERR_CORRUPT  it is cut or damaged, or goes on behind its data
 *         CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_gunzip_read(
    cadre_gunzip *g, uint8_t *at, size_t nbytes, size_t *got);

#endif // CADRE_DATA_GUNZIP_H
