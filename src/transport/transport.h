// SPDX-License-Identifier: Apache-2.0
//
// A transport moves bytes between the ranks of one group.  It knows peers and
// frames, nothing of sums.
//
// A transfer is one frame: a header that says which call it belongs to, and a
// payload gathered from, or scattered to, runs of memory.  Between two ranks
// frames arrive in the order they were posted, and the k-th receive posted for a
// peer takes the k-th frame of that peer.  A frame whose header is not the one
// that the receiver expects is never written to memory: it is CADRE_ERR_DESYNC,
// with both calls in the text.
//
// Memory:  transfers and their runs belong to the caller, borrowed until the
//          transfer is done.  Posting allocates nothing.
// Threads: one at a time, but for wake.
// Failure: the first one is kept; from then on every call returns it.

#ifndef CADRE_TRANSPORT_TRANSPORT_H
#define CADRE_TRANSPORT_TRANSPORT_H

#include "base/clock.h"
#include "base/fail.h"
#include "cadre/types.h"
#include "transport/shared.h"
#include <stdbool.h>
#include <stdint.h>

/** What a frame belongs to: the call as every rank of the group makes it. */
typedef enum cadre_operation {
    CADRE_OP_ALLREDUCE = 1,
    CADRE_OP_REDUCE_SCATTER = 2,
    CADRE_OP_ALLGATHER = 3,
    CADRE_OP_BROADCAST = 4,
    CADRE_OP_BARRIER = 5,
    CADRE_OP_FOLD = 6,    // the engine's reduction of gradients
    CADRE_OP_GATHER = 7,  // the engine's gathering of what owners have
    CADRE_OP_CONTROL = 8, // the engine's control exchange
} cadre_operation;

typedef struct cadre_call {
    cadre_operation operation;
    cadre_dtype dtype;
    cadre_reduce_op reduce_op;
    int32_t root;      // of a broadcast; else -1
    uint64_t sequence; // the how-manieth call of the group, from 1
    uint64_t count;    // elements of the whole call, all parts together
    uint64_t detail;   // hash of what else must agree (parts, layout); or 0
} cadre_call;

enum { CADRE_CALL_TEXT_BYTES = 128 };

/** The call in words: "allreduce #12 of 100 f32 (sum)". */
void cadre_call_text(const cadre_call *call, char text[CADRE_CALL_TEXT_BYTES]);

/** A contiguous piece of memory. */
typedef struct cadre_run {
    void *data;
    size_t nbytes;
} cadre_run;

typedef struct cadre_transfer {
    // Set by the caller before posting.
    const cadre_call *call;
    cadre_run *runs; // of a send they are only read
    size_t n_runs;

    // True when all has been moved.  The rest is the transport's own.
    bool done;
    size_t nbytes;    // of all runs
    size_t moved;     // bytes so far, header included
    size_t run;       // the run that is in work ...
    size_t run_moved; // ... and how far
    struct cadre_transfer *next;
} cadre_transfer;

typedef struct cadre_transport_ops {
    const char *scheme;             // "inproc", "shm", "tcp"
    size_t header_bytes;            // that travel with each payload
    const cadre_shared_ops *shared; // NULL: ranks share no memory

    /** Posts a send.  Never blocks; may move bytes at once. */
    cadre_status (*post_send)(cadre_transport *t, int peer, cadre_transfer *x);

    /** Posts a receive.  Never blocks; may move bytes at once. */
    cadre_status (*post_receive)(
        cadre_transport *t, int peer, cadre_transfer *x);

    /**
     * Moves transfers on.  Returns as soon as any byte has moved, the transport
     * was woken, or the deadline has passed (which is no error); with a
     * deadline of 0 it never sleeps.
     *
     * Errors: CADRE_ERR_PEER_LOST  a peer whose frames are waited for, or who
     *                              is to take some, is gone; failed_peer
     *         CADRE_ERR_DESYNC     a frame of another call; failed_peer
     */
    cadre_status (*progress)(cadre_transport *t, cadre_deadline deadline);

    /** Ends a sleeping progress().  Any thread, any time. */
    void (*wake)(cadre_transport *t);

    /**
     * Forgets all transfers: when it returns, nobody reads or writes their
     * memory any more.  Waits for no peer.  Only wake and close may follow.
     */
    void (*abandon)(cadre_transport *t);

    /** Abandons and releases. */
    void (*close)(cadre_transport *t);
} cadre_transport_ops;

/** Every implementation starts with this struct, as its member `base`. */
struct cadre_transport {
    const cadre_transport_ops *ops;
    int rank;
    int world_size;
    uint64_t generation; // of the group; in every header, never used twice

    // The first failure, kept by the wrappers below.
    cadre_status failed; // CADRE_OK: none
    int failed_peer;     // set by the implementation; -1: none
    char failed_text[CADRE_FAIL_TEXT_BYTES];

    // Of all sends posted; counted by the wrappers below.
    uint64_t sent_payload_bytes;
    uint64_t sent_overhead_bytes; // headers
};

cadre_status cadre_transport_send(
    cadre_transport *t, int peer, cadre_transfer *x);
cadre_status cadre_transport_receive(
    cadre_transport *t, int peer, cadre_transfer *x);
cadre_status cadre_transport_progress(
    cadre_transport *t, cadre_deadline deadline);
void cadre_transport_wake(cadre_transport *t);
void cadre_transport_abandon(cadre_transport *t);
void cadre_transport_close(cadre_transport *t); // NULL is allowed

/**
 * Opens a transport over connected stream sockets (TCP or Unix).  Payloads to
 * peers on other hosts carry a checksum.
 *
 * sockets has world_size entries, -1 at rank; they are taken: closed by
 * cadre_transport_close(), and on an error here as well.
 *
 * Errors: CADRE_ERR_NO_MEMORY, CADRE_ERR_IO
 */
cadre_status cadre_tcp_open(int rank, int world_size, uint64_t generation,
    const int *sockets, cadre_transport **out);

/**
 * Sends a checksum behind every payload, as to peers on other hosts, also to
 * those on this one.  For tests; before anything is posted.
 */
void cadre_tcp_check_all(cadre_transport *t);

/**
 * Opens a transport over memory that the ranks share.  sockets are as above,
 * all of them Unix sockets: they carry descriptors, and tell who is gone.
 *
 * Errors: CADRE_ERR_NO_MEMORY, CADRE_ERR_IO
 */
cadre_status cadre_shm_open(int rank, int world_size, uint64_t generation,
    const int *sockets, cadre_transport **out);

/** What ranks that are threads of one process share. */
typedef struct cadre_inproc_world cadre_inproc_world;

cadre_status cadre_inproc_world_create(
    int world_size, cadre_inproc_world **out);
void cadre_inproc_world_destroy(cadre_inproc_world *world);

/**
 * Opens rank's end.  Closing it tells the others that this rank is gone: who
 * waits for it then gets CADRE_ERR_PEER_LOST.
 */
cadre_status cadre_inproc_open(
    cadre_inproc_world *world, int rank, cadre_transport **out);

#endif // CADRE_TRANSPORT_TRANSPORT_H
