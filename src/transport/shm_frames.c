// SPDX-License-Identifier: Apache-2.0
//
// Frames between ranks that share memory.
//
// A frame whose runs lie in arenas names them: behind its header come names
// instead of bytes, the receiver copies from the sender's memory to its own and
// gives the frame back.  Any other frame goes through the ring, as through a
// socket.
//
// Invariant: as in lane.h; a frame that names its payload is written and read
//            as a whole, since it fits into every ring.
// Memory:    whatever stands in a ring is copied before it is looked at.

#include "transport/shm_impl.h"

#include "base/bytes.h"
#include "base/fail.h"
#include <inttypes.h>
#include <string.h>

enum {
    // Below it, copying twice costs less than waiting until it is given back.
    LEAST_NAMED_BYTES = 16 << 10,
    // What is moved before the other side is told, where it has a core.
    CHUNK_BYTES = 32 << 10,
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

// Names all runs of the frame behind its header.  False if that cannot be.
static bool name_runs(shm *t, const cadre_transfer *x, uint8_t *out)
{
    if (x->nbytes < LEAST_NAMED_BYTES || x->n_runs > CADRE_SHM_NAMES) {
        return false;
    }
    cadre_store_u64(out, x->n_runs);
    out += 8;
    for (size_t i = 0; i < x->n_runs; i++) {
        const cadre_run *run = &x->runs[i];
        cadre_shared_name name = {0};
        if (run->nbytes > 0 &&
            !cadre_shm_name(&t->base, run->data, run->nbytes, &name)) {
            return false;
        }
        cadre_store_u64(out, name.arena);
        cadre_store_u64(out + 8, name.offset);
        cadre_store_u64(out + 16, run->nbytes);
        out += CADRE_SHM_NAME_BYTES;
    }
    return true;
}

void cadre_shm_begin_send(shm *t, int peer)
{
    shm_peer *p = &t->peers[peer];
    const cadre_transfer *x = p->sends.queue.head;
    p->naming_bytes = 0;
    if (x == NULL) {
        return;
    }
    bool named = name_runs(t, x, p->naming + CADRE_FRAME_BYTES);
    cadre_frame frame = {
        .generation = t->base.generation,
        .call = *x->call,
        .nbytes = x->nbytes,
        .sender = t->base.rank,
        .named = named,
    };
    cadre_frame_encode(&frame, p->sends.header);
    if (named) {
        memcpy(p->naming, p->sends.header, CADRE_FRAME_BYTES);
        p->naming_bytes =
            CADRE_FRAME_BYTES + 8 + x->n_runs * CADRE_SHM_NAME_BYTES;
    }
}

// Writes the frame at the head, all of it or nothing.
static size_t write_names(shm_peer *p, size_t room)
{
    struct iovec all = {.iov_base = p->naming, .iov_len = p->naming_bytes};
    if (room < p->naming_bytes) {
        return 0;
    }
    cadre_ring_write(&p->out, &all, p->naming_bytes);
    p->n_handed++;
    cadre_queue_push(&p->handed, cadre_queue_pop(&p->sends.queue));
    return p->naming_bytes;
}

// Writes what there is room for of the frame at the head.
static size_t write_bytes(const shm *t, shm_peer *p, size_t room)
{
    cadre_transfer *x = p->sends.queue.head;
    struct iovec vectors[CADRE_LANE_VECTORS];
    int n = cadre_lane_lay_out(x, &p->sends, vectors);
    size_t nbytes = least(cadre_lane_total(vectors, n), room);
    if (t->spin.allowed) {
        nbytes = least(nbytes, CHUNK_BYTES);
    }
    cadre_ring_write(&p->out, vectors, nbytes);
    cadre_lane_account(x, &p->sends, nbytes);
    if (cadre_lane_is_done(x, &p->sends)) {
        cadre_queue_pop(&p->sends.queue)->done = true;
    }
    return nbytes;
}

cadre_status cadre_shm_send_some(shm *t, int peer, bool *moved)
{
    shm_peer *p = &t->peers[peer];
    bool unheard = false; // the peer was not told of the last bytes
    while (p->sends.queue.head != NULL) {
        const cadre_transfer *x = p->sends.queue.head;
        size_t wanted = p->naming_bytes > 0 ? p->naming_bytes : 1;
        size_t room;
        if (!cadre_ring_room(&p->out, wanted, &room)) {
            (void)cadre_fail(
                CADRE_ERR_CORRUPT, "more was read than was written");
            return cadre_shm_unusable(t, peer);
        }
        size_t nbytes = p->naming_bytes > 0 ? write_names(p, room)
                                            : write_bytes(t, p, room);
        if (nbytes == 0) {
            break;
        }
        unheard = true;
        if (x != p->sends.queue.head) {
            cadre_shm_begin_send(t, peer);
        } else if (t->spin.allowed) {
            cadre_bell_ring(cadre_shm_bell(t, peer));
            unheard = false;
            *moved = true;
        }
    }
    if (unheard) {
        cadre_bell_ring(cadre_shm_bell(t, peer));
        *moved = true;
    }
    return CADRE_OK;
}

cadre_status cadre_shm_take_back(shm *t, int peer, bool *moved)
{
    shm_peer *p = &t->peers[peer];
    uint64_t n_back =
        atomic_load_explicit(&p->out.words->taken, memory_order_acquire);
    if (n_back - p->n_back > p->n_handed - p->n_back) {
        (void)cadre_fail(
            CADRE_ERR_CORRUPT, "more frames came back than were handed over");
        return cadre_shm_unusable(t, peer);
    }
    for (; p->n_back < n_back; p->n_back++) {
        cadre_queue_pop(&p->handed)->done = true;
        *moved = true;
    }
    return CADRE_OK;
}

// Compares a complete header with what is expected.
static cadre_status check_header(shm *t, int peer)
{
    shm_peer *p = &t->peers[peer];
    const cadre_transfer *x = p->receives.queue.head;
    cadre_frame frame;
    cadre_status status = cadre_frame_decode(p->receives.header, &frame);
    if (status == CADRE_OK && (frame.generation != t->base.generation ||
                                  frame.sender != peer || frame.checked)) {
        status = cadre_fail(
            CADRE_ERR_CORRUPT, "frame of another group, or of another rank");
    }
    if (status != CADRE_OK) {
        return cadre_shm_unusable(t, peer);
    }
    status = cadre_frame_compare(&frame, t->base.rank, x->call, x->nbytes);
    if (status != CADRE_OK) {
        t->base.failed_peer = peer;
    }
    p->named = frame.named;
    return status;
}

// Reads into the vectors what there is of them.
static size_t read_some(
    shm *t, int peer, const struct iovec *vectors, int n, size_t filled)
{
    shm_peer *p = &t->peers[peer];
    size_t nbytes = least(cadre_lane_total(vectors, n), filled);
    nbytes = least(nbytes, CHUNK_BYTES);
    if (cadre_ring_read(&p->in, vectors, nbytes)) {
        cadre_bell_ring(cadre_shm_bell(t, peer));
    }
    return nbytes;
}

// Copies the next nbytes of a payload to where they belong; it has them.
static void fill_runs(cadre_transfer *x, const uint8_t *from, size_t nbytes)
{
    while (nbytes > 0) {
        const cadre_run *run = &x->runs[x->run];
        size_t part = least(run->nbytes - x->run_moved, nbytes);
        if (part > 0) {
            memcpy((uint8_t *)run->data + x->run_moved, from, part);
        }
        from += part;
        nbytes -= part;
        x->run_moved += part;
        if (x->run_moved == run->nbytes) {
            x->run++;
            x->run_moved = 0;
        }
    }
}

// Copies the whole payload from the places named, each of which is checked.
static cadre_status copy_named(
    shm *t, int peer, cadre_transfer *x, const uint8_t *names, size_t n)
{
    size_t left = x->nbytes;
    for (size_t i = 0; i < n; i++, names += CADRE_SHM_NAME_BYTES) {
        cadre_shared_name name = {
            .arena = cadre_load_u64(names),
            .offset = cadre_load_u64(names + 8),
        };
        uint64_t nbytes = cadre_load_u64(names + 16);
        void *from = NULL;
        if (nbytes > left) {
            return cadre_fail(CADRE_ERR_CORRUPT,
                "a frame of %zu bytes names more of them", x->nbytes);
        }
        left -= (size_t)nbytes;
        if (nbytes > 0) {
            CADRE_TRY(
                cadre_shm_reach(&t->base, peer, name, (size_t)nbytes, &from));
            fill_runs(x, from, (size_t)nbytes);
        }
    }
    if (left > 0) {
        return cadre_fail(CADRE_ERR_CORRUPT,
            "a frame of %zu bytes names %zu fewer of them", x->nbytes, left);
    }
    return CADRE_OK;
}

// Takes the payload of the frame in work, once its names are all there.
static cadre_status take_named(shm *t, int peer, size_t filled, bool *moved)
{
    shm_peer *p = &t->peers[peer];
    cadre_transfer *x = p->receives.queue.head;
    uint8_t naming[CADRE_SHM_NAMING_BYTES];
    if (filled < 8) {
        return CADRE_OK;
    }
    cadre_ring_peek(&p->in, naming, 8);
    uint64_t n = cadre_load_u64(naming);
    if (n > CADRE_SHM_NAMES) {
        (void)cadre_fail(CADRE_ERR_CORRUPT,
            "a frame with %" PRIu64 " names, %d is the most", n,
            CADRE_SHM_NAMES);
        return cadre_shm_unusable(t, peer);
    }
    size_t nbytes = 8 + (size_t)n * CADRE_SHM_NAME_BYTES;
    if (filled < nbytes) {
        return CADRE_OK;
    }
    cadre_ring_peek(&p->in, naming, nbytes);
    cadre_status status = copy_named(t, peer, x, naming + 8, (size_t)n);
    if (status == CADRE_ERR_CORRUPT) {
        return cadre_shm_unusable(t, peer);
    }
    CADRE_TRY(status);
    // Who leaves says so before it writes to its memory again.
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&p->in.words->left, memory_order_relaxed) != 0) {
        t->base.failed_peer = peer;
        return cadre_fail(CADRE_ERR_PEER_LOST, "rank %d has left", peer);
    }
    (void)cadre_ring_skip(&p->in, nbytes);
    p->n_taken++;
    atomic_store_explicit(
        &p->in.words->taken, p->n_taken, memory_order_release);
    cadre_bell_ring(cadre_shm_bell(t, peer));
    cadre_queue_pop(&p->receives.queue)->done = true;
    *moved = true;
    return CADRE_OK;
}

