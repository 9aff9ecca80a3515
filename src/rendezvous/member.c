// SPDX-License-Identifier: Apache-2.0
//
// Locks: mu is held while the socket to the hub is written to, which never
// blocks; nothing else is locked meanwhile.

#include "rendezvous/member.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "rendezvous/host.h"
#include "rendezvous/mailbox.h"
#include "rendezvous/mesh.h"
#include "rendezvous/reach.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    LEAVE_MS = 1000, // the most that leaving takes
    GRACE_MS = 1000, // until a hub that should have spoken is given up
};

struct cadre_member {
    int rank;
    int world_size;
    const char *hub_name;          // for people
    int hub_rank;                  // that runs it, or -1: a launcher
    cadre_host *host;              // the hub, if this rank runs it
    cadre_credentials credentials; // while this rank joins, or runs the hub
    uint64_t generation;
    int timeout_ms;
    int pace_ms;

    cadre_deadline next_sign; // of life
    bool hub_left;            // it said goodbye
    bool deaf;                // it is gone
    int64_t hub_silent_ms;
    int wake; // an eventfd

    pthread_mutex_t mu;
    cadre_mailbox box; // its sending half is guarded by mu
    uint8_t in[];
};

// What is known while a rank joins.
typedef struct joining {
    cadre_member *member;
    cadre_mesh *mesh; // NULL: the hub hands out connections
    int *sockets;
    cadre_link link; // wished; once welcomed, chosen
    int n_connected; // by the hub
    bool welcomed;
    bool told; // the hub knows why this fails: it said so itself
} joining;

static void set_timeout(cadre_member *m, int timeout_ms)
{
    m->timeout_ms = timeout_ms;
    m->pace_ms = cadre_pace_ms(timeout_ms);
    m->next_sign = 0; // at the old pace it might come too late
}

static cadre_status create(
    const cadre_place *place, int timeout_ms, cadre_member **out)
{
    size_t longest = CADRE_WELCOME_HEAD_BYTES +
                     (size_t)place->world_size * CADRE_ADDRESS_BYTES;
    size_t nbytes = longest > CADRE_SMALL_MESSAGE_BYTES
                        ? longest
                        : CADRE_SMALL_MESSAGE_BYTES;
    cadre_member *m = cadre_alloc_flex(sizeof(*m), nbytes, 1);
    if (m == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    m->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->wake < 0) {
        cadre_status status =
            cadre_fail_errno(CADRE_ERR_IO, errno, "no eventfd is left");
        cadre_free(m);
        return status;
    }
    m->rank = place->rank;
    m->world_size = place->world_size;
    bool launched = strncmp(place->store, "fd:", 3) == 0;
    m->hub_name = launched ? "the launcher" : "rank 0, where the ranks meet,";
    m->hub_rank = launched ? -1 : 0;
    set_timeout(m, timeout_ms);
    pthread_mutex_init(&m->mu, NULL);
    cadre_mailbox_open(&m->box, -1, m->in, nbytes);
    *out = m;
    return CADRE_OK;
}

static void release(cadre_member *m)
{
    cadre_mailbox_close(&m->box);
    cadre_credentials_drop(&m->credentials);
    close(m->wake);
    pthread_mutex_destroy(&m->mu);
    cadre_free(m);
}

static bool post_plain(cadre_member *m, cadre_message_type type)
{
    cadre_writer w = cadre_mailbox_writer(&m->box);
    cadre_encode_plain(&w, type);
    return cadre_mailbox_post(&m->box, &w);
}

// Sends what could not be sent before, and a sign of life if one is due.
static void give_sign(cadre_member *m)
{
    int64_t now = cadre_now_ns();
    pthread_mutex_lock(&m->mu);
    cadre_mailbox_flush(&m->box);
    if (now >= m->next_sign && !cadre_mailbox_has_unsent(&m->box)) {
        (void)post_plain(m, CADRE_MESSAGE_ALIVE);
        m->next_sign = cadre_deadline_in_ms(m->pace_ms);
    }
    pthread_mutex_unlock(&m->mu);
}

