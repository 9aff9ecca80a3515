// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are processes of one host.
//
// Every rank has a home: a segment with its bell, its board, and a ring from
// every peer.  Homes and arenas are passed over the sockets, and a look at
// those tells whether a peer is still there; all else is memory.
// docs/shared-memory.md has the layout and what is checked.
//
// Memory:  homes are mapped as long as the transport is open.  Those of peers
//          not met yet are reserved places that read as zeros.
// Threads: wake() touches the own bell and nothing else.

#include "transport/shm_impl.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/peer.h"
#include "transport/shm_segment.h"
#include <sched.h>
#include <unistd.h>

enum {
    BELL_AT = 0,
    BOARD_AT = 4096,
    WORDS_AT = 8192,
    // All rings of a home together; one at least, and at most.
    RINGS_BYTES = 4 << 20,
    LEAST_RING_BYTES = 4 << 10,
    MOST_RING_BYTES = 512 << 10,

    YIELD_NS = 50000, // before it sleeps
    // How long a peer's end may go unnoticed, or its first note, or room for
    // one of this rank's.
    LOOK_NS = 20000000,
    MEET_NS = 1000000,
};

_Static_assert(WORDS_AT == BOARD_AT + CADRE_BOARD_BYTES, "the board fits");
_Static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2,
    "words work between processes");

static size_t ring_bytes(int world_size)
{
    size_t nbytes = MOST_RING_BYTES;
    while (nbytes > LEAST_RING_BYTES &&
           nbytes * ((size_t)world_size - 1) > RINGS_BYTES) {
        nbytes /= 2;
    }
    return nbytes;
}

static size_t rings_at(int world_size)
{
    return WORDS_AT + cadre_segment_bytes(
                          ((size_t)world_size - 1) * sizeof(cadre_ring_words));
}

static size_t home_bytes(int world_size)
{
    return rings_at(world_size) +
           ((size_t)world_size - 1) * ring_bytes(world_size);
}

// The number of the ring from a rank in its peer's home.
static size_t slot_of(int from, int to)
{
    return (size_t)(from < to ? from : from - 1);
}

// The parts of a home are aligned to pages and lines, see above.
static void *part(uint8_t *home, size_t at)
{
    return home + at;
}

static cadre_ring_words *words_of(uint8_t *home, size_t slot)
{
    return part(home, WORDS_AT + slot * sizeof(cadre_ring_words));
}

static uint8_t *bytes_of(const shm *t, uint8_t *home, size_t slot)
{
    int n = t->base.world_size;
    return home + rings_at(n) + slot * ring_bytes(n);
}

cadre_bell *cadre_shm_bell(const shm *t, int rank)
{
    uint8_t *home = rank == t->base.rank ? t->home : t->peers[rank].home;
    return part(home, BELL_AT);
}

cadre_status cadre_shm_unusable(shm *t, int peer)
{
    t->base.failed_peer = peer;
    return cadre_fail(CADRE_ERR_PEER_LOST,
        "what rank %d shares is unusable: %s", peer, cadre_error_text());
}

void cadre_shm_meet(shm *t, int peer)
{
    shm_peer *p = &t->peers[peer];
    size_t slot = slot_of(t->base.rank, peer);
    p->out = (cadre_ring_writer){
        .words = words_of(p->home, slot),
        .bytes = bytes_of(t, p->home, slot),
        .capacity = ring_bytes(t->base.world_size),
    };
    p->met = true;
    atomic_store_explicit(&p->out.words->told, p->n_sent, memory_order_release);
    if (p->owed) {
        cadre_bell_ring(cadre_shm_bell(t, peer));
    }
}

static cadre_status fail_lost(shm *t, int peer, const char *how)
{
    t->base.failed_peer = peer;
    return cadre_fail(CADRE_ERR_PEER_LOST, "rank %d has %s", peer, how);
}

static cadre_status shm_post_send(
    cadre_transport *base, int peer, cadre_transfer *x)
{
    shm *t = as_shm(base);
    shm_peer *p = &t->peers[peer];
    bool first = p->sends.queue.head == NULL;
    cadre_queue_push(&p->sends.queue, x);
    if (!first) {
        return CADRE_OK;
    }
    cadre_shm_begin_send(t, peer);
    bool moved;
    if (!p->met) {
        CADRE_TRY(cadre_shm_hear(t, peer, &moved));
    }
    return p->met ? cadre_shm_send_some(t, peer, &moved) : CADRE_OK;
}

