// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/hub_loop.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/random.h"
#include "base/socket.h"
#include "rendezvous/door.h"
#include "rendezvous/mailbox.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    DOOR = CADRE_MAX_RANKS, // among the numbers of ranks
    EVENTS_AT_ONCE = 64,
    MESSAGES_AT_ONCE = 16, // of one rank, before the others get their turn
};

typedef struct connection {
    cadre_mailbox box;
    bool joined;
    uint8_t in[CADRE_SMALL_MESSAGE_BYTES];
} connection;

struct cadre_hub_loop {
    cadre_hub *hub;
    int world_size;
    bool launched;
    int epoll;
    cadre_door *door; // NULL: there is none, or none any more
    int64_t next_tick_ms;
    bool welcomed;
    int64_t next_sign_ms; // of the hub's own life
    int pace_ms;          // between two of them

    uint8_t job_id[CADRE_JOB_ID_BYTES];
    uint64_t generation;
    uint8_t *welcome; // the message, lent to all connections
    size_t welcome_bytes;

    // Pairs of ranks that are still to be connected begin at (low, high); held
    // is high's end of a pair whose other end low has.
    int low;
    int high;
    int held;

    connection connections[]; // world_size of them
};

static int64_t now_ms(void)
{
    return cadre_now_ns() / 1000000;
}

static bool watch(cadre_hub_loop *loop, int fd, uint32_t number)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
    return epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static int n_addresses(const cadre_hub_loop *loop)
{
    return loop->launched ? 0 : loop->world_size;
}

static cadre_status furnish(
    cadre_hub_loop *loop, const cadre_hub_options *options)
{
    loop->welcome_bytes = CADRE_WELCOME_HEAD_BYTES +
                          (size_t)n_addresses(loop) * CADRE_ADDRESS_BYTES;
    loop->welcome = cadre_alloc(loop->welcome_bytes);
    if (loop->welcome == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    CADRE_TRY(cadre_hub_create(options, &loop->hub));
    CADRE_TRY(cadre_random_secret(loop->job_id, sizeof(loop->job_id)));
    CADRE_TRY(cadre_random_secret(&loop->generation, sizeof(loop->generation)));
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll < 0) {
        return cadre_fail_errno(CADRE_ERR_IO, errno, "the hub cannot be made");
    }
    return CADRE_OK;
}

