// SPDX-License-Identifier: Apache-2.0

#include "transport/shm_ring.h"

#include <string.h>

static bool room_now(const cadre_ring_writer *w, size_t *nbytes)
{
    uint64_t used = w->written - atomic_load(&w->words->read);
    if (used > w->capacity) {
        return false;
    }
    *nbytes = w->capacity - (size_t)used;
    return true;
}

bool cadre_ring_room(cadre_ring_writer *w, size_t wanted, size_t *nbytes)
{
    atomic_uint *stuck = &w->words->stuck;
    if (!room_now(w, nbytes)) {
        return false;
    }
    if (*nbytes < wanted) {
        // The reader counts, then looks whether somebody is stuck; here it is
        // the other way round, so one of the two sees the other.
        atomic_store(stuck, 1);
        if (!room_now(w, nbytes)) {
            return false;
        }
    }
    if (*nbytes >= wanted &&
        atomic_load_explicit(stuck, memory_order_relaxed) != 0) {
        atomic_store_explicit(stuck, 0, memory_order_relaxed);
    }
    return true;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

void cadre_ring_write(
    cadre_ring_writer *w, const struct iovec *vectors, size_t nbytes)
{
    for (; nbytes > 0; vectors++) {
        const uint8_t *from = vectors->iov_base;
        size_t left = least(vectors->iov_len, nbytes);
        nbytes -= left;
        while (left > 0) {
            size_t at = (size_t)w->written & (w->capacity - 1);
            size_t part = least(left, w->capacity - at);
            memcpy(w->bytes + at, from, part);
            from += part;
            left -= part;
            w->written += part;
        }
    }
    atomic_store_explicit(&w->words->written, w->written, memory_order_release);
}

bool cadre_ring_filled(const cadre_ring_reader *r, size_t *nbytes)
{
    uint64_t filled =
        atomic_load_explicit(&r->words->written, memory_order_acquire) -
        r->read;
    *nbytes = (size_t)filled;
    return filled <= r->capacity;
}

// Copies from a place of the stream that is in the ring.
static void copy_out(
    const cadre_ring_reader *r, uint64_t position, void *out, size_t nbytes)
{
    size_t at = (size_t)position & (r->capacity - 1);
    size_t part = least(nbytes, r->capacity - at);
    memcpy(out, r->bytes + at, part);
    memcpy((uint8_t *)out + part, r->bytes, nbytes - part);
}

void cadre_ring_peek(const cadre_ring_reader *r, void *out, size_t nbytes)
{
    copy_out(r, r->read, out, nbytes);
}

bool cadre_ring_read(
    cadre_ring_reader *r, const struct iovec *vectors, size_t nbytes)
{
    uint64_t position = r->read;
    for (size_t left = nbytes; left > 0; vectors++) {
        size_t part = least(vectors->iov_len, left);
        copy_out(r, position, vectors->iov_base, part);
        position += part;
        left -= part;
    }
    return cadre_ring_skip(r, nbytes);
}

bool cadre_ring_skip(cadre_ring_reader *r, size_t nbytes)
{
    r->read += nbytes;
    atomic_store(&r->words->read, r->read);
    return atomic_load(&r->words->stuck) != 0;
}
