// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/link.h"

#include <string.h>

// The first rank that has a wish, or n.
static int first_wish(const cadre_link_offer *offers, int n)
{
    int r = 0;
    while (r < n && offers[r].wish == CADRE_LINK_AUTO) {
        r++;
    }
    return r;
}

static bool share_host(const cadre_link_offer *a, const cadre_link_offer *b)
{
    return a->machine[0] != '\0' && strcmp(a->machine, b->machine) == 0 &&
           a->local[0] != '\0' && b->local[0] != '\0';
}

cadre_link cadre_link_choose(
    const cadre_link_offer *offers, int n, bool launched, int *a, int *b)
{
    int wishing = first_wish(offers, n);
    cadre_link wish = wishing < n ? offers[wishing].wish : CADRE_LINK_AUTO;
    for (int r = wishing; r < n; r++) {
        if (offers[r].wish != CADRE_LINK_AUTO && offers[r].wish != wish) {
            *a = wishing;
            *b = r;
            return CADRE_LINK_AUTO;
        }
    }
    int apart = 1;
    while (apart < n && (launched || share_host(&offers[0], &offers[apart]))) {
        apart++;
    }
    if (apart < n && wish == CADRE_LINK_SHM) {
        *a = 0;
        *b = apart;
        return CADRE_LINK_AUTO;
    }
    if (wish != CADRE_LINK_AUTO) {
        return wish;
    }
    return apart < n ? CADRE_LINK_TCP : CADRE_LINK_SHM;
}

const char *cadre_link_name(cadre_link link)
{
    switch (link) {
    case CADRE_LINK_SHM:
        return "shm";
    case CADRE_LINK_TCP:
        return "tcp";
    case CADRE_LINK_AUTO:
        break;
    }
    return "auto";
}
