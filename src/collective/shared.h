// SPDX-License-Identifier: Apache-2.0
//
// Collectives in place, in memory that all ranks of a group share
// (transport/shared.h): whoever owns a part reads it in every rank's memory,
// and writes the sum to every rank's memory.  Nothing is sent.  Memory that is
// in no arena goes through a window of its rank, piece by piece; its rank alone
// copies.  docs/collectives.md has the protocol.
//
//     cadre_shared_reserve(s, &what);       // once it is known to be called
//     cadre_shared_begin(s, &what);         // when its turn has come
//     for (cadre_shared_advance(s, &done); !done;
//          cadre_shared_advance(s, &done)) {
//         cadre_transport_progress(transport, deadline);
//     }
//
// A rank that begins a collective can be done only when all ranks have begun
// it, and nobody touches a rank's memory any more when it is done.
//
// Memory:  buffers are borrowed until the collective is done.  The first
//          collective that needs a window allocates it, and it is kept until
//          the transport is closed.  After a failure peers may still write into
//          arenas, never into other memory.
// Threads: that of the transport.

#ifndef CADRE_COLLECTIVE_SHARED_H
#define CADRE_COLLECTIVE_SHARED_H

#include "transport/transport.h"

typedef struct cadre_shared cadre_shared;

/** A collective, as <cadre/group.h> takes it; a broadcast has send == recv. */
typedef struct cadre_shared_what {
    const cadre_call *call;
    const void *send;
    void *recv;
    const size_t *offsets; // of the parts; world_size + 1
} cadre_shared_what;

/**
 * Opens a group's side over a transport that shares memory, which is borrowed.
 * Collectives run one at a time.
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_shared_open(cadre_transport *t, cadre_shared **out);
void cadre_shared_close(cadre_shared *s); // NULL is allowed

/** Allocates the window, if this call needs it and it is not there. */
cadre_status cadre_shared_reserve(
    cadre_shared *s, const cadre_shared_what *what);

/** Tells the others that this rank is in the call, and where its memory is. */
void cadre_shared_begin(cadre_shared *s, const cadre_shared_what *what);

/**
 * Does all that can be done now.
 *
 * Errors: CADRE_ERR_DESYNC     a rank has called something else
 *         CADRE_ERR_PEER_LOST  a rank has left, or says what cannot be; the
 *                              transport's failed_peer
 *         CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_shared_advance(cadre_shared *s, bool *done);

/** True if the collective cannot go on before this peer does. */
bool cadre_shared_waits_for(const cadre_shared *s, int peer);

/**
 * Tells the others that this rank is in an exchange of frames, so that one that
 * is in a collective instead finds out.
 */
void cadre_shared_note_exchange(cadre_shared *s, const cadre_call *call);

/** Tells the others that this rank takes part in nothing any more. */
void cadre_shared_leave(cadre_shared *s);

#endif // CADRE_COLLECTIVE_SHARED_H
