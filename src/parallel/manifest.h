// SPDX-License-Identifier: Apache-2.0
//
// manifest.json: what a checkpoint holds, with a checksum for each file and one
// for itself.  Nothing in it is trusted before that has been compared.
//
// Threads: any, for different files.

#ifndef CADRE_PARALLEL_MANIFEST_H
#define CADRE_PARALLEL_MANIFEST_H

#include "optim/optim.h"
#include "parallel/settings.h"
#include <stdint.h>

enum { CADRE_MANIFEST_FILES = 1 + CADRE_MAX_SLOTS, CADRE_PLANE_NAME = 32 };

/** A plane's file, which has its name and ".safetensors". */
typedef struct cadre_manifest_file {
    char plane[CADRE_PLANE_NAME];
    int64_t nbytes;
    uint32_t crc32c;
} cadre_manifest_file;

typedef struct cadre_manifest {
    int64_t step;
    int64_t updates;
    int skipped_in_row;
    cadre_powers powers;
    int leaves;
    int fold;
    int world_size;
    uint64_t layout_hash;
    uint64_t params_hash;
    double settings[CADRE_UPDATE_SETTINGS]; // as cadre_update_settings() has it
    int n_files;
    cadre_manifest_file files[CADRE_MANIFEST_FILES];
    char *note; // or NULL
} cadre_manifest;

void cadre_manifest_release(cadre_manifest *manifest);

/** Writes it aside and renames.  Errors: CADRE_ERR_IO, CADRE_ERR_NO_MEMORY */
cadre_status cadre_manifest_write(
    const cadre_manifest *manifest, const char *path);

/**
 * *out is set on success only; give it to cadre_manifest_release().
 *
 * Errors: CADRE_ERR_NOT_FOUND, CADRE_ERR_CORRUPT, CADRE_ERR_IO,
 *         CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_manifest_read(const char *path, cadre_manifest *out);

#endif // CADRE_PARALLEL_MANIFEST_H
