// SPDX-License-Identifier: Apache-2.0

#include "transport/lane.h"

#include "kernel/crc32c.h"

bool cadre_lane_has_payload(const cadre_transfer *x)
{
    return x->moved >= CADRE_FRAME_BYTES + x->nbytes;
}

int cadre_lane_lay_out(const cadre_transfer *x, cadre_lane *l,
    struct iovec vectors[CADRE_LANE_VECTORS])
{
    int n = 0;
    if (x->moved < CADRE_FRAME_BYTES) {
        vectors[n].iov_base = l->header + x->moved;
        vectors[n].iov_len = CADRE_FRAME_BYTES - x->moved;
        n++;
    } else if (cadre_lane_has_payload(x)) {
        size_t moved = x->moved - CADRE_FRAME_BYTES - x->nbytes;
        vectors[n].iov_base = l->check + moved;
        vectors[n].iov_len = l->check_bytes - moved;
        return 1;
    }
    size_t skip = x->run_moved;
    for (size_t i = x->run; i < x->n_runs && n < CADRE_LANE_VECTORS; i++) {
        if (x->runs[i].nbytes > skip) {
            vectors[n].iov_base = (char *)x->runs[i].data + skip;
            vectors[n].iov_len = x->runs[i].nbytes - skip;
            n++;
        }
        skip = 0;
    }
    return n;
}

size_t cadre_lane_total(const struct iovec *vectors, int n)
{
    size_t nbytes = 0;
    for (int i = 0; i < n; i++) {
        nbytes += vectors[i].iov_len;
    }
    return nbytes;
}

// Counts nbytes of the payload as moved; they may end anywhere in a run.
static void account_payload(cadre_transfer *x, cadre_lane *l, size_t nbytes)
{
    while (nbytes > 0) {
        const cadre_run *run = &x->runs[x->run];
        size_t left = run->nbytes - x->run_moved;
        size_t part = nbytes < left ? nbytes : left;
        if (l->check_bytes > 0) {
            l->crc = cadre_crc32c(
                l->crc, (const char *)run->data + x->run_moved, part);
        }
        x->run_moved += part;
        nbytes -= part;
        if (part == left) {
            x->run++;
            x->run_moved = 0;
        }
    }
}

void cadre_lane_account(cadre_transfer *x, cadre_lane *l, size_t nbytes)
{
    if (x->moved < CADRE_FRAME_BYTES) {
        size_t left = CADRE_FRAME_BYTES - x->moved;
        size_t of_header = nbytes < left ? nbytes : left;
        x->moved += of_header;
        nbytes -= of_header;
    }
    if (!cadre_lane_has_payload(x)) {
        account_payload(x, l, nbytes);
    }
    x->moved += nbytes;
}

bool cadre_lane_is_done(const cadre_transfer *x, const cadre_lane *l)
{
    return x->moved == CADRE_FRAME_BYTES + x->nbytes + l->check_bytes;
}
