// SPDX-License-Identifier: Apache-2.0
//
// What a rank writes on its board (transport/shared.h) about the collective it
// is in; docs/collectives.md has the protocol.
//
// An entry is written whole before CADRE_BOARD_READY announces it.  The
// counters only grow, over all collectives of the group, and are read and
// written in one order that all ranks agree on (sequentially consistent): so of
// several ranks that count up, the last one sees that it was the last.
//
// Memory:  shared; what peers wrote is not trusted.
// Threads: any.

#ifndef CADRE_COLLECTIVE_BOARD_H
#define CADRE_COLLECTIVE_BOARD_H

#include "base/alloc.h"
#include "transport/transport.h"
#include <stdatomic.h>

/** A call as it lies on a board, and the memory that its rank uses in it. */
typedef struct cadre_board_entry {
    _Alignas(CADRE_CACHE_LINE) _Atomic uint64_t sequence;
    _Atomic uint64_t kind; // operation, type, reduction, windowed, root
    _Atomic uint64_t count;
    _Atomic uint64_t detail;
    _Atomic uint64_t in_arena;
    _Atomic uint64_t in_offset;
    _Atomic uint64_t out_arena;
    _Atomic uint64_t out_offset;
} cadre_board_entry;

/** What a rank counts: turns (collective/turns.h), of all its collectives. */
typedef enum cadre_board_counter {
    CADRE_BOARD_READY, // its memory may be read, and written
    CADRE_BOARD_DONE,  // it has done its work
    CADRE_N_BOARD_COUNTERS,
} cadre_board_counter;

typedef struct cadre_board {
    cadre_board_entry entries[2]; // of the collectives, in turn
    cadre_board_entry exchange;   // the newest; its sequence is written last
    struct {
        _Alignas(CADRE_CACHE_LINE) _Atomic uint64_t turns;
    } counters[CADRE_N_BOARD_COUNTERS];
    // Not 0: this rank is gone, or has given up.
    _Alignas(CADRE_CACHE_LINE) _Atomic uint64_t left;
} cadre_board;

_Static_assert(sizeof(cadre_board) <= CADRE_BOARD_BYTES, "it must fit");

/** What an entry says. */
typedef struct cadre_board_call {
    cadre_call call;
    bool windowed; // in and out are the window
    cadre_shared_name in;
    cadre_shared_name out;
} cadre_board_call;

void cadre_board_write(cadre_board_entry *entry, const cadre_board_call *call);
void cadre_board_read(cadre_board_entry *entry, cadre_board_call *out);

#endif // CADRE_COLLECTIVE_BOARD_H