static void say_join(const joining *j, int timeout_ms, cadre_deadline deadline)
{
    cadre_member *m = j->member;
    cadre_hub_join join = {.rank = m->rank,
        .world_size = m->world_size,
        .timeout_ms = timeout_ms,
        .patience_ms = cadre_deadline_left_ms(deadline, INT32_MAX),
        .pid = (int)getpid(),
        .offer.wish = j->link};
    if (gethostname(join.host, sizeof(join.host) - 1) != 0) {
        snprintf(join.host, sizeof(join.host), "unknown");
    }
    cadre_machine_text(join.offer.machine);
    if (j->mesh != NULL) {
        cadre_mesh_addresses(j->mesh, join.address, join.offer.local);
    }
    pthread_mutex_lock(&m->mu);
    cadre_writer w = cadre_mailbox_writer(&m->box);
    cadre_encode_join(&w, &join);
    (void)cadre_mailbox_post(&m->box, &w);
    pthread_mutex_unlock(&m->mu);
}

static cadre_status not_a_hub(const cadre_member *m)
{
    return cadre_fail(CADRE_ERR_DESYNC,
        "rank %d got an answer that does not come from a hub of this version",
        m->rank);
}

static cadre_status take_welcome(joining *j, cadre_message *message)
{
    cadre_welcome w;
    int n = j->member->world_size;
    if (!cadre_decode_welcome(message, &w) || j->welcomed ||
        w.n_addresses != (j->mesh == NULL ? 0 : n)) {
        return not_a_hub(j->member);
    }
    // The generation was proved, if this rank had to look for the hub.
    if (j->mesh != NULL && w.generation != j->member->generation) {
        return not_a_hub(j->member);
    }
    j->welcomed = true;
    j->member->generation = w.generation;
    j->link = w.link;
    if (w.timeout_ms > 0) {
        set_timeout(j->member, w.timeout_ms);
    }
    if (j->mesh != NULL) {
        CADRE_TRY(cadre_mesh_begin(j->mesh, &j->member->credentials, w.job_id,
            w.generation, w.link == CADRE_LINK_SHM));
    }
    for (int r = 0; r < w.n_addresses; r++) {
        char address[CADRE_ADDRESS_BYTES];
        if (!cadre_decode_address(message, address)) {
            return not_a_hub(j->member);
        }
        CADRE_TRY(cadre_mesh_connect(j->mesh, r, address));
    }
    return CADRE_OK;
}

static cadre_status take_peer(joining *j, cadre_message *message)
{
    int r;
    if (!cadre_decode_peer(message, &r) || r >= j->member->world_size ||
        r == j->member->rank || j->sockets[r] >= 0 || j->mesh != NULL) {
        return not_a_hub(j->member);
    }
    j->sockets[r] = cadre_mailbox_take_passed(&j->member->box);
    if (j->sockets[r] < 0) {
        return cadre_fail(CADRE_ERR_IO,
            "rank %d did not get its connection to rank %d: is the limit of "
            "open files too low?",
            j->member->rank, r);
    }
    j->n_connected++;
    return CADRE_OK;
}

static cadre_status take_message(joining *j, cadre_message *message)
{
    cadre_verdict v;
    switch (message->type) {
    case CADRE_MESSAGE_WELCOME:
        return take_welcome(j, message);
    case CADRE_MESSAGE_PEER:
        return take_peer(j, message);
    case CADRE_MESSAGE_VERDICT:
        if (cadre_decode_verdict(message, &v)) {
            j->told = true;
            return cadre_fail(cadre_verdict_status(v.status), "%s", v.text);
        }
        break;
    case CADRE_MESSAGE_ALIVE:
        return CADRE_OK;
    case CADRE_MESSAGE_GOODBYE:
    case CADRE_MESSAGE_JOIN:
    case CADRE_MESSAGE_REPORT:
        break;
    }
    return not_a_hub(j->member);
}

static cadre_status hear_hub(joining *j)
{
    cadre_member *m = j->member;
    for (;;) {
        cadre_message message;
        switch (cadre_mailbox_receive(&m->box, &message)) {
        case CADRE_MAIL_NONE:
            return CADRE_OK;
        case CADRE_MAIL_MESSAGE:
            CADRE_TRY(take_message(j, &message));
            break;
        case CADRE_MAIL_GARBAGE:
            return not_a_hub(m);
        case CADRE_MAIL_ENDED:
            return cadre_fail(CADRE_ERR_PEER_LOST,
                "rank %d lost %s while the ranks gathered", m->rank,
                m->hub_name);
        }
    }
}

static bool is_connected(const joining *j)
{
    return j->welcomed &&
           (j->mesh != NULL ? cadre_mesh_is_complete(j->mesh)
                            : j->n_connected == j->member->world_size - 1);
}

