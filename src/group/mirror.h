// SPDX-License-Identifier: Apache-2.0
//
// A mirror: memory that every rank has alike, into whose copies at the peers a
// rank writes straight away, where ranks reach each other's memory.
//
//     cadre_mirror_find(m);                  // once peers may be written to
//     ... change own memory ...
//     cadre_mirror_put(m, changed, nbytes);   // while it is in a near cache
//     ... an exchange: what was put before it is there ...
//
// Why not have the peers copy what was changed: a processor that writes where
// others have read waits for their caches, line by line, each time longer than
// a whole put takes (docs/shared-memory.md).
//
// Ranks see to it that they write to different places, and that nobody reads
// them meanwhile.
//
// Threads: that of the group.

#ifndef CADRE_GROUP_MIRROR_H
#define CADRE_GROUP_MIRROR_H

#include "cadre/group.h"

typedef struct cadre_mirror cadre_mirror;

/**
 * Opens a mirror of the nbytes at memory, from cadre_arena_alloc(); collective.
 * With *out NULL, on all ranks, there can be none: memory was NULL on some rank,
 * or ranks do not reach each other's.
 *
 * Errors: CADRE_ERR_NO_MEMORY, and those of a collective
 */
cadre_status cadre_mirror_open(
    cadre_group *group, const void *memory, size_t nbytes, cadre_mirror **out);
void cadre_mirror_close(cadre_mirror *mirror); // NULL is allowed

/**
 * Finds the peers' memory, which puts write to until the group next moves.
 *
 * Errors: CADRE_ERR_PEER_LOST  a peer has taken its memory back
 */
cadre_status cadre_mirror_find(cadre_mirror *mirror);

/** Copies nbytes at own, in this rank's memory, to the same place of all peers. */
void cadre_mirror_put(cadre_mirror *mirror, const void *own, size_t nbytes);

#endif // CADRE_GROUP_MIRROR_H