static cadre_status shm_post_receive(
    cadre_transport *base, int peer, cadre_transfer *x)
{
    cadre_queue_push(&as_shm(base)->peers[peer].receives.queue, x);
    return CADRE_OK;
}

// Does what can be done with one peer.
static cadre_status serve_peer(shm *t, int peer, bool *moved)
{
    shm_peer *p = &t->peers[peer];
    // Both are looked at before the rest: what was written earlier is then seen.
    bool gone = p->gone;
    bool left = atomic_load(&p->in.words->left) != 0;
    uint64_t told =
        atomic_load_explicit(&p->in.words->told, memory_order_acquire);
    if (!p->met || told != p->heard) {
        p->heard = told;
        CADRE_TRY(cadre_shm_hear(t, peer, moved));
    }
    if (p->met) {
        CADRE_TRY(cadre_shm_take_back(t, peer, moved));
        CADRE_TRY(cadre_shm_receive_some(t, peer, moved));
        if (!gone && !left) {
            CADRE_TRY(cadre_shm_send_some(t, peer, moved));
        }
    }
    if ((gone || left) && shm_waits_for(p)) {
        return fail_lost(t, peer, left ? "left" : "closed its connection");
    }
    return CADRE_OK;
}

// Looks at all sockets: a rank that waits for another in shared memory, and
// not for its frames, hears of its end here.
static cadre_status look(shm *t, bool *moved)
{
    for (int i = 0; i < t->base.world_size; i++) {
        if (i != t->base.rank) {
            CADRE_TRY(cadre_shm_hear(t, i, moved));
        }
    }
    return CADRE_OK;
}

// Serves everybody once.
static cadre_status serve_all(shm *t, int64_t now, bool *moved)
{
    if (t->n_news > 0) {
        cadre_shm_tell(t);
        *moved = *moved || t->n_news == 0; // now all of its arenas have names
    }
    if (now >= t->next_look_ns) {
        t->next_look_ns = now + LOOK_NS;
        CADRE_TRY(look(t, moved));
    }
    for (int i = 0; i < t->base.world_size; i++) {
        if (i != t->base.rank) {
            CADRE_TRY(serve_peer(t, i, moved));
            if ((!t->peers[i].met || t->n_news > 0) &&
                t->next_look_ns > now + MEET_NS) {
                t->next_look_ns = now + MEET_NS;
            }
        }
    }
    return CADRE_OK;
}

static bool has_news(const shm *t)
{
    return cadre_bell_rings(cadre_shm_bell(t, t->base.rank)) != t->seen;
}

// Waits for the bell, until the next look at the latest: at first busily, where
// that pays, then letting others have the core, then asleep.
static void wait_for_news(shm *t, int64_t spin_end, cadre_deadline deadline)
{
    int64_t until = deadline < t->next_look_ns ? deadline : t->next_look_ns;
    int64_t now = cadre_now_ns();
    int64_t yield_end = (now < spin_end ? spin_end : now) + YIELD_NS;
    while (now < until && !has_news(t)) {
        if (now < spin_end) {
            cadre_spin_pause();
        } else if (now < yield_end) {
            (void)sched_yield();
        } else {
            cadre_bell_sleep(cadre_shm_bell(t, t->base.rank), t->seen, until);
        }
        now = cadre_now_ns();
    }
}

static cadre_status shm_progress(cadre_transport *base, cadre_deadline deadline)
{
    shm *t = as_shm(base);
    int64_t begin = cadre_now_ns();
    int64_t now = begin;
    int64_t spin_end = cadre_spin_end(&t->spin, begin);
    for (;;) {
        unsigned rings = cadre_bell_rings(cadre_shm_bell(t, base->rank));
        bool moved = rings != t->seen;
        t->seen = rings;
        CADRE_TRY(serve_all(t, now, &moved));
        if (moved || now >= deadline) {
            break;
        }
        wait_for_news(t, spin_end, deadline);
        now = cadre_now_ns();
    }
    if (begin < deadline) {
        cadre_spin_learn(&t->spin, now - begin);
    }
    return CADRE_OK;
}

static void shm_wake(cadre_transport *base)
{
    cadre_bell_ring(cadre_shm_bell(as_shm(base), base->rank));
}

static void *shm_board(cadre_transport *base, int rank)
{
    shm *t = as_shm(base);
    return part(rank == base->rank ? t->home : t->peers[rank].home, BOARD_AT);
}

static void shm_ring(cadre_transport *base)
{
    shm *t = as_shm(base);
    for (int i = 0; i < base->world_size; i++) {
        if (i == base->rank) {
            continue;
        }
        if (t->peers[i].met) {
            cadre_bell_ring(cadre_shm_bell(t, i));
        } else {
            t->peers[i].owed = true;
        }
    }
}

