// SPDX-License-Identifier: Apache-2.0
//
// Memory that one process makes and others map: a file without a name, passed as
// a descriptor.  It has all of its pages before anybody gets it, and a seal on
// its size, so nobody can take a page away under a reader.
//
// Threads: any.

#ifndef CADRE_TRANSPORT_SHM_SEGMENT_H
#define CADRE_TRANSPORT_SHM_SEGMENT_H

#include "cadre/status.h"
#include <stddef.h>

/** Whole pages that hold nbytes, at least one; 0 if there are no such many. */
size_t cadre_segment_bytes(size_t nbytes);

/**
 * Makes a segment of nbytes, whole pages, all zero, and maps it.  *fd is the
 * caller's to pass on and to close; the mapping does not need it.
 *
 * Errors: CADRE_ERR_NO_MEMORY  the text says what is lacking
 *         CADRE_ERR_IO         the system has no such files, or no descriptor
 */
cadre_status cadre_segment_create(size_t nbytes, int *fd, void **memory);

/**
 * Maps the segment that another process made, of nbytes as it says, at a place
 * that was reserved or, if *memory is NULL, anywhere.  fd is closed.
 *
 * Errors: CADRE_ERR_CORRUPT    it is no such segment: another kind of file, not
 *                              sealed, of another size, or with pages missing
 *         CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_segment_map(int fd, size_t nbytes, void **memory);

/**
 * Reserves a place for a segment to come.  Until then it reads as zeros.
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_segment_reserve(size_t nbytes, void **memory);

/** Gives a mapping or a reserved place back.  NULL is allowed. */
void cadre_segment_unmap(void *memory, size_t nbytes);

#endif // CADRE_TRANSPORT_SHM_SEGMENT_H
