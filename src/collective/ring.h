// SPDX-License-Identifier: Apache-2.0
//
// A collective on its way round the ring of its ranks: the reduce-scatter,
// all-gather and all-reduce of Patarasuk and Yuan ("Bandwidth optimal all-reduce
// algorithms for clusters of workstations", 2009), in which every rank sends to
// the next one and receives from the one before, and to nobody else.
//
// n ranks, S bytes in all: a reduce-scatter or an all-gather is n - 1 steps and
// (n - 1)/n S bytes per rank, which is the least possible; an all-reduce is one
// after the other.  Elements of 16 bits travel as f32 while they are summed, so
// their reduce-scatter is twice as many bytes.
//
// Parts are cut into chunks and these into rounds of a few chunks per part,
// which go round one behind another: a chunk is summed while the next one is
// received, and memory does not grow with the vector.
//
// Invariant: the k-th frame that a rank sends is the k-th that the next one
//            receives, in a fixed order that all ranks know.
// Memory:  everything is the caller's and borrowed until it is done.
// Threads: that of the transport.

#ifndef CADRE_COLLECTIVE_RING_H
#define CADRE_COLLECTIVE_RING_H

#include "transport/transport.h"

// Measured: docs/collectives.md.
enum { CADRE_RING_CHUNK_BYTES = 128 * 1024 };

typedef struct cadre_ring {
    // Set by the caller.
    const cadre_call *call;
    int rank;
    int world_size; // at least 2
    const void *send;
    void *recv;
    const size_t *offsets; // of the parts; world_size + 1
    size_t chunk_bytes;    // CADRE_RING_CHUNK_BYTES; a multiple of 8

    // Its own: what is to be done.
    size_t chunk;  // elements
    size_t window; // chunks of a part in one round
    int first_step;
    int end_step;
    bool staged; // own elements are copied before they are sent
    uint64_t n_frames;

    // How far it has come, in frames.
    uint64_t n_posted;    // receives
    uint64_t n_taken;     // of them, that have come and been summed
    uint64_t n_sent;      // sends that were posted
    uint64_t n_delivered; // of them, that are done, one after another

    // Of the last few frames, by number; see memory below.
    cadre_transfer *receives;
    cadre_transfer *sends;
    cadre_run *receive_runs;
    cadre_run *send_runs;
    char *slots;  // partial sums: received, and sent on
    char *stages; // own elements on their way
    char *block;  // a block of own elements as they are
    char *wide;   // and in the type they are summed in
} cadre_ring;

/** Whether there is a ring for this operation. */
bool cadre_ring_is_defined(cadre_operation operation);

/** Bytes of memory that cadre_ring_begin() wants. */
size_t cadre_ring_memory_bytes(const cadre_ring *ring);

/**
 * Posts the first frames.  send and recv are what the collectives of
 * <cadre/group.h> take; memory is aligned as cadre_alloc() does.
 */
cadre_status cadre_ring_begin(
    cadre_ring *ring, cadre_transport *t, void *memory);

/** Sums what has come, and posts what may go. */
cadre_status cadre_ring_advance(
    cadre_ring *ring, cadre_transport *t, bool *done);

/** True if a frame of this peer, or its taking one, is waited for. */
bool cadre_ring_waits_for(const cadre_ring *ring, int peer);

#endif // CADRE_COLLECTIVE_RING_H
