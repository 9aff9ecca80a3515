// SPDX-License-Identifier: Apache-2.0
//
// A file without a name: room beside memory that is gone with its descriptor,
// however the process ends.  It lies in the folder that TMPDIR names, or /tmp.
//
// Threads: any.

#ifndef CADRE_BASE_UNNAMED_FILE_H
#define CADRE_BASE_UNNAMED_FILE_H

#include "cadre/status.h"
#include <stdint.h>

/**
 * Makes one of nbytes, at least 1, all zero, for reading and writing by its
 * owner alone.  It has its room, so that writing into it later does not fill a
 * disk.  *fd is for close(), and not handed to children.
 *
 * Errors: CADRE_ERR_IO  says the folder, the bytes and the reason
 *         CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_unnamed_file_open(int64_t nbytes, int *fd);

#endif // CADRE_BASE_UNNAMED_FILE_H
