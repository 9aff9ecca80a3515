// SPDX-License-Identifier: Apache-2.0
//
// Folders of files, written aside and renamed: a name holds a complete folder or
// none, whenever the machine stops.
//
// Threads: any, for different paths.

#ifndef CADRE_BASE_FOLDER_H
#define CADRE_BASE_FOLDER_H

#include "cadre/status.h"
#include <stdbool.h>

/** What a folder that is not complete has at the end of its name. */
#define CADRE_ASIDE ".part"

typedef struct cadre_new_folder {
    char *path;
    char *aside; // write files into this one
} cadre_new_folder;

/**
 * Makes an empty folder beside path, and the folders above it.
 *
 * Errors: CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_new_folder_open(const char *path, cadre_new_folder *folder);

/**
 * Flushes the names to the disk and renames.  A folder that has the path is
 * replaced.  On an error path is what it was, or, if only the last flush failed,
 * may be after a crash.
 *
 * Errors: CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_new_folder_commit(cadre_new_folder *folder);

/** Gives it up; nothing is left.  Allowed after commit: then does nothing. */
void cadre_new_folder_discard(cadre_new_folder *folder);

/**
 * Removes a folder and the files in it; one that is not there is fine.  First
 * its name goes, so that nobody finds half of it.
 *
 * Errors: CADRE_ERR_IO  also if there are folders in it
 */
cadre_status cadre_folder_remove(const char *path);

/** Calls visit with each name in a folder, but for "." and "..". */
cadre_status cadre_folder_list(
    const char *path, void (*visit)(const char *name, void *ctx), void *ctx);

#endif // CADRE_BASE_FOLDER_H
