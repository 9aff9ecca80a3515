// SPDX-License-Identifier: Apache-2.0
//
// Invariant: a visitor has said all of the stages before its own, and `used`
//            bytes of that one.

#include "rendezvous/door.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/peer.h"
#include "base/socket.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    MOST_VISITORS = 64,
    PATIENCE_MS = 3000, // until a visitor must have proved
    GRACE_MS = 200,     // that it has in any case
    LOG_PAUSE_MS = 60000,
    EVENTS_AT_ONCE = 256,     // before the caller gets its turn
    LISTENER = MOST_VISITORS, // among the numbers of slots
};

typedef enum stage { SAYS_HELLO, PROVES, JOINS } stage;

typedef struct visitor {
    int socket; // -1: the slot is free
    cadre_deadline deadline;
    stage stage;
    int from; // after SAYS_HELLO
    size_t used;
    uint8_t said[CADRE_JOIN_BYTES]; // in this stage; JOIN is the longest
    uint8_t hello[CADRE_HELLO_BYTES];
    uint8_t reply[CADRE_REPLY_BYTES];
} visitor;

struct cadre_door {
    int listener;
    int epoll;
    bool resting; // there is no room: the listener is not looked at
    cadre_deadline next_log;
    int unlogged;
    cadre_door_rules rules;
    char name[32];
    uint8_t read_out[CADRE_JOIN_BYTES]; // what the last visitor said
    visitor visitors[MOST_VISITORS];
};

