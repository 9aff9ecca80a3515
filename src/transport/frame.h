// SPDX-License-Identifier: Apache-2.0
//
// The header of a frame, and how two ranks find out that they called different
// things.  docs/wire-protocol.md has the header byte by byte.
//
// Threads: any.

#ifndef CADRE_TRANSPORT_FRAME_H
#define CADRE_TRANSPORT_FRAME_H

#include "transport/transport.h"

enum { CADRE_FRAME_BYTES = 64, CADRE_FRAME_CHECK_BYTES = 4 };

typedef struct cadre_frame {
    uint64_t generation;
    cadre_call call;
    uint64_t nbytes; // of the payload behind this header
    int sender;
    bool checked; // the payload's CRC-32C follows it, in 4 bytes
    bool named;   // names follow instead of the payload: shared memory only
} cadre_frame;

void cadre_frame_encode(
    const cadre_frame *frame, uint8_t header[CADRE_FRAME_BYTES]);

/**
 * Errors: CADRE_ERR_CORRUPT  the bytes are no header of this version
 */
cadre_status cadre_frame_decode(
    const uint8_t header[CADRE_FRAME_BYTES], cadre_frame *out);

/**
 * Compares a frame with the one its receiver expects: the call, and the bytes
 * of its payload.  The text is the same whichever of the two ranks compares.
 *
 * Errors: CADRE_ERR_DESYNC  names both ranks and both calls
 */
cadre_status cadre_frame_compare(const cadre_frame *theirs, int rank,
    const cadre_call *expected, size_t expected_bytes);

#endif // CADRE_TRANSPORT_FRAME_H
