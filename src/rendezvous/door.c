// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/door.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/socket.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    MOST_VISITORS = 64,
    PATIENCE_MS = 3000, // until a visitor must have spoken
    LOG_PAUSE_MS = 1000,
    LISTENER = MOST_VISITORS, // among the numbers of slots
};

typedef struct visitor {
    int socket; // -1: the slot is free
    cadre_deadline deadline;
    size_t used;
    uint8_t said[CADRE_JOIN_BYTES]; // the longer of the two messages
} visitor;

struct cadre_door {
    int listener;
    int epoll;
    bool resting; // no descriptors are left: the listener is not looked at
    cadre_deadline next_log;
    int unlogged;
    cadre_message_type expected;
    size_t expected_bytes;
    char name[32];
    uint8_t read_out[CADRE_JOIN_BYTES]; // what the last visitor said
    visitor visitors[MOST_VISITORS];
};

static bool watch(cadre_door *door, int fd, uint32_t slot)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = slot};
    return epoll_ctl(door->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

cadre_status cadre_door_open(int listener, cadre_message_type expected,
    const char *name, cadre_door **out)
{
    cadre_door *door = cadre_alloc(sizeof(*door));
    if (door == NULL) {
        close(listener);
        return CADRE_ERR_NO_MEMORY;
    }
    door->listener = listener;
    door->expected = expected;
    door->expected_bytes =
        expected == CADRE_MESSAGE_JOIN ? CADRE_JOIN_BYTES : CADRE_HELLO_BYTES;
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

static void expel(cadre_door *door, visitor *v, const char *why)
{
    int socket = v->socket;
    v->socket = -1;
    cadre_door_turn_away(door, socket, why);
}

// A free slot; if there is none, that of who has been silent for longest.
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
    expel(door, oldest, "too many are waiting");
    return oldest;
}

static void let_in(cadre_door *door)
{
    for (int i = 0; i < MOST_VISITORS; i++) {
        int socket = cadre_socket_accept(door->listener);
        if (socket < 0 && (errno == EINTR || errno == ECONNABORTED)) {
            continue;
        }
        if (socket < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return;
        }
        if (socket < 0) {
            // No descriptors, most likely: look again at the next call.
            epoll_ctl(door->epoll, EPOLL_CTL_DEL, door->listener, NULL);
            door->resting = true;
            return;
        }
        visitor *v = free_slot(door);
        v->socket = socket;
        v->used = 0;
        v->deadline = cadre_deadline_in_ms(PATIENCE_MS);
        if (!watch(door, socket, (uint32_t)(v - door->visitors))) {
            expel(door, v, "it cannot be watched");
        }
    }
}

// Reads what the visitor says; true when it is complete and was expected.
static bool hear(cadre_door *door, visitor *v, cadre_message *out)
{
    ssize_t n;
    do {
        n = recv(
            v->socket, v->said + v->used, door->expected_bytes - v->used, 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return false;
    }
    if (n <= 0) {
        expel(door, v, "it ended before it said who it is");
        return false;
    }
    v->used += (size_t)n;
    size_t nbytes;
    if (!cadre_message_peek(v->said, v->used, out, &nbytes) ||
        (nbytes > 0 &&
            (nbytes != door->expected_bytes || out->type != door->expected))) {
        expel(door, v, "what it says is not ours");
        return false;
    }
    return v->used == door->expected_bytes;
}

static void expel_the_silent(cadre_door *door)
{
    int64_t now = cadre_now_ns();
    for (int i = 0; i < MOST_VISITORS; i++) {
        if (door->visitors[i].socket >= 0 &&
            door->visitors[i].deadline <= now) {
            expel(door, &door->visitors[i], "it was silent for too long");
        }
    }
    if (door->resting) {
        door->resting = !watch(door, door->listener, LISTENER);
    }
}

// Hands the visitor out, with what it said.
static void introduce(
    cadre_door *door, visitor *v, int *socket, cadre_message *out)
{
    size_t nbytes;
    memcpy(door->read_out, v->said, v->used);
    (void)cadre_message_peek(door->read_out, v->used, out, &nbytes);
    epoll_ctl(door->epoll, EPOLL_CTL_DEL, v->socket, NULL);
    *socket = v->socket;
    v->socket = -1;
}

bool cadre_door_next(cadre_door *door, int *socket, cadre_message *out)
{
    struct epoll_event event;
    expel_the_silent(door);
    while (epoll_wait(door->epoll, &event, 1, 0) == 1) {
        if (event.data.u32 == LISTENER) {
            let_in(door);
            continue;
        }
        visitor *v = &door->visitors[event.data.u32];
        if (hear(door, v, out)) {
            introduce(door, v, socket, out);
            return true;
        }
    }
    return false;
}
