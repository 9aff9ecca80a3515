// SPDX-License-Identifier: Apache-2.0
//
// Whether a wait may burn a core before it sleeps.
//
// Spinning saves waking up, if the news comes soon; else it takes a core from
// whoever could make the news.  So a wait spins only if the one before it was
// short, and for no longer than falling asleep and waking up would cost.

#ifndef CADRE_TRANSPORT_SPIN_H
#define CADRE_TRANSPORT_SPIN_H

#include <stdbool.h>
#include <stdint.h>

enum { CADRE_SPIN_NS = 100000 };

typedef struct cadre_spin {
    bool allowed; // there is a core for every rank of this host
    bool pays;    // the last wait was short
} cadre_spin;

/** Until when a wait that begins now may spin. */
static inline int64_t cadre_spin_end(const cadre_spin *spin, int64_t now)
{
    return spin->allowed && spin->pays ? now + CADRE_SPIN_NS : now;
}

/** A wait has ended after so long. */
static inline void cadre_spin_learn(cadre_spin *spin, int64_t waited_ns)
{
    spin->pays = waited_ns < CADRE_SPIN_NS;
}

static inline void cadre_spin_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif // CADRE_TRANSPORT_SPIN_H