// Waits until all have joined and this rank is connected to each of them.
static cadre_status gather(joining *j, cadre_deadline deadline, int *suspect)
{
    cadre_member *m = j->member;
    for (;;) {
        give_sign(m);
        CADRE_TRY(hear_hub(j));
        if (j->welcomed && j->mesh != NULL) {
            CADRE_TRY(cadre_mesh_run(j->mesh, suspect));
        }
        if (is_connected(j)) {
            return CADRE_OK;
        }
        if (cadre_now_ns() >= deadline) {
            return cadre_fail(CADRE_ERR_TIMEOUT,
                "rank %d waited in vain for %s to %s", m->rank, m->hub_name,
                j->welcomed ? "connect the ranks" : "gather the ranks");
        }
        // The mesh is quiet until the others' addresses are known.
        struct pollfd fds[2] = {{.fd = m->box.socket, .events = POLLIN},
            {.fd = j->welcomed && j->mesh != NULL ? cadre_mesh_fd(j->mesh) : -1,
                .events = POLLIN}};
        (void)poll(fds, 2, cadre_deadline_left_ms(deadline, m->pace_ms));
    }
}

// One of a job's ranks says it: the one that listens for the others.
static void warn_of_trust(const cadre_member *m)
{
    if (m->credentials.proof == CADRE_PROOF_NONE) {
        cadre_log(CADRE_LOG_WARN, "hub",
            "CADRE_AUTH=none: whoever reaches this job's ports can join it");
    }
}

static cadre_status join(const cadre_place *place, int timeout_ms,
    cadre_deadline deadline, joining *j, int *suspect)
{
    cadre_member *m = j->member;
    CADRE_TRY(cadre_credentials_load(place, deadline, &m->credentials));
    if (place->hosts_hub) {
        warn_of_trust(m);
        CADRE_TRY(cadre_host_start(place, &m->credentials, &m->host));
    }
    CADRE_TRY(cadre_reach_hub(
        place, &m->credentials, deadline, &m->box.socket, &m->generation));
    if (m->hub_rank >= 0) {
        CADRE_TRY(
            cadre_mesh_open(m->box.socket, m->rank, m->world_size, &j->mesh));
    }
    say_join(j, timeout_ms, deadline);
    // The hub says who is missing when the deadline has passed.
    cadre_deadline last = deadline > CADRE_NO_DEADLINE - GRACE_MS * 1000000LL
                              ? deadline
                              : deadline + GRACE_MS * 1000000LL;
    CADRE_TRY(gather(j, last, suspect));
    if (j->mesh != NULL) {
        cadre_mesh_take_sockets(j->mesh, j->sockets);
    }
    return CADRE_OK;
}

