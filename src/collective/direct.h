// SPDX-License-Identifier: Apache-2.0
//
// A collective on its way, by direct exchange (collective/schedule.h): a cursor
// that remembers the phase, since progress is made from wherever the caller
// happens to be.
//
//     cadre_direct_begin(&d, transport, memory);
//     for (bool done = false; !done;) {
//         cadre_transport_progress(transport, deadline);
//         cadre_direct_advance(&d, transport, &done);
//     }
//
// Memory:  everything is the caller's and borrowed until it is done.
// Threads: that of the transport.

#ifndef CADRE_COLLECTIVE_DIRECT_H
#define CADRE_COLLECTIVE_DIRECT_H

#include "collective/parts.h"
#include "transport/transfer_set.h"

typedef struct cadre_direct {
    // Set by the caller.
    cadre_call call;
    int rank;
    int world_size;
    const void *send;             // see cadre_direct_begin()
    void *recv;                   // for a barrier, both NULL
    size_t *offsets;              // of the parts; world_size + 1
    cadre_transfer_set transfers; // room for 2 (world_size - 1)
    cadre_run *runs;              // as many

    // Its own.
    int phase;
    cadre_parts parts;
} cadre_direct;

/** Bytes of memory that cadre_direct_begin() wants; 0: none. */
size_t cadre_direct_memory_bytes(const cadre_direct *d);

/**
 * Starts the first phase.
 *
 * send and recv are what the collectives of <cadre/group.h> take; a broadcast
 * has its buffer in both.
 */
cadre_status cadre_direct_begin(
    cadre_direct *d, cadre_transport *t, void *memory);

/** Reduces and goes on to the next phase where the present one has ended. */
cadre_status cadre_direct_advance(
    cadre_direct *d, cadre_transport *t, bool *done);

/** The same collective for a group of one: no phases, no transport. */
void cadre_direct_alone(const cadre_direct *d);

#endif // CADRE_COLLECTIVE_DIRECT_H
