// SPDX-License-Identifier: Apache-2.0
//
// Ranks that are threads of one process.
//
// A sender puts its transfer into the mailbox of (sender, receiver).  The
// receiver copies from the sender's runs to its own, without a stop between,
// and gives the transfer back.  So a send is done when its bytes have been
// taken.
//
// Memory:  all transfers stay their posters'.  Abandoning them waits for a
//          copy that is under way from this rank's memory, and for nothing else.

#include "transport/inproc_impl.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/thread.h"
#include "transport/frame.h"
#include <sched.h>
#include <string.h>

enum { YIELD_NS = 50000 }; // before it sleeps

cadre_status cadre_inproc_world_create(int world_size, cadre_inproc_world **out)
{
    CADRE_ASSERT(world_size > 0);
    size_t n = (size_t)world_size;
    cadre_inproc_world *world =
        cadre_alloc_flex(sizeof(*world), n, sizeof(world->seats[0]));
    if (world == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    world->mailboxes = cadre_alloc_array(n * n, sizeof(*world->mailboxes));
    world->boards = cadre_alloc_array(n + 1, CADRE_BOARD_BYTES);
    if (world->mailboxes == NULL || world->boards == NULL) {
        cadre_free(world->boards);
        cadre_free(world->mailboxes);
        cadre_free(world);
        return CADRE_ERR_NO_MEMORY;
    }
    world->world_size = world_size;
    world->n_cores = cadre_cpu_count();
    for (size_t i = 0; i < n; i++) {
        pthread_mutex_init(&world->seats[i].mu, NULL);
        cadre_condition_init(&world->seats[i].changed);
    }
    *out = world;
    return CADRE_OK;
}

void cadre_inproc_world_destroy(cadre_inproc_world *world)
{
    if (world == NULL) {
        return;
    }
    for (int i = 0; i < world->world_size; i++) {
        while (world->seats[i].arenas != NULL) {
            inproc_arena *first = world->seats[i].arenas;
            world->seats[i].arenas = first->next;
            inproc_free_arena(first);
        }
        pthread_cond_destroy(&world->seats[i].changed);
        pthread_mutex_destroy(&world->seats[i].mu);
    }
    cadre_free(world->boards);
    cadre_free(world->mailboxes);
    cadre_free(world);
}

// Leaves the seat that was locked, and has its rank look again.
static void unlock_with_news(inproc_seat *s)
{
    atomic_fetch_add_explicit(&s->news, 1, memory_order_relaxed);
    pthread_mutex_unlock(&s->mu);
    pthread_cond_broadcast(&s->changed);
}

static cadre_status inproc_post_send(
    cadre_transport *base, int peer, cadre_transfer *x)
{
    inproc *t = as_inproc(base);
    inproc_seat *theirs = &t->world->seats[peer];
    t->peers[peer].n_sends++;
    pthread_mutex_lock(&theirs->mu);
    cadre_queue_push(&inproc_mailbox_of(t->world, peer, base->rank)->posted, x);
    unlock_with_news(theirs);
    return CADRE_OK;
}

static cadre_status inproc_post_receive(
    cadre_transport *base, int peer, cadre_transfer *x)
{
    cadre_queue_push(&as_inproc(base)->peers[peer].receives, x);
    return CADRE_OK;
}

// Both have the same number of bytes, cut into runs differently.
static void copy_runs(cadre_transfer *to, const cadre_transfer *from)
{
    size_t from_run = 0;
    size_t from_moved = 0;
    while (to->run < to->n_runs) {
        cadre_run target = to->runs[to->run];
        if (to->run_moved == target.nbytes) {
            to->run++;
            to->run_moved = 0;
            continue;
        }
        cadre_run source = from->runs[from_run];
        if (from_moved == source.nbytes) {
            from_run++;
            from_moved = 0;
            continue;
        }
        size_t to_left = target.nbytes - to->run_moved;
        size_t from_left = source.nbytes - from_moved;
        size_t nbytes = to_left < from_left ? to_left : from_left;
        memcpy((char *)target.data + to->run_moved,
            (const char *)source.data + from_moved, nbytes);
        to->run_moved += nbytes;
        from_moved += nbytes;
    }
}

// Takes the next frame of a peer.  Called, and returns, with my seat locked.
static cadre_status take_frame(inproc *t, int peer)
{
    int rank = t->base.rank;
    inproc_seat *mine = &t->world->seats[rank];
    inproc_mailbox *box = inproc_mailbox_of(t->world, rank, peer);
    cadre_transfer *receive = t->peers[peer].receives.head;
    cadre_transfer *send = box->posted.head;
    cadre_frame frame = {
        .call = *send->call,
        .nbytes = send->nbytes,
        .sender = peer,
    };
    cadre_status status =
        cadre_frame_compare(&frame, rank, receive->call, receive->nbytes);
    if (status != CADRE_OK) {
        t->base.failed_peer = peer;
        return status;
    }

    (void)cadre_queue_pop(&box->posted);
    box->copying = true;
    pthread_mutex_unlock(&mine->mu);

    copy_runs(receive, send);
    (void)cadre_queue_pop(&t->peers[peer].receives);
    receive->done = true;

    // Given back before copying ends: until then its owner keeps it.
    inproc_seat *theirs = &t->world->seats[peer];
    pthread_mutex_lock(&theirs->mu);
    cadre_queue_push(&inproc_mailbox_of(t->world, peer, rank)->taken, send);
    unlock_with_news(theirs);

    pthread_mutex_lock(&mine->mu);
    box->copying = false;
    pthread_cond_broadcast(&mine->changed);
    return CADRE_OK;
}

// Does what can be done with one peer.  My seat is locked.
static cadre_status serve_peer(inproc *t, int peer, bool *moved)
{
    inproc_peer *p = &t->peers[peer];
    inproc_mailbox *box = inproc_mailbox_of(t->world, t->base.rank, peer);
    while (box->taken.head != NULL) {
        cadre_queue_pop(&box->taken)->done = true;
        p->n_sends--;
        *moved = true;
    }
    if (p->receives.head != NULL && box->posted.head != NULL) {
        *moved = true;
        return take_frame(t, peer);
    }
    if (box->closed && (p->receives.head != NULL || p->n_sends > 0)) {
        t->base.failed_peer = peer;
        return cadre_fail(CADRE_ERR_PEER_LOST, "rank %d has left", peer);
    }
    return CADRE_OK;
}

// Serves all peers once.  *seen is the count of news that this has seen.
static cadre_status serve_all(inproc *t, unsigned *seen, bool *moved)
{
    inproc_seat *mine = &t->world->seats[t->base.rank];
    cadre_status status = CADRE_OK;
    pthread_mutex_lock(&mine->mu);
    *seen = atomic_load_explicit(&mine->news, memory_order_relaxed);
    *moved = mine->woken;
    mine->woken = false;
    for (int peer = 0; peer < t->base.world_size && status == CADRE_OK;
         peer++) {
        if (peer != t->base.rank) {
            status = serve_peer(t, peer, moved);
        }
    }
    pthread_mutex_unlock(&mine->mu);
    return status;
}

static bool has_news(const inproc_seat *s, unsigned seen)
{
    return atomic_load_explicit(&s->news, memory_order_relaxed) != seen;
}

// At first busily, where that pays, then letting others have the core.
static bool spin_for_news(
    const inproc *t, unsigned seen, int64_t begin, cadre_deadline deadline)
{
    const inproc_seat *mine = &t->world->seats[t->base.rank];
    int64_t spin_end = cadre_spin_end(&t->spin, begin);
    int64_t yield_end = spin_end + YIELD_NS;
    for (int64_t now = begin; now < yield_end && now < deadline;
         now = cadre_now_ns()) {
        if (has_news(mine, seen)) {
            return true;
        }
        if (now < spin_end) {
            cadre_spin_pause();
        } else {
            (void)sched_yield();
        }
    }
    return false;
}

static bool sleep_for_news(
    inproc_seat *s, unsigned seen, cadre_deadline deadline)
{
    pthread_mutex_lock(&s->mu);
    while (!has_news(s, seen)) {
        if (!cadre_condition_wait(&s->changed, &s->mu, deadline)) {
            break;
        }
    }
    bool news = has_news(s, seen);
    pthread_mutex_unlock(&s->mu);
    return news;
}

// True when there is something that was not seen, false at the deadline.
static bool wait_for_news(inproc *t, unsigned seen, cadre_deadline deadline)
{
    inproc_seat *mine = &t->world->seats[t->base.rank];
    int64_t begin = cadre_now_ns();
    if (begin >= deadline) {
        return false;
    }
    bool news = spin_for_news(t, seen, begin, deadline) ||
                sleep_for_news(mine, seen, deadline);
    cadre_spin_learn(&t->spin, cadre_now_ns() - begin);
    return news;
}

static cadre_status inproc_progress(
    cadre_transport *base, cadre_deadline deadline)
{
    inproc *t = as_inproc(base);
    bool moved = false;
    unsigned seen = 0;
    do {
        CADRE_TRY(serve_all(t, &seen, &moved));
    } while (!moved && wait_for_news(t, seen, deadline));
    return CADRE_OK;
}

void inproc_wake_seat(inproc_seat *s)
{
    pthread_mutex_lock(&s->mu);
    s->woken = true;
    unlock_with_news(s);
}

static void inproc_wake(cadre_transport *base)
{
    inproc_wake_seat(&as_inproc(base)->world->seats[base->rank]);
}

static void inproc_abandon(cadre_transport *base)
{
    cadre_inproc_world *world = as_inproc(base)->world;
    as_inproc(base)->abandoned = true;
    for (int peer = 0; peer < base->world_size; peer++) {
        inproc_seat *theirs = &world->seats[peer];
        inproc_mailbox *box = inproc_mailbox_of(world, peer, base->rank);
        pthread_mutex_lock(&theirs->mu);
        while (box->copying) {
            (void)cadre_condition_wait(
                &theirs->changed, &theirs->mu, CADRE_NO_DEADLINE);
        }
        box->posted = (cadre_transfer_queue){0};
        box->closed = true;
        unlock_with_news(theirs);
    }
}

static void inproc_close(cadre_transport *base)
{
    inproc_abandon(base);
    cadre_free(as_inproc(base));
}

static const cadre_transport_ops inproc_ops = {
    .scheme = "inproc",
    .header_bytes = 0,
    .shared = &inproc_shared_ops,
    .post_send = inproc_post_send,
    .post_receive = inproc_post_receive,
    .progress = inproc_progress,
    .wake = inproc_wake,
    .abandon = inproc_abandon,
    .close = inproc_close,
};

cadre_status cadre_inproc_open(
    cadre_inproc_world *world, int rank, cadre_transport **out)
{
    CADRE_ASSERT(rank >= 0 && rank < world->world_size);
    inproc *t = cadre_alloc_flex(
        sizeof(*t), (size_t)world->world_size, sizeof(t->peers[0]));
    if (t == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    t->base.ops = &inproc_ops;
    t->base.rank = rank;
    t->base.world_size = world->world_size;
    t->base.failed_peer = -1;
    t->world = world;
    t->spin.allowed = world->n_cores >= world->world_size;
    *out = &t->base;
    return CADRE_OK;
}
