// SPDX-License-Identifier: Apache-2.0
//
// Memory of each rank that all others reach: they read it where it lies, and
// write to it, without a copy on the way.  Exchanges, of frames without payload
// if need be, say when it may be read or was written.
//
//     cadre_reach_find(r);                  // once peers may be written to
//     ... change own memory ...
//     cadre_reach_put(r, changed, nbytes);  // while it is in a near cache
//     ... an exchange: what was put before it is there ...
//
// Why not have the peers copy what was changed: a processor that writes where
// others have read waits for their caches, line by line, each time longer than
// a whole put takes (docs/adr/0018).
//
// Ranks see to it that nobody writes what another reads or writes.  The memory of
// one that has given up is still read and written until the peers know of it.
//
// Threads: that of the group.

#ifndef CADRE_GROUP_REACH_H
#define CADRE_GROUP_REACH_H

#include "cadre/group.h"

typedef struct cadre_reach cadre_reach;

/**
 * Opens the nbytes at memory, from cadre_arena_alloc(), to the peers; collective.
 * With *out NULL, on all ranks, they are not reached: memory was NULL on some
 * rank, or ranks share none.
 *
 * Errors: CADRE_ERR_NO_MEMORY, and those of a collective
 */
cadre_status cadre_reach_open(
    cadre_group *group, const void *memory, size_t nbytes, cadre_reach **out);
void cadre_reach_close(cadre_reach *reach); // NULL is allowed

/**
 * Finds the peers' memory, for what follows until the group next moves.
 *
 * Errors: the group is broken then, by CADRE_ERR_PEER_LOST if a peer has taken
 *         its memory back
 */
cadre_status cadre_reach_find(cadre_reach *reach);

/**
 * Where nbytes at an offset of a peer's memory lie; the offset is a multiple of 4.
 *
 * Errors: CADRE_ERR_PEER_LOST  the peer has no such place
 */
cadre_status cadre_reach_at(
    cadre_reach *reach, int peer, uint64_t offset, size_t nbytes, void **out);

/**
 * Copies nbytes at own, in this rank's memory, to the same place of all peers.
 *
 * Errors: CADRE_ERR_PEER_LOST  a peer has no such place
 */
cadre_status cadre_reach_put(
    cadre_reach *reach, const void *own, size_t nbytes);

#endif // CADRE_GROUP_REACH_H
