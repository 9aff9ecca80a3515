// SPDX-License-Identifier: Apache-2.0
//
// One direction of a connection: how far the frame at its head has come, through
// header, payload and checksum, whatever pieces the system moves it in.
//
// Threads: one at a time.

#ifndef CADRE_TRANSPORT_LANE_H
#define CADRE_TRANSPORT_LANE_H

#include "transport/frame.h"
#include "transport/queue.h"
#include <sys/uio.h>

// Runs that one system call moves; far below what any system allows.
enum { CADRE_LANE_VECTORS = 64 };

typedef struct cadre_lane {
    cadre_transfer_queue queue;
    // Of its head.
    uint8_t header[CADRE_FRAME_BYTES];
    uint8_t check[CADRE_FRAME_CHECK_BYTES];
    size_t check_bytes; // of those that are to be moved: all or none
    uint32_t crc;       // of the payload so far, if it has a checksum
} cadre_lane;

/** Header and payload have been moved. */
bool cadre_lane_has_payload(const cadre_transfer *x);

/** All has been moved. */
bool cadre_lane_is_done(const cadre_transfer *x, const cadre_lane *l);

/**
 * Lays the rest of a transfer out for one system call: header first.  The
 * checksum has one of its own, since it is known only then.  Returns the number
 * of vectors.
 */
int cadre_lane_lay_out(const cadre_transfer *x, cadre_lane *l,
    struct iovec vectors[CADRE_LANE_VECTORS]);

size_t cadre_lane_total(const struct iovec *vectors, int n);

/** Counts nbytes as moved; they may end anywhere in the frame. */
void cadre_lane_account(cadre_transfer *x, cadre_lane *l, size_t nbytes);

#endif // CADRE_TRANSPORT_LANE_H