static bool watch(cadre_door *door, int fd, uint32_t slot)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = slot};
    return epoll_ctl(door->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

cadre_status cadre_door_open(int listener, const cadre_door_rules *rules,
    const char *name, cadre_door **out)
{
    cadre_door *door = cadre_alloc(sizeof(*door));
    if (door == NULL) {
        close(listener);
        return CADRE_ERR_NO_MEMORY;
    }
    door->listener = listener;
    door->rules = *rules;
    snprintf(door->name, sizeof(door->name), "%s", name);
    for (int i = 0; i < MOST_VISITORS; i++) {
        door->visitors[i].socket = -1;
    }
    door->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (door->epoll < 0 || !watch(door, listener, LISTENER)) {
        cadre_status status = cadre_fail_errno(
            CADRE_ERR_IO, errno, "%s cannot watch its listening socket", name);
        cadre_door_close(door);
        return status;
    }
    *out = door;
    return CADRE_OK;
}

void cadre_door_close(cadre_door *door)
{
    if (door == NULL) {
        return;
    }
    for (int i = 0; i < MOST_VISITORS; i++) {
        if (door->visitors[i].socket >= 0) {
            close(door->visitors[i].socket);
        }
    }
    if (door->epoll >= 0) {
        close(door->epoll);
    }
    close(door->listener);
    cadre_free(door);
}

int cadre_door_fd(const cadre_door *door)
{
    return door->epoll;
}

void cadre_door_turn_away(cadre_door *door, int socket, const char *why)
{
    close(socket);
    if (cadre_now_ns() < door->next_log) {
        door->unlogged++;
        return;
    }
    door->next_log = cadre_deadline_in_ms(LOG_PAUSE_MS);
    if (door->unlogged > 0) {
        cadre_log(CADRE_LOG_WARN, door->name,
            "closed a connection: %s (and %d before)", why, door->unlogged);
    } else {
        cadre_log(CADRE_LOG_WARN, door->name, "closed a connection: %s", why);
    }
    door->unlogged = 0;
}

// Sends a visitor away; why is NULL for those who are nobody's concern.
static void expel(cadre_door *door, visitor *v, const char *why)
{
    int socket = v->socket;
    v->socket = -1;
    if (why == NULL) {
        close(socket);
    } else {
        cadre_door_turn_away(door, socket, why);
    }
}

static const char no_rank[] = "what it says is nothing that a rank says";

// Of one who says no more.  A rank may have found that this is not its job; who
// has said nothing at all is not worth a line.
static const char *silence(const visitor *v)
{
    if (v->stage != SAYS_HELLO) {
        return "it has not proved that it belongs to this job";
    }
    return v->used == 0 ? NULL : no_rank;
}

// A free slot.  If there is none, that of the one who has waited for longest,
// unless a rank could not have been faster: then NULL.
static visitor *free_slot(cadre_door *door)
{
    visitor *oldest = &door->visitors[0];
    for (int i = 0; i < MOST_VISITORS; i++) {
        visitor *v = &door->visitors[i];
        if (v->socket < 0) {
            return v;
        }
        oldest = v->deadline < oldest->deadline ? v : oldest;
    }
    if (oldest->deadline > cadre_deadline_in_ms(PATIENCE_MS - GRACE_MS)) {
        return NULL;
    }
    expel(door, oldest, NULL);
    return oldest;
}

// Looks at the listener again at a later call.
static void rest(cadre_door *door)
{
    epoll_ctl(door->epoll, EPOLL_CTL_DEL, door->listener, NULL);
    door->resting = true;
}

static void let_in(cadre_door *door)
{
    for (int i = 0; i < MOST_VISITORS; i++) {
        visitor *v = free_slot(door);
        if (v == NULL) {
            rest(door);
            return;
        }
        int socket = cadre_socket_accept(door->listener);
        if (socket < 0 && (errno == EINTR || errno == ECONNABORTED)) {
            continue;
        }
        if (socket < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        }
        if (socket < 0) {
            rest(door); // no descriptors, most likely
            return;
        }
        v->socket = socket;
        v->stage = SAYS_HELLO;
        v->used = 0;
        v->deadline = cadre_deadline_in_ms(PATIENCE_MS);
        if (!watch(door, socket, (uint32_t)(v - door->visitors))) {
            expel(door, v, NULL);
        }
    }
}

// What is wrong with a hello that can be read; NULL: nothing.
static const char *objection(
    const cadre_door *door, const cadre_hello *hello, int socket)
{
    const cadre_door_rules *r = &door->rules;
    if (hello->to != r->to ||
        memcmp(hello->job_id, r->job_id, sizeof(r->job_id)) != 0 ||
        (r->to != CADRE_HUB && hello->generation != r->generation)) {
        return "it belongs to another job";
    }
    if (r->credentials->proof == CADRE_PROOF_USER &&
        !cadre_peer_is_local(socket)) {
        return "it comes from another host, and this rank has no secret";
    }
    if (hello->proof == r->credentials->proof) {
        return NULL;
    }
    return r->credentials->proof == CADRE_PROOF_SECRET
               ? "it has no secret"
               : "it does not prove itself in this job's way";
}

// A hello is complete: proves that this is the job, or expels.
static void hear_hello(cadre_door *door, visitor *v)
{
    cadre_hello hello;
    if (!cadre_hello_decode(v->said, &hello)) {
        expel(door, v, no_rank);
        return;
    }
    const char *why = objection(door, &hello, v->socket);
    if (why != NULL) {
        expel(door, v, why);
        return;
    }
    memcpy(v->hello, v->said, sizeof(v->hello));
    if (cadre_proof_reply(door->rules.credentials, v->hello,
            door->rules.generation, v->reply) != CADRE_OK ||
        cadre_socket_send(v->socket, v->reply, sizeof(v->reply), -1) !=
            (ssize_t)sizeof(v->reply)) {
        expel(door, v, NULL);
        return;
    }
    v->from = hello.from;
    v->stage = PROVES;
    v->used = 0;
}

// The visitor's proof is complete.  True when it is let in; or it is expelled,
// or has still to say what it wants of the hub.
static bool hear_proof(cadre_door *door, visitor *v)
{
    const cadre_credentials *c = door->rules.credentials;
    if (!cadre_proof_check_finish(c, v->hello, v->reply, v->said)) {
        expel(door, v, "it does not know this job's secret");
        return false;
    }
    if (!cadre_proof_check_peer(c, v->socket)) {
        expel(door, v, "it is not known to be a process of this user");
        return false;
    }
    v->stage = JOINS;
    v->used = 0;
    return door->rules.to != CADRE_HUB;
}

// Nothing of the hub's messages is looked at before the proof.
static bool hear_join(cadre_door *door, visitor *v)
{
    cadre_message m;
    size_t nbytes;
    if (!cadre_message_peek(v->said, v->used, &m, &nbytes) ||
        (nbytes > 0 &&
            (nbytes != CADRE_JOIN_BYTES || m.type != CADRE_MESSAGE_JOIN))) {
        expel(door, v, "what it says is not ours");
        return false;
    }
    return v->used == CADRE_JOIN_BYTES;
}

static size_t wanted_bytes(stage s)
{
    return s == SAYS_HELLO ? CADRE_HELLO_BYTES
           : s == PROVES   ? CADRE_MAC_BYTES
                           : CADRE_JOIN_BYTES;
}

// Reads what the visitor says; true when there is no more to say.
static bool hear(cadre_door *door, visitor *v)
{
    ssize_t n;
    size_t wanted = wanted_bytes(v->stage);
    do {
        n = recv(v->socket, v->said + v->used, wanted - v->used, 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return false;
    }
    if (n <= 0) {
        expel(door, v, silence(v)); // it has gone
        return false;
    }
    v->used += (size_t)n;
    switch (v->stage) {
    case SAYS_HELLO:
        if (!cadre_hello_begins(v->said, v->used)) {
            expel(door, v, no_rank);
        } else if (v->used == wanted) {
            hear_hello(door, v);
        }
        return false;
    case PROVES:
        return v->used == wanted && hear_proof(door, v);
    case JOINS:
        break;
    }
    return hear_join(door, v);
}

static void expel_the_late(cadre_door *door)
{
    int64_t now = cadre_now_ns();
    for (int i = 0; i < MOST_VISITORS; i++) {
        if (door->visitors[i].socket >= 0 &&
            door->visitors[i].deadline <= now) {
            expel(door, &door->visitors[i], silence(&door->visitors[i]));
        }
    }
    if (door->resting) {
        door->resting = !watch(door, door->listener, LISTENER);
    }
}

// Hands the visitor out, with what it said.
static void introduce(cadre_door *door, visitor *v, cadre_visitor *out)
{
    size_t nbytes;
    memcpy(door->read_out, v->said, v->used);
    if (v->used > 0) {
        (void)cadre_message_peek(door->read_out, v->used, &out->join, &nbytes);
    }
    epoll_ctl(door->epoll, EPOLL_CTL_DEL, v->socket, NULL);
    out->socket = v->socket;
    out->from = v->from;
    v->socket = -1;
}

bool cadre_door_next(cadre_door *door, cadre_visitor *out)
{
    struct epoll_event event;
    expel_the_late(door);
    for (int i = 0; i < EVENTS_AT_ONCE; i++) {
        if (epoll_wait(door->epoll, &event, 1, 0) != 1) {
            return false;
        }
        if (event.data.u32 == LISTENER) {
            let_in(door);
            continue;
        }
        visitor *v = &door->visitors[event.data.u32];
        if (hear(door, v)) {
            introduce(door, v, out);
            return true;
        }
    }
    return false;
}
