// SPDX-License-Identifier: Apache-2.0
//
// What the parts of transport "shm" share; docs/shared-memory.md has the whole.
//
//     shm.c          opening, waiting, ending
//     shm_frames.c   frames, through rings or by name
//     shm_mail.c     notes: who has which segments
//     shm_arena.c    memory that peers reach
//     shm_segment.h, shm_ring.h, shm_note.h, bell.h   what they stand on

#ifndef CADRE_TRANSPORT_SHM_IMPL_H
#define CADRE_TRANSPORT_SHM_IMPL_H

#include "transport/bell.h"
#include "transport/lane.h"
#include "transport/queue.h"
#include "transport/shm_note.h"
#include "transport/shm_ring.h"
#include "transport/spin.h"
#include "transport/transport.h"

// Runs that one frame may name; one with more of them goes through the ring.
enum {
    CADRE_SHM_NAMES = 64,
    CADRE_SHM_NAME_BYTES = 24,
    CADRE_SHM_NAMING_BYTES = 8 + CADRE_SHM_NAMES * CADRE_SHM_NAME_BYTES,
};

/** An arena, as it lies in this rank's memory. */
typedef struct shm_arena {
    uint64_t id;
    uint8_t *memory;
    size_t nbytes;
    int fd; // of an own one, until all peers have it; else -1
} shm_arena;

/** Arenas of one rank, by rising id. */
typedef struct shm_arenas {
    shm_arena *items;
    size_t n;
    size_t capacity;
    uint64_t last_id;
} shm_arenas;

typedef struct shm_peer {
    int socket; // -1: this rank itself
    bool gone;  // it has closed its end
    bool met;   // its home is mapped
    bool owed;  // it was rung before that
    uint8_t *home;
    cadre_note_reader reader;
    uint64_t heard;  // of words->told
    size_t n_told;   // of this rank's notes, see below
    uint64_t n_sent; // notes, in all: what it finds in words->told
    shm_arenas arenas;

    cadre_ring_writer out;
    cadre_lane sends;
    // The frame at its head, if it names its payload; else of 0 bytes.
    uint8_t naming[CADRE_FRAME_BYTES + CADRE_SHM_NAMING_BYTES];
    size_t naming_bytes;
    cadre_transfer_queue handed; // named, and not yet given back
    uint64_t n_handed;
    uint64_t n_back;

    cadre_ring_reader in;
    cadre_lane receives;
    bool named; // the payload of the frame that is in work
    uint64_t n_taken;
} shm_peer;

/** A note that every peer is to get. */
typedef struct shm_news {
    cadre_note_kind kind;
    uint64_t arena;
} shm_news;

typedef struct shm {
    cadre_transport base;
    cadre_spin spin;
    int64_t next_look_ns; // at the sockets
    unsigned seen;        // rings of this rank's bell

    uint8_t *home;
    size_t home_bytes; // of every rank's
    int home_fd;       // until all peers have it; else -1

    shm_arenas arenas; // own
    // What there is to tell; each peer has got the first n_told of them.  Empty
    // again when all have got all.
    shm_news *news;
    size_t n_news;
    size_t news_capacity;

    shm_peer peers[];
} shm;

static inline shm *as_shm(cadre_transport *t)
{
    return (shm *)t;
}

/** Something is under way with this peer. */
static inline bool shm_waits_for(const shm_peer *p)
{
    return p->receives.queue.head != NULL || p->sends.queue.head != NULL ||
           p->handed.head != NULL;
}

// shm.c

/** The bell of a rank, own or met. */
cadre_bell *cadre_shm_bell(const shm *t, int rank);

/** The peer has handed over its home, which is mapped now. */
void cadre_shm_meet(shm *t, int peer);

/** What a peer wrote cannot be; the text so far says what. */
cadre_status cadre_shm_unusable(shm *t, int peer);

// shm_frames.c

/** Moves frames on in one direction.  *moved is only ever set. */
cadre_status cadre_shm_send_some(shm *t, int peer, bool *moved);
cadre_status cadre_shm_receive_some(shm *t, int peer, bool *moved);

/** Completes sends that the peer has given back. */
cadre_status cadre_shm_take_back(shm *t, int peer, bool *moved);

/** Makes the frame of the transfer that has come to the head. */
void cadre_shm_begin_send(shm *t, int peer);

// shm_mail.c

/** Makes room for one more arena's news, its end included. */
cadre_status cadre_shm_reserve_news(shm *t);

void cadre_shm_add_news(shm *t, cadre_note_kind kind, uint64_t arena);

/** Takes back that an arena was made.  False if a peer has been told. */
bool cadre_shm_take_back_news(shm *t, uint64_t arena);

/** Tells all peers what their sockets take. */
void cadre_shm_tell(shm *t);

/** Takes what a peer has told, if anything. */
cadre_status cadre_shm_hear(shm *t, int peer, bool *moved);

// shm_arena.c

/** Maps what a peer announced; fd is closed. */
cadre_status cadre_shm_add_arena(
    shm_arenas *arenas, uint64_t id, size_t nbytes, int fd);

/** False if there is no such arena. */
bool cadre_shm_drop_arena(shm_arenas *arenas, uint64_t id);

/** The own arena, or NULL: freed already. */
const shm_arena *cadre_shm_find_arena(const shm_arenas *arenas, uint64_t id);

/** All peers have the descriptors of all own arenas. */
void cadre_shm_close_fds(shm *t);

void cadre_shm_free_arenas(shm_arenas *arenas);

cadre_status cadre_shm_alloc(cadre_transport *base, size_t nbytes, void **out);
void cadre_shm_free(cadre_transport *base, void *memory);
bool cadre_shm_name(cadre_transport *base, const void *memory, size_t nbytes,
    cadre_shared_name *out);
cadre_status cadre_shm_reach(cadre_transport *base, int peer,
    cadre_shared_name name, size_t nbytes, void **out);

#endif // CADRE_TRANSPORT_SHM_IMPL_H
