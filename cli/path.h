// SPDX-License-Identifier: Apache-2.0
//
// Paths that users name.

#ifndef CADRE_CLI_PATH_H
#define CADRE_CLI_PATH_H

#include <cadre/train.h>
#include <stdio.h>

/**
 * Makes a path one that holds from any folder: absolute, and with its links
 * followed if it is there.  False if that is too long.
 */
bool path_settle(char path[CADRE_PATH_BYTES]);

enum { PATH_REASON_BYTES = 128 };

/**
 * Opens a regular file for reading; a pipe or device is not waited for.  NULL
 * when it cannot: then reason says why, and errno is 0 unless the system said
 * it.
 */
FILE *path_open_regular(const char *path, char reason[PATH_REASON_BYTES]);

/** Whether a text is UTF-8 (RFC 3629), as the files of a run must be. */
bool path_is_utf8(const char *text);

#endif // CADRE_CLI_PATH_H
