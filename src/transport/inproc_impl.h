// SPDX-License-Identifier: Apache-2.0
//
// What the parts of transport "inproc" share.
//
//     inproc.c          opening, frames, waiting, ending
//     inproc_shared.c   memory that peers reach, and boards
//
// Locks:   one mutex per rank, never two at once, never while copying.

#ifndef CADRE_TRANSPORT_INPROC_IMPL_H
#define CADRE_TRANSPORT_INPROC_IMPL_H

#include "transport/queue.h"
#include "transport/spin.h"
#include "transport/transport.h"
#include <pthread.h>
#include <stdatomic.h>

/** What a rank is told by one other; guarded by the mutex of the one told. */
typedef struct inproc_mailbox {
    cadre_transfer_queue posted; // sends to this rank
    cadre_transfer_queue taken;  // this rank's sends that the other has taken
    bool copying;                // out of the other's memory, at this moment
    bool closed;                 // the other is gone
} inproc_mailbox;

typedef struct inproc_arena {
    struct inproc_arena *next;
    uint64_t number;
    char *memory;
    size_t nbytes;
} inproc_arena;

typedef struct inproc_seat {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    // Counts what was told: written under mu, read without it while spinning.
    atomic_uint news;
    bool woken; // guarded by mu
    // Guarded by mu for all but their rank, who alone writes it.
    inproc_arena *arenas;
} inproc_seat;

struct cadre_inproc_world {
    int world_size;
    int n_cores;               // for all ranks; each may be pinned to one
    inproc_mailbox *mailboxes; // [told * world_size + teller]
    char *boards;              // of all ranks, and room to align them
    inproc_seat seats[];
};

/** A rank's own view of a peer. */
typedef struct inproc_peer {
    cadre_transfer_queue receives;
    size_t n_sends; // posted and not yet taken
} inproc_peer;

typedef struct inproc {
    cadre_transport base;
    cadre_inproc_world *world;
    cadre_spin spin;
    uint64_t n_arenas; // so far
    bool abandoned;
    inproc_peer peers[];
} inproc;

static inline inproc *as_inproc(cadre_transport *t)
{
    return (inproc *)t;
}

static inline inproc_mailbox *inproc_mailbox_of(
    cadre_inproc_world *world, int told, int teller)
{
    size_t n = (size_t)world->world_size;
    return &world->mailboxes[(size_t)told * n + (size_t)teller];
}

// inproc.c

/** Has a rank look again, and its progress() return. */
void inproc_wake_seat(inproc_seat *s);

// inproc_shared.c

void inproc_free_arena(inproc_arena *a);

extern const cadre_shared_ops inproc_shared_ops;

#endif // CADRE_TRANSPORT_INPROC_IMPL_H
