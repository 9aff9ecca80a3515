// SPDX-License-Identifier: Apache-2.0
//
// A checkpoint's files on one rank: their names, checksums, and whether they are
// what the manifest says.
//
// Threads: any, for different folders.

#ifndef CADRE_PARALLEL_CHECKPOINT_FILES_H
#define CADRE_PARALLEL_CHECKPOINT_FILES_H

#include "parallel/manifest.h"

#define CADRE_MANIFEST_NAME "manifest.json"

/** In new memory, for cadre_free(); NULL without memory. */
char *cadre_checkpoint_plane_path(const char *folder, const char *plane);

/** Errors: CADRE_ERR_NOT_FOUND, CADRE_ERR_IO, CADRE_ERR_NO_MEMORY */
cadre_status cadre_checkpoint_checksum(
    const char *path, int64_t *nbytes, uint32_t *crc);

/**
 * The manifest of a checkpoint whose files are all as it says.
 *
 * Errors: those of cadre_checkpoint_inspect()
 */
cadre_status cadre_checkpoint_verify(const char *folder, cadre_manifest *out);

#endif // CADRE_PARALLEL_CHECKPOINT_FILES_H