static cadre_status create(
    const cadre_hub_options *options, cadre_hub_loop **out)
{
    int n = options->world_size;
    cadre_hub_loop *loop = cadre_alloc_flex(
        sizeof(*loop), (size_t)n, sizeof(loop->connections[0]));
    if (loop == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    loop->world_size = n;
    loop->launched = options->launched;
    loop->low = n; // nobody is to be connected
    loop->held = -1;
    loop->epoll = -1;
    loop->pace_ms = CADRE_MOST_PACE_MS;
    for (int r = 0; r < n; r++) {
        loop->connections[r].box.socket = -1;
        loop->connections[r].box.passed = -1;
    }

    cadre_status status = furnish(loop, options);
    if (status != CADRE_OK) {
        cadre_hub_loop_close(loop);
        return status;
    }
    *out = loop;
    return CADRE_OK;
}

cadre_status cadre_hub_loop_launch(
    int world_size, int timeout_ms, cadre_hub_loop **out)
{
    return create(&(cadre_hub_options){.world_size = world_size,
                      .launched = true,
                      .timeout_ms = timeout_ms},
        out);
}

cadre_status cadre_hub_loop_listen(int world_size, int listener,
    const cadre_credentials *credentials, cadre_hub_loop **out)
{
    cadre_hub_loop *loop;
    cadre_status status =
        create(&(cadre_hub_options){.world_size = world_size}, &loop);
    if (status != CADRE_OK) {
        close(listener);
        return status;
    }
    cadre_door_rules rules = {.credentials = credentials,
        .to = CADRE_HUB,
        .generation = loop->generation};
    status = cadre_door_open(listener, &rules, "hub", &loop->door);
    if (status == CADRE_OK && !watch(loop, cadre_door_fd(loop->door), DOOR)) {
        status = cadre_fail_errno(
            CADRE_ERR_IO, errno, "the hub cannot watch its door");
    }
    if (status != CADRE_OK) {
        cadre_hub_loop_close(loop);
        return status;
    }
    *out = loop;
    return CADRE_OK;
}

void cadre_hub_loop_close(cadre_hub_loop *loop)
{
    if (loop == NULL) {
        return;
    }
    for (int r = 0; r < loop->world_size; r++) {
        cadre_mailbox *box = &loop->connections[r].box;
        if (box->socket >= 0) {
            cadre_writer w = cadre_mailbox_writer(box);
            cadre_encode_plain(&w, CADRE_MESSAGE_GOODBYE);
            (void)cadre_mailbox_post(box, &w);
        }
        cadre_mailbox_close(box);
    }
    if (loop->held >= 0) {
        close(loop->held);
    }
    if (loop->epoll >= 0) {
        close(loop->epoll);
    }
    cadre_door_close(loop->door);
    cadre_hub_destroy(loop->hub);
    cadre_free(loop->welcome);
    cadre_free(loop);
}

static bool open_connection(cadre_hub_loop *loop, int rank, int socket)
{
    connection *c = &loop->connections[rank];
    cadre_mailbox_open(&c->box, socket, c->in, sizeof(c->in));
    return watch(loop, socket, (uint32_t)rank);
}

cadre_status cadre_hub_loop_connect(cadre_hub_loop *loop, int rank, int *socket)
{
    int ends[2];
    CADRE_TRY(cadre_socket_pair(ends));
    if (!open_connection(loop, rank, ends[0])) {
        int error = errno;
        close(ends[1]);
        return cadre_fail_errno(
            CADRE_ERR_IO, error, "the hub cannot watch rank %d", rank);
    }
    *socket = ends[1];
    return CADRE_OK;
}

// All have joined: everybody is told.  Those of one host are connected next.
static void welcome_all(cadre_hub_loop *loop)
{
    cadre_writer w = {
        .data = loop->welcome, .capacity = loop->welcome_bytes, .ok = true};
    cadre_welcome welcome = {.generation = loop->generation,
        .timeout_ms = cadre_hub_job_timeout_ms(loop->hub),
        .link = cadre_hub_link(loop->hub),
        .n_addresses = n_addresses(loop)};
    memcpy(welcome.job_id, loop->job_id, sizeof(welcome.job_id));
    cadre_encode_welcome(&w, &welcome);
    for (int r = 0; r < welcome.n_addresses; r++) {
        cadre_encode_address(&w, cadre_hub_address(loop->hub, r));
    }
    for (int r = 0; r < loop->world_size; r++) {
        if (loop->connections[r].box.socket >= 0) {
            cadre_mailbox_lend(&loop->connections[r].box, w.data, w.used);
        }
    }
    loop->welcomed = true;
    cadre_door_close(loop->door); // nobody else is to come
    loop->door = NULL;
    if (loop->launched) {
        loop->low = 0;
        loop->high = 1;
    }
}

// Sends one end of a pair.  False if it cannot be sent just now; if the rank is
// gone, it counts as sent.
static bool hand_out(cadre_hub_loop *loop, int rank, int peer, int end)
{
    cadre_mailbox *box = &loop->connections[rank].box;
    if (box->socket < 0) {
        return true;
    }
    if (cadre_mailbox_has_unsent(box)) {
        return false;
    }
    uint8_t data[CADRE_SMALL_MESSAGE_BYTES];
    cadre_writer w = {.data = data, .capacity = sizeof(data), .ok = true};
    cadre_encode_peer(&w, peer);
    ssize_t n = cadre_socket_send(box->socket, w.data, w.used, end);
    // Too many references: the system counts descriptors that are under way.
    return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK &&
                         errno != EINTR && errno != ETOOMANYREFS);
}

// Gives the lower rank its end of a new pair; the other end is held.
static bool make_pair(cadre_hub_loop *loop)
{
    if (cadre_mailbox_has_unsent(&loop->connections[loop->low].box)) {
        return false;
    }
    int ends[2];
    if (cadre_socket_pair(ends) != CADRE_OK) {
        cadre_hub_report(loop->hub, loop->low, CADRE_ERR_IO, -1,
            cadre_error_text(), now_ms());
        loop->low = loop->world_size;
        return false;
    }
    bool sent = hand_out(loop, loop->low, loop->high, ends[0]);
    close(ends[0]);
    if (!sent) {
        close(ends[1]);
        return false;
    }
    loop->held = ends[1];
    return true;
}

