// SPDX-License-Identifier: Apache-2.0
//
// Notes to and from peers: homes, arenas and their ends.
//
// All peers get the same notes in the same order, each as fast as its socket
// takes them.  Descriptors are closed when the last peer has got the last note.
//
// A descriptor that is on its way keeps its memory.  So an arena is told only
// when somebody may want to reach it, and one freed before that never is.

#include "transport/shm_impl.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "transport/shm_segment.h"
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

// Descriptors that are kept for the next time that somebody asks.
enum { MOST_UNTOLD = 32 };

cadre_status cadre_shm_reserve_news(shm *t)
{
    // That of its making, and one for the end of each.
    size_t needed = t->n_news + t->arenas.n + 2;
    if (needed <= t->news_capacity) {
        return CADRE_OK;
    }
    shm_news *news = cadre_alloc_array(2 * needed, sizeof(*news));
    if (news == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    if (t->n_news > 0) {
        memcpy(news, t->news, t->n_news * sizeof(*news));
    }
    cadre_free(t->news);
    t->news = news;
    t->news_capacity = 2 * needed;
    return CADRE_OK;
}

void cadre_shm_add_news(shm *t, cadre_note_kind kind, uint64_t arena)
{
    CADRE_ASSERT(t->n_news < t->news_capacity);
    t->news[t->n_news++] = (shm_news){.kind = kind, .arena = arena};
    if (kind != CADRE_NOTE_ARENA || t->n_news >= MOST_UNTOLD) {
        cadre_shm_tell(t);
    }
}

// The first of the news that no peer has been told yet.
static size_t first_untold(const shm *t)
{
    size_t first = 0;
    for (int i = 0; i < t->base.world_size; i++) {
        size_t n_told = t->peers[i].n_told;
        first = n_told > first ? n_told : first;
    }
    return first;
}

bool cadre_shm_take_back_news(shm *t, uint64_t arena)
{
    for (size_t i = first_untold(t); i < t->n_news; i++) {
        shm_news *news = &t->news[i];
        if (news->kind == CADRE_NOTE_ARENA && news->arena == arena) {
            t->n_news--;
            memmove(news, news + 1, (t->n_news - i) * sizeof(*news));
            return true;
        }
    }
    return false;
}

// Tells a peer one thing.
static cadre_note_result tell_news(shm *t, shm_peer *p, const shm_news *news)
{
    cadre_note note = {
        .kind = news->kind,
        .generation = t->base.generation,
        .arena = news->arena,
    };
    int fd = -1;
    if (news->kind == CADRE_NOTE_HOME) {
        note.nbytes = t->home_bytes;
        fd = t->home_fd;
    } else if (news->kind == CADRE_NOTE_ARENA) {
        const shm_arena *a = cadre_shm_find_arena(&t->arenas, news->arena);
        if (a == NULL) {
            return CADRE_NOTE_DONE; // freed meanwhile
        }
        note.nbytes = a->nbytes;
        fd = a->fd;
    }
    cadre_note_result result = cadre_note_send(p->socket, &note, fd);
    if (result == CADRE_NOTE_DONE) {
        p->n_sent++;
    }
    return result;
}

// Tells a peer what its socket takes.
static void tell_peer(shm *t, int peer)
{
    shm_peer *p = &t->peers[peer];
    uint64_t sent = p->n_sent;
    while (p->n_told < t->n_news && !p->gone) {
        cadre_note_result result = tell_news(t, p, &t->news[p->n_told]);
        if (result == CADRE_NOTE_LATER) {
            break;
        }
        // That the peer has gone is noticed when its end is heard.
        p->n_told = result == CADRE_NOTE_DONE ? p->n_told + 1 : t->n_news;
    }
    if (p->gone) {
        p->n_told = t->n_news;
    }
    if (p->n_sent != sent && p->met) {
        atomic_store_explicit(
            &p->out.words->told, p->n_sent, memory_order_release);
        cadre_bell_ring(cadre_shm_bell(t, peer));
    }
}

void cadre_shm_tell(shm *t)
{
    if (t->n_news == 0) {
        return;
    }
    bool all_told = true;
    for (int i = 0; i < t->base.world_size; i++) {
        if (i != t->base.rank) {
            tell_peer(t, i);
            all_told = all_told && t->peers[i].n_told == t->n_news;
        }
    }
    if (!all_told) {
        return;
    }
    t->n_news = 0;
    for (int i = 0; i < t->base.world_size; i++) {
        t->peers[i].n_told = 0;
    }
    if (t->home_fd >= 0) {
        close(t->home_fd);
        t->home_fd = -1;
    }
    cadre_shm_close_fds(t);
}

static cadre_status take_home(shm *t, int peer, const cadre_note *note, int fd)
{
    shm_peer *p = &t->peers[peer];
    void *place = p->home;
    if (p->met || note->nbytes != t->home_bytes) {
        close(fd);
        return cadre_fail(CADRE_ERR_CORRUPT, "%s home of %" PRIu64 " bytes",
            p->met ? "a second" : "a", note->nbytes);
    }
    CADRE_TRY(cadre_segment_map(fd, t->home_bytes, &place));
    cadre_shm_meet(t, peer);
    return CADRE_OK;
}

static cadre_status take_note(shm *t, int peer, const cadre_note *note, int fd)
{
    shm_peer *p = &t->peers[peer];
    if (note->generation != t->base.generation) {
        if (fd >= 0) {
            close(fd);
        }
        return cadre_fail(CADRE_ERR_CORRUPT, "a note of another group");
    }
    switch (note->kind) {
    case CADRE_NOTE_HOME:
        return take_home(t, peer, note, fd);
    case CADRE_NOTE_ARENA:
        return cadre_shm_add_arena(&p->arenas, note->arena, note->nbytes, fd);
    case CADRE_NOTE_FREED:
        break;
    }
    // One that was freed before its descriptor was sent was never here.
    (void)cadre_shm_drop_arena(&p->arenas, note->arena);
    return CADRE_OK;
}

cadre_status cadre_shm_hear(shm *t, int peer, bool *moved)
{
    shm_peer *p = &t->peers[peer];
    while (!p->gone) {
        cadre_note note;
        int fd;
        cadre_status status = CADRE_OK;
        switch (cadre_note_receive(p->socket, &p->reader, &note, &fd)) {
        case CADRE_NOTE_DONE:
            *moved = true;
            status = take_note(t, peer, &note, fd);
            break;
        case CADRE_NOTE_LATER:
            return CADRE_OK;
        case CADRE_NOTE_GONE:
            p->gone = true;
            *moved = true;
            break;
        case CADRE_NOTE_GARBAGE:
            status = cadre_fail(CADRE_ERR_CORRUPT, "what came is no note");
            break;
        }
        if (status == CADRE_ERR_CORRUPT) {
            return cadre_shm_unusable(t, peer);
        }
        CADRE_TRY(status);
    }
    return CADRE_OK;
}
