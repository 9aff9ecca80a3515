// SPDX-License-Identifier: Apache-2.0
//
// What connects the ranks of a job, chosen once, from what all of them say.
//
// Threads: any.

#ifndef CADRE_RENDEZVOUS_LINK_H
#define CADRE_RENDEZVOUS_LINK_H

#include "base/machine.h"
#include "base/socket.h"
#include <stdbool.h>

typedef enum cadre_link {
    CADRE_LINK_AUTO = 0, // the best that connects all
    CADRE_LINK_TCP = 1,  // stream sockets
    CADRE_LINK_SHM = 2,  // memory of one host, over Unix sockets
} cadre_link;

/** What a rank wishes and what it can offer. */
typedef struct cadre_link_offer {
    cadre_link wish;
    char machine[CADRE_MACHINE_BYTES]; // cadre_machine_text()
    char local[CADRE_ADDRESS_BYTES];   // of its Unix socket; "": none
} cadre_link_offer;

/**
 * Chooses for n ranks.  launched: they have inherited Unix sockets of one
 * launcher, which proves that they share a host.
 *
 * CADRE_LINK_AUTO: there is none, since *a and *b wish different links or, if
 * they wish the same, are apart.
 */
cadre_link cadre_link_choose(
    const cadre_link_offer *offers, int n, bool launched, int *a, int *b);

/** "shm", "tcp" or "auto". */
const char *cadre_link_name(cadre_link link);

#endif // CADRE_RENDEZVOUS_LINK_H
