// SPDX-License-Identifier: Apache-2.0
//
// A doorbell in memory that processes share: one rank waits at it, all others
// ring.  Ringing is a system call only while the one who waits sleeps.
//
// Memory:  what else writes to it can cause needless waking and sleeping, no more.
// Threads: any may ring; one waits.

#ifndef CADRE_TRANSPORT_BELL_H
#define CADRE_TRANSPORT_BELL_H

#include "base/clock.h"
#include <stdatomic.h>

/** {0} is a bell that nobody has rung. */
typedef struct cadre_bell {
    atomic_uint rings;
    atomic_uint sleeps; // somebody does
} cadre_bell;

/** How often it was rung; what was written before a ring is seen after this. */
static inline unsigned cadre_bell_rings(const cadre_bell *bell)
{
    return atomic_load_explicit(&bell->rings, memory_order_acquire);
}

void cadre_bell_ring(cadre_bell *bell);

/** Sleeps until it has been rung more than `seen` times or the deadline passes. */
void cadre_bell_sleep(cadre_bell *bell, unsigned seen, cadre_deadline deadline);

#endif // CADRE_TRANSPORT_BELL_H