// Connects ranks with one another, as far as their sockets take it just now.
static void connect_pairs(cadre_hub_loop *loop)
{
    while (loop->low < loop->world_size - 1) {
        if (loop->held < 0 && !make_pair(loop)) {
            return;
        }
        if (!hand_out(loop, loop->high, loop->low, loop->held)) {
            return;
        }
        close(loop->held);
        loop->held = -1;
        if (++loop->high == loop->world_size) {
            loop->low++;
            loop->high = loop->low + 1;
        }
    }
}

static void post_verdict(cadre_mailbox *box, const cadre_verdict *v)
{
    cadre_writer w = cadre_mailbox_writer(box);
    cadre_encode_verdict(
        &w, CADRE_MESSAGE_VERDICT, v->status, v->rank, v->text);
    (void)cadre_mailbox_post(box, &w);
}

static void tell_verdict(cadre_hub_loop *loop)
{
    for (int r = 0; r < loop->world_size; r++) {
        connection *c = &loop->connections[r];
        if (c->joined && c->box.socket >= 0) {
            post_verdict(&c->box, cadre_hub_verdict(loop->hub));
        }
    }
}

static void act(cadre_hub_loop *loop)
{
    int rank;
    for (;;) {
        switch (cadre_hub_next(loop->hub, &rank)) {
        case CADRE_HUB_NOTHING:
            return;
        case CADRE_HUB_WELCOME:
            welcome_all(loop);
            break;
        case CADRE_HUB_VERDICT:
            tell_verdict(loop);
            break;
        case CADRE_HUB_RELEASE:
            cadre_mailbox_close(&loop->connections[rank].box);
            break;
        }
    }
}

static void hang_up(cadre_hub_loop *loop, int rank)
{
    cadre_mailbox_close(&loop->connections[rank].box);
    cadre_hub_hangup(loop->hub, rank, now_ms());
}

// A rank that was launched says who it is, over the connection it was given.
static void take_launched(cadre_hub_loop *loop, int rank, cadre_message *m)
{
    connection *c = &loop->connections[rank];
    cadre_hub_join join;
    cadre_verdict refusal = {.status = CADRE_ERR_DESYNC, .rank = -1};
    if (!cadre_decode_join(m, &join)) {
        hang_up(loop, rank);
        return;
    }
    cadre_status status = CADRE_OK;
    if (join.rank != rank) {
        status = cadre_fail(CADRE_ERR_DESYNC,
            "the launcher started rank %d, but it says that it is rank %d",
            rank, join.rank);
    } else {
        status = cadre_hub_join_rank(loop->hub, &join, now_ms());
    }
    c->joined = status == CADRE_OK;
    if (status != CADRE_OK) {
        refusal.status = status;
        snprintf(refusal.text, sizeof(refusal.text), "%s", cadre_error_text());
        post_verdict(&c->box, &refusal);
    }
}

static void take_message(cadre_hub_loop *loop, int rank, cadre_message *m)
{
    cadre_verdict said;
    if (!loop->connections[rank].joined) {
        take_launched(loop, rank, m);
        return;
    }
    switch (m->type) {
    case CADRE_MESSAGE_ALIVE:
        cadre_hub_alive(loop->hub, rank);
        return;
    case CADRE_MESSAGE_GOODBYE:
        cadre_hub_goodbye(loop->hub, rank, now_ms());
        act(loop); // which may close the connection
        return;
    case CADRE_MESSAGE_REPORT:
        if (cadre_decode_verdict(m, &said)) {
            cadre_hub_report(
                loop->hub, rank, said.status, said.rank, said.text, now_ms());
            return;
        }
        break;
    case CADRE_MESSAGE_JOIN:
    case CADRE_MESSAGE_WELCOME:
    case CADRE_MESSAGE_PEER:
    case CADRE_MESSAGE_VERDICT:
        break;
    }
    cadre_log(
        CADRE_LOG_WARN, "hub", "rank %d sent what a rank does not send", rank);
    hang_up(loop, rank);
}

static void hear_rank(cadre_hub_loop *loop, int rank)
{
    cadre_mailbox *box = &loop->connections[rank].box;
    for (int i = 0; i < MESSAGES_AT_ONCE && box->socket >= 0; i++) {
        cadre_message m;
        switch (cadre_mailbox_receive(box, &m)) {
        case CADRE_MAIL_NONE:
            return;
        case CADRE_MAIL_MESSAGE:
            take_message(loop, rank, &m);
            break;
        case CADRE_MAIL_GARBAGE:
            cadre_log(CADRE_LOG_WARN, "hub", "rank %d sent garbage", rank);
            hang_up(loop, rank);
            return;
        case CADRE_MAIL_ENDED:
            hang_up(loop, rank);
            return;
        }
    }
}