static void shm_abandon(cadre_transport *base)
{
    shm *t = as_shm(base);
    for (int i = 0; i < base->world_size; i++) {
        shm_peer *p = &t->peers[i];
        p->sends.queue = (cadre_transfer_queue){0};
        p->receives.queue = (cadre_transfer_queue){0};
        p->handed = (cadre_transfer_queue){0};
        if (p->met) {
            atomic_store(&p->out.words->left, 1);
            cadre_bell_ring(cadre_shm_bell(t, i));
        }
    }
    // What this rank writes to its memory from now on comes after that.
    atomic_thread_fence(memory_order_seq_cst);
}

static void release(shm *t)
{
    for (int i = 0; i < t->base.world_size; i++) {
        shm_peer *p = &t->peers[i];
        cadre_note_forget(&p->reader);
        cadre_shm_free_arenas(&p->arenas);
        cadre_segment_unmap(p->home, t->home_bytes);
        if (p->socket >= 0) {
            close(p->socket);
        }
    }
    cadre_shm_free_arenas(&t->arenas);
    cadre_segment_unmap(t->home, t->home_bytes);
    if (t->home_fd >= 0) {
        close(t->home_fd);
    }
    cadre_free(t->news);
    cadre_free(t);
}

static void shm_close(cadre_transport *base)
{
    shm_abandon(base);
    release(as_shm(base));
}

static bool shm_is_gone(cadre_transport *base, int rank)
{
    return as_shm(base)->peers[rank].gone;
}

static const cadre_shared_ops shared_ops = {
    .alloc = cadre_shm_alloc,
    .free = cadre_shm_free,
    .name = cadre_shm_name,
    .reach = cadre_shm_reach,
    .board = shm_board,
    .is_gone = shm_is_gone,
    .ring = shm_ring,
};

static const cadre_transport_ops shm_ops = {
    .scheme = "shm",
    .header_bytes = CADRE_FRAME_BYTES,
    .shared = &shared_ops,
    .post_send = shm_post_send,
    .post_receive = shm_post_receive,
    .progress = shm_progress,
    .wake = shm_wake,
    .abandon = shm_abandon,
    .close = shm_close,
};

// Makes this rank's home, and places for those of the others.
static cadre_status make_homes(shm *t)
{
    void *memory;
    CADRE_TRY(cadre_segment_create(t->home_bytes, &t->home_fd, &memory));
    t->home = memory;
    for (int i = 0; i < t->base.world_size; i++) {
        shm_peer *p = &t->peers[i];
        if (i == t->base.rank) {
            continue;
        }
        CADRE_TRY(cadre_segment_reserve(t->home_bytes, &memory));
        p->home = memory;
        size_t slot = slot_of(i, t->base.rank);
        p->in = (cadre_ring_reader){
            .words = words_of(t->home, slot),
            .bytes = bytes_of(t, t->home, slot),
            .capacity = ring_bytes(t->base.world_size),
        };
    }
    CADRE_TRY(cadre_shm_reserve_news(t));
    cadre_shm_add_news(t, CADRE_NOTE_HOME, 0);
    return CADRE_OK;
}

cadre_status cadre_shm_open(int rank, int world_size, uint64_t generation,
    const int *sockets, cadre_transport **out)
{
    CADRE_ASSERT(world_size > 1 && rank >= 0 && rank < world_size);
    shm *t =
        cadre_alloc_flex(sizeof(*t), (size_t)world_size, sizeof(t->peers[0]));
    if (t == NULL) {
        for (int i = 0; i < world_size; i++) {
            if (i != rank) {
                close(sockets[i]);
            }
        }
        return CADRE_ERR_NO_MEMORY;
    }
    t->base.ops = &shm_ops;
    t->base.rank = rank;
    t->base.world_size = world_size;
    t->base.generation = generation;
    t->base.failed_peer = -1;
    t->spin.allowed = cadre_peers_cpu_count(sockets, world_size) >= world_size;
    t->home_bytes = home_bytes(world_size);
    t->home_fd = -1;
    for (int i = 0; i < world_size; i++) {
        t->peers[i].socket = i == rank ? -1 : sockets[i];
        t->peers[i].reader.fd = -1;
    }
    cadre_status status = make_homes(t);
    if (status != CADRE_OK) {
        release(t);
        return status;
    }
    *out = &t->base;
    return CADRE_OK;
}
