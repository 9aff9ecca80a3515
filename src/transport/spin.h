// SPDX-License-Identifier: Apache-2.0
//
// Whether a wait may burn a core before it sleeps.
//
// Spinning saves waking up, if the news comes soon; else it takes a core from
// whoever could make the news.  So a wait spins only if the one before it was
// short, and for no longer than falling asleep and waking up would cost.  A
// wait can be short because it did not spin, where two ranks are on one core:
// so spinning that has brought nothing is left out for a while, twice as long
// each time.

#ifndef CADRE_TRANSPORT_SPIN_H
#define CADRE_TRANSPORT_SPIN_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CADRE_SPIN_NS = 100000,
    CADRE_SPIN_MOST_RESTS = 63,
};

/** All zero at first. */
typedef struct cadre_spin {
    bool allowed;   // there is a core for every rank of this host
    bool was_short; // the last wait
    int n_vain;     // waits to leave out if the next spinning brings nothing
    int n_rests;    // still to be left out
} cadre_spin;

static inline bool cadre_spin_pays(const cadre_spin *spin)
{
    return spin->allowed && spin->was_short && spin->n_rests == 0;
}

/** Until when a wait that begins now may spin. */
static inline int64_t cadre_spin_end(const cadre_spin *spin, int64_t now)
{
    return cadre_spin_pays(spin) ? now + CADRE_SPIN_NS : now;
}

/** A wait has ended after so long. */
static inline void cadre_spin_learn(cadre_spin *spin, int64_t waited_ns)
{
    bool is_short = waited_ns < CADRE_SPIN_NS;
    if (!cadre_spin_pays(spin)) {
        spin->n_rests -= spin->n_rests > 0 ? 1 : 0;
    } else if (is_short) {
        spin->n_vain = 0;
    } else {
        spin->n_vain = 2 * spin->n_vain + 1 < CADRE_SPIN_MOST_RESTS
                           ? 2 * spin->n_vain + 1
                           : CADRE_SPIN_MOST_RESTS;
        spin->n_rests = spin->n_vain;
    }
    spin->was_short = is_short;
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