// Sends a visitor away with the reason.
static void refuse(cadre_hub_loop *loop, int socket, cadre_status status)
{
    char why[CADRE_FAIL_TEXT_BYTES];
    snprintf(why, sizeof(why), "%s", cadre_error_text());
    uint8_t data[CADRE_SMALL_MESSAGE_BYTES];
    cadre_writer w = {.data = data, .capacity = sizeof(data), .ok = true};
    cadre_encode_verdict(&w, CADRE_MESSAGE_VERDICT, status, -1, why);
    (void)cadre_socket_send(socket, w.data, w.used, -1);
    cadre_door_turn_away(loop->door, socket, why);
}

// Lets in who has proved that it belongs to the job, as the rank it then said.
static void welcome_visitor(cadre_hub_loop *loop, cadre_visitor *v)
{
    cadre_hub_join join;
    if (!cadre_decode_join(&v->join, &join) || join.rank != v->from) {
        cadre_door_turn_away(loop->door, v->socket, "what it says is not ours");
        return;
    }
    cadre_status status = cadre_hub_join_rank(loop->hub, &join, now_ms());
    if (status != CADRE_OK) {
        refuse(loop, v->socket, status);
        return;
    }
    loop->connections[join.rank].joined = true;
    int pace = cadre_pace_ms(join.timeout_ms);
    loop->pace_ms = pace < loop->pace_ms ? pace : loop->pace_ms;
    if (!open_connection(loop, join.rank, v->socket)) {
        hang_up(loop, join.rank);
    }
}

static void welcome_visitors(cadre_hub_loop *loop)
{
    cadre_visitor visitor;
    while (loop->door != NULL && cadre_door_next(loop->door, &visitor)) {
        welcome_visitor(loop, &visitor);
    }
}

// A hub that lives in rank 0 can be stopped with it, which the others are to
// notice.  A launcher may be stopped from its terminal, and the job goes on.
static void give_signs(cadre_hub_loop *loop, int64_t now)
{
    if (loop->launched || !loop->welcomed || now < loop->next_sign_ms) {
        return;
    }
    loop->next_sign_ms = now + loop->pace_ms;
    for (int r = 0; r < loop->world_size; r++) {
        cadre_mailbox *box = &loop->connections[r].box;
        if (box->socket >= 0 && !cadre_mailbox_has_unsent(box)) {
            cadre_writer w = cadre_mailbox_writer(box);
            cadre_encode_plain(&w, CADRE_MESSAGE_ALIVE);
            (void)cadre_mailbox_post(box, &w);
        }
    }
}

void cadre_hub_loop_run(cadre_hub_loop *loop)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    int n = EVENTS_AT_ONCE;
    while (n == EVENTS_AT_ONCE) {
        n = epoll_wait(loop->epoll, events, EVENTS_AT_ONCE, 0);
        for (int i = 0; i < n; i++) {
            if (events[i].data.u32 == DOOR) {
                welcome_visitors(loop);
            } else {
                hear_rank(loop, (int)events[i].data.u32);
            }
        }
    }
    int64_t now = now_ms();
    if (now >= loop->next_tick_ms) {
        loop->next_tick_ms = now + CADRE_HUB_TICK_MS;
        welcome_visitors(loop); // sends the silent ones away
        cadre_hub_tick(loop->hub, now);
        give_signs(loop, now);
    }
    act(loop);
    for (int r = 0; r < loop->world_size; r++) {
        cadre_mailbox_flush(&loop->connections[r].box);
    }
    connect_pairs(loop);
    act(loop);
}

void cadre_hub_loop_started(
    cadre_hub_loop *loop, int rank, const char *host, int pid)
{
    cadre_hub_started(loop->hub, rank, host, pid);
}

bool cadre_hub_loop_ended(
    cadre_hub_loop *loop, int rank, const cadre_ending *ending)
{
    bool well = cadre_hub_ended(loop->hub, rank, ending);
    act(loop);
    return well;
}

int cadre_hub_loop_fd(const cadre_hub_loop *loop)
{
    return loop->epoll;
}

const cadre_verdict *cadre_hub_loop_verdict(const cadre_hub_loop *loop)
{
    return cadre_hub_verdict(loop->hub);
}

bool cadre_hub_loop_is_empty(const cadre_hub_loop *loop)
{
    return cadre_hub_is_empty(loop->hub);
}
