// SPDX-License-Identifier: Apache-2.0
//
// Memory that all ranks of a group reach: what a transport offers beside
// moving bytes, where ranks share a host ("shm") or a process ("inproc").
//
// An arena is memory of one rank that the others may read and write in place.
// Its owner names a place in it (cadre_shared_name, plain numbers that travel);
// a peer turns the name into an address of its own.  A board is a small piece
// of such memory that every rank has from the start: there ranks tell each
// other, by atomic words of their own design, what they called, which places
// it is about and how far they are.
//
//     write the own board (release)           ->  ring
//     progress() returns  ->  read the boards (acquire)  ->  work  ->  ring
//
// No call is lost in between: progress() returns at once if anybody rang since
// it last returned.
//
// Memory:  what peers wrote is not trusted: names are checked here; what a board
//          holds is checked by who reads it.  Arenas that have not been freed
//          go with the transport.
// Threads: that of the transport.

#ifndef CADRE_TRANSPORT_SHARED_H
#define CADRE_TRANSPORT_SHARED_H

#include "cadre/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cadre_transport cadre_transport;

/** A place in an arena of the rank that says so; all zero names nothing. */
typedef struct cadre_shared_name {
    uint64_t arena; // from 1; of its rank, never used twice
    uint64_t offset;
} cadre_shared_name;

enum { CADRE_BOARD_BYTES = 4096 };

typedef struct cadre_shared_ops {
    /**
     * Allocates zeroed memory that peers reach, aligned to 64 bytes at least.
     * Not collective.
     *
     * Errors: CADRE_ERR_NO_MEMORY
     *         CADRE_ERR_IO  no descriptor is left to share it by
     */
    cadre_status (*alloc)(cadre_transport *t, size_t nbytes, void **out);

    /** Nothing that is posted may use it any more.  Also after abandon. */
    void (*free)(cadre_transport *t, void *memory);

    /**
     * Names memory.  False if it does not lie in one arena of this rank, or if
     * not all peers could be told of that so far.
     */
    bool (*name)(cadre_transport *t, const void *memory, size_t nbytes,
        cadre_shared_name *out);

    /**
     * Where nbytes at a place of peer lie in this rank's memory.  Allocates
     * when it first meets an arena.
     *
     * Errors: CADRE_ERR_CORRUPT    peer has no such place
     *         CADRE_ERR_PEER_LOST, CADRE_ERR_NO_MEMORY
     */
    cadre_status (*reach)(cadre_transport *t, int peer, cadre_shared_name name,
        size_t nbytes, void **out);

    /**
     * The board of a rank, aligned to a page; all zero at first.  That of a peer
     * may read so until progress() has met the peer, and returns.
     */
    void *(*board)(cadre_transport *t, int rank);

    /**
     * Whether a rank is known to be gone: nothing of its memory changes any
     * more.  progress() returns when that becomes known.
     */
    bool (*is_gone)(cadre_transport *t, int rank);

    /** Has the progress() of all other ranks return; soon, if not met yet. */
    void (*ring)(cadre_transport *t);
} cadre_shared_ops;

#endif // CADRE_TRANSPORT_SHARED_H
