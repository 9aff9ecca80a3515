// SPDX-License-Identifier: Apache-2.0
//
// Files: written aside and renamed, so that a name holds the old or the new
// content and never half of it; and read only where reading cannot wait.
//
// Threads: any, for different paths.

#ifndef CADRE_BASE_FILE_H
#define CADRE_BASE_FILE_H

#include "cadre/status.h"
#include <stdio.h>

typedef struct cadre_new_file {
    FILE *stream; // write here
    char *path;
    char *aside; // the name until it is complete
} cadre_new_file;

/**
 * Opens a file beside path that will become path.
 *
 * Errors: CADRE_ERR_IO  names the path and the reason
 */
cadre_status cadre_new_file_open(const char *path, cadre_new_file *file);

/** Flushes to the disk and renames.  On an error path is what it was. */
cadre_status cadre_new_file_commit(cadre_new_file *file);

/** Gives it up; nothing is left.  Allowed after commit: then does nothing. */
void cadre_new_file_discard(cadre_new_file *file);

/**
 * Opens a regular file for reading; a pipe or device is not waited for.  The
 * descriptor is given to close(), and not handed to children.
 *
 * Errors: CADRE_ERR_NOT_FOUND  it is not there
 *         CADRE_ERR_IO         it cannot be read, or is something else
 */
cadre_status cadre_regular_file_open(const char *path, int *fd);

/** Makes a folder and those above it; one that is there already is fine. */
cadre_status cadre_make_folders(const char *path);

/** "folder/name" in new memory, for cadre_free(); NULL without memory. */
char *cadre_path_join(const char *folder, const char *name);

#endif // CADRE_BASE_FILE_H