// Others should not have to wait for a rank that could not join.
static void give_up(joining *j, cadre_status status, int suspect)
{
    cadre_member *m = j->member;
    char text[CADRE_FAIL_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", cadre_error_text());
    for (int r = 0; r < m->world_size; r++) {
        if (j->sockets[r] >= 0) {
            close(j->sockets[r]);
            j->sockets[r] = -1;
        }
    }
    if (m->box.socket >= 0 && !j->told) {
        cadre_member_report(m, status, suspect, text);
    }
    cadre_member_leave(m);
    (void)cadre_fail(status, "%s", text);
}

cadre_status cadre_member_join(const cadre_place *place, int timeout_ms,
    cadre_deadline deadline, cadre_link *link, int *sockets, cadre_member **out)
{
    joining j = {.sockets = sockets, .link = *link};
    int suspect = -1;
    CADRE_TRY(create(place, timeout_ms, &j.member));
    for (int r = 0; r < place->world_size; r++) {
        sockets[r] = -1;
    }
    cadre_status status = join(place, timeout_ms, deadline, &j, &suspect);
    cadre_mesh_close(j.mesh);
    if (status != CADRE_OK) {
        give_up(&j, status, suspect);
        return status;
    }
    if (j.member->host == NULL) {
        cadre_credentials_drop(&j.member->credentials);
    }
    *link = j.link;
    *out = j.member;
    return CADRE_OK;
}

uint64_t cadre_member_generation(const cadre_member *member)
{
    return member->generation;
}

// The hub is lost and has not said goodbye: that is the verdict.
static void judge_hub(cadre_member *m, const char *how, cadre_verdict *verdict)
{
    m->deaf = true;
    verdict->status = CADRE_ERR_PEER_LOST;
    verdict->rank = m->hub_rank;
    snprintf(verdict->text, sizeof(verdict->text), "%s %s", m->hub_name, how);
}

// Rank 0 can be stopped, and the hub with it.  What is counted is time that
// this rank was itself awake for, as the hub does.
static bool hub_is_silent(
    cadre_member *m, int64_t passed_ms, cadre_verdict *verdict)
{
    if (m->hub_rank < 0 || m->host != NULL || m->hub_left || m->deaf) {
        return false;
    }
    int64_t most = 2 * (int64_t)m->pace_ms;
    m->hub_silent_ms += passed_ms < most ? passed_ms : most;
    if (m->hub_silent_ms < m->timeout_ms) {
        return false;
    }
    char how[64];
    snprintf(how, sizeof(how), "gave no sign of life for %d ms", m->timeout_ms);
    judge_hub(m, how, verdict);
    return true;
}

// True when there is a verdict.
static bool hear_verdict(cadre_member *m, cadre_verdict *verdict)
{
    while (!m->deaf) {
        cadre_message message;
        switch (cadre_mailbox_receive(&m->box, &message)) {
        case CADRE_MAIL_NONE:
            return false;
        case CADRE_MAIL_MESSAGE:
            m->hub_silent_ms = 0;
            if (message.type == CADRE_MESSAGE_VERDICT &&
                cadre_decode_verdict(&message, verdict)) {
                return true;
            }
            m->hub_left = m->hub_left || message.type == CADRE_MESSAGE_GOODBYE;
            break;
        case CADRE_MAIL_GARBAGE:
        case CADRE_MAIL_ENDED:
            if (!m->hub_left) {
                judge_hub(m, "is gone", verdict);
                return true;
            }
            m->deaf = true;
            break;
        }
    }
    return false;
}

bool cadre_member_listen(
    cadre_member *member, cadre_deadline deadline, cadre_verdict *verdict)
{
    int64_t asleep_ns = 0;
    for (;;) {
        give_sign(member);
        if (hear_verdict(member, verdict) ||
            hub_is_silent(member, asleep_ns / 1000000, verdict)) {
            return true;
        }
        int64_t began = cadre_now_ns();
        struct pollfd fds[2] = {
            {.fd = member->deaf ? -1 : member->box.socket, .events = POLLIN},
            {.fd = member->wake, .events = POLLIN}};
        (void)poll(fds, 2, cadre_deadline_left_ms(deadline, member->pace_ms));
        asleep_ns = cadre_now_ns() - began;
        if (fds[1].revents != 0) {
            uint64_t count;
            (void)!read(member->wake, &count, sizeof(count));
            return false;
        }
        if (cadre_now_ns() >= deadline) {
            return false;
        }
    }
}

void cadre_member_report(
    cadre_member *member, cadre_status status, int suspect, const char *text)
{
    pthread_mutex_lock(&member->mu);
    cadre_writer w = cadre_mailbox_writer(&member->box);
    cadre_encode_verdict(&w, CADRE_MESSAGE_REPORT, status, suspect, text);
    // If there is no room, the hub has not read for long, and will not now.
    (void)cadre_mailbox_post(&member->box, &w);
    pthread_mutex_unlock(&member->mu);
}

void cadre_member_wake(cadre_member *member)
{
    uint64_t one = 1;
    (void)!write(member->wake, &one, sizeof(one));
}

// The hub answers a goodbye by closing the connection.
static void say_goodbye(cadre_member *m, cadre_deadline deadline)
{
    if (m->box.socket < 0 || m->deaf) {
        return;
    }
    pthread_mutex_lock(&m->mu);
    (void)post_plain(m, CADRE_MESSAGE_GOODBYE);
    pthread_mutex_unlock(&m->mu);
    while (!m->deaf && cadre_now_ns() < deadline) {
        cadre_message message;
        cadre_mail mail = cadre_mailbox_receive(&m->box, &message);
        m->deaf = mail == CADRE_MAIL_ENDED || mail == CADRE_MAIL_GARBAGE;
        if (mail == CADRE_MAIL_NONE) {
            struct pollfd p = {.fd = m->box.socket, .events = POLLIN};
            (void)poll(&p, 1, cadre_deadline_left_ms(deadline, m->pace_ms));
            cadre_mailbox_flush(&m->box);
        }
    }
}

void cadre_member_leave(cadre_member *member)
{
    if (member == NULL) {
        return;
    }
    cadre_deadline deadline = cadre_deadline_in_ms(LEAVE_MS);
    say_goodbye(member, deadline);
    cadre_mailbox_close(&member->box);
    cadre_host_stop(member->host, deadline);
    release(member);
}