// Takes bytes of the frame at the head.
static cadre_status take_bytes(shm *t, int peer, size_t filled)
{
    shm_peer *p = &t->peers[peer];
    cadre_transfer *x = p->receives.queue.head;
    bool in_header = x->moved < CADRE_FRAME_BYTES;
    struct iovec vectors[CADRE_LANE_VECTORS];
    int n = cadre_lane_lay_out(x, &p->receives, vectors);
    if (in_header) {
        n = 1; // nothing of the payload before the header has been compared
    }
    cadre_lane_account(x, &p->receives, read_some(t, peer, vectors, n, filled));
    if (in_header && x->moved == CADRE_FRAME_BYTES) {
        CADRE_TRY(check_header(t, peer));
    }
    if (cadre_lane_is_done(x, &p->receives)) {
        cadre_queue_pop(&p->receives.queue)->done = true;
    }
    return CADRE_OK;
}

cadre_status cadre_shm_receive_some(shm *t, int peer, bool *moved)
{
    shm_peer *p = &t->peers[peer];
    while (p->receives.queue.head != NULL) {
        const cadre_transfer *x = p->receives.queue.head;
        size_t filled;
        if (!cadre_ring_filled(&p->in, &filled)) {
            (void)cadre_fail(
                CADRE_ERR_CORRUPT, "more was written than there was room for");
            return cadre_shm_unusable(t, peer);
        }
        if (filled == 0) {
            return CADRE_OK;
        }
        if (x->moved == CADRE_FRAME_BYTES && p->named) {
            CADRE_TRY(take_named(t, peer, filled, moved));
            if (x == p->receives.queue.head) {
                return CADRE_OK; // names are missing
            }
        } else {
            CADRE_TRY(take_bytes(t, peer, filled));
            *moved = true;
        }
    }
    return CADRE_OK;
}
