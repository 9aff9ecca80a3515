// SPDX-License-Identifier: Apache-2.0
//
// A stream of bytes from one rank to one other through a ring in shared memory.
//
// Invariant: written - read bytes are in the ring, at most its capacity.  Each
//            side keeps its own count to itself; what it reads of the other's
//            is checked, and a count that cannot be is told as "false".
// Threads:   one writer, one reader.

#ifndef CADRE_TRANSPORT_SHM_RING_H
#define CADRE_TRANSPORT_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

// Two lines: processors fetch their neighbour as well.
enum { CADRE_RING_LINE_BYTES = 128 };

/** All zero at first. */
typedef struct cadre_ring_words {
    // Of the writer.
    _Alignas(CADRE_RING_LINE_BYTES) _Atomic uint64_t written;
    _Atomic uint64_t told; // notes that it sent on the socket
    atomic_uint stuck;     // it waits for room
    atomic_uint left;      // it writes no more, and takes its memory back
    // Of the reader.
    _Alignas(CADRE_RING_LINE_BYTES) _Atomic uint64_t read;
    _Atomic uint64_t taken; // frames that were named, given back
} cadre_ring_words;

typedef struct cadre_ring_writer {
    cadre_ring_words *words;
    uint8_t *bytes;
    size_t capacity; // a power of two
    uint64_t written;
} cadre_ring_writer;

typedef struct cadre_ring_reader {
    cadre_ring_words *words;
    const uint8_t *bytes;
    size_t capacity;
    uint64_t read;
} cadre_ring_reader;

/**
 * How much can be written, at least `wanted` unless the ring is full: then the
 * reader rings once it has made room.
 */
bool cadre_ring_room(cadre_ring_writer *w, size_t wanted, size_t *nbytes);

/** Writes the first nbytes of the vectors, for which there is room. */
void cadre_ring_write(
    cadre_ring_writer *w, const struct iovec *vectors, size_t nbytes);

/** How much can be read. */
bool cadre_ring_filled(const cadre_ring_reader *r, size_t *nbytes);

/** Copies the next nbytes, which are there, and leaves them. */
void cadre_ring_peek(const cadre_ring_reader *r, void *out, size_t nbytes);

/**
 * Reads the next nbytes, which are there, into the vectors.  True if the writer
 * waits for room.
 */
bool cadre_ring_read(
    cadre_ring_reader *r, const struct iovec *vectors, size_t nbytes);

/** As above, for what was peeked at. */
bool cadre_ring_skip(cadre_ring_reader *r, size_t nbytes);

#endif // CADRE_TRANSPORT_SHM_RING_H
