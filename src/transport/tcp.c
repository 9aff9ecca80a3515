// SPDX-License-Identifier: Apache-2.0
//
// Connected stream sockets, TCP or Unix: one per peer.
//
// A frame is a header of 64 bytes, the payload and, between hosts, its checksum
// (docs/wire-protocol.md).  A socket is read only while a receive is posted for
// its peer, so a fast sender is held back by the kernel's buffers and nothing is
// stored here.  Linux: POLLRDHUP and eventfd.
//
// Invariant: the head of each queue is the only transfer that is under way;
//            `moved` of it counts header, payload and checksum.

#define _GNU_SOURCE // POLLRDHUP

#include "transport/transport.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/peer.h"
#include "base/socket.h"
#include "base/thread.h"
#include "transport/frame.h"
#include "transport/lane.h"
#include "transport/spin.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    // poll() is told milliseconds as an int; a longer wait wakes once a day.
    MAX_SLEEP_MS = 24 * 60 * 60 * 1000,
    // Room for the part of a few million gradients that goes to one peer.
    UNIX_BUFFER_BYTES = 4 << 20,
};

typedef struct tcp_peer {
    int socket;  // -1: this rank itself
    bool checks; // payloads to it get a checksum
    cadre_lane sends;
    cadre_lane receives;
} tcp_peer;

typedef struct tcp {
    cadre_transport base;
    int wake_event;
    cadre_spin spin;
    struct pollfd *polled; // one per rank, and the wake event
    tcp_peer peers[];
} tcp;

static tcp *as_tcp(cadre_transport *t)
{
    return (tcp *)t;
}

// Why a peer is lost: an errno value, or 0 when it closed its end.
static cadre_status fail_lost(tcp *t, int peer, int error)
{
    t->base.failed_peer = peer;
    if (error == 0 || error == EPIPE) {
        return cadre_fail(
            CADRE_ERR_PEER_LOST, "rank %d has closed its connection", peer);
    }
    return cadre_fail_errno(
        CADRE_ERR_PEER_LOST, error, "the connection to rank %d broke", peer);
}

static bool would_block(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

// An empty payload needs no checksum: the header has its own.
static size_t check_bytes_of(const tcp_peer *p, const cadre_transfer *x)
{
    return p->checks && x->nbytes > 0 ? CADRE_FRAME_CHECK_BYTES : 0;
}

// Makes the header of the transfer that has come to the head.
static void begin_send(tcp *t, tcp_peer *p)
{
    const cadre_transfer *x = p->sends.queue.head;
    if (x == NULL) {
        return;
    }
    p->sends.check_bytes = check_bytes_of(p, x);
    p->sends.crc = 0;
    cadre_frame frame = {
        .generation = t->base.generation,
        .call = *x->call,
        .nbytes = x->nbytes,
        .sender = t->base.rank,
        .checked = p->sends.check_bytes > 0,
    };
    cadre_frame_encode(&frame, p->sends.header);
}

// Sends to a peer until its socket takes no more.
static cadre_status send_some(tcp *t, int peer, bool *moved)
{
    tcp_peer *p = &t->peers[peer];
    cadre_lane *l = &p->sends;
    while (l->queue.head != NULL) {
        cadre_transfer *x = l->queue.head;
        struct iovec vectors[CADRE_LANE_VECTORS];
        cadre_store_u32(l->check, l->crc); // final once the payload is moved
        int n = cadre_lane_lay_out(x, l, vectors);
        struct msghdr message = {
            .msg_iov = vectors,
            .msg_iovlen = (size_t)n,
        };
        // A checksum is not worth a packet of its own.
        int more =
            l->check_bytes > 0 && !cadre_lane_has_payload(x) ? MSG_MORE : 0;
        ssize_t sent =
            sendmsg(p->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT | more);
        if (sent < 0) {
            return would_block(errno) ? CADRE_OK : fail_lost(t, peer, errno);
        }
        *moved = true;
        cadre_lane_account(x, l, (size_t)sent);
        if (cadre_lane_is_done(x, l)) {
            cadre_queue_pop(&l->queue)->done = true;
            begin_send(t, p);
        } else if ((size_t)sent < cadre_lane_total(vectors, n)) {
            return CADRE_OK;
        }
    }
    return CADRE_OK;
}

// Where one frame is wrong, there is no telling where the next begins.
static cadre_status fail_unusable(tcp *t, int peer)
{
    t->base.failed_peer = peer;
    return cadre_fail(CADRE_ERR_PEER_LOST,
        "the connection to rank %d is unusable: %s", peer, cadre_error_text());
}

// Compares a complete header with what is expected.
static cadre_status check_header(tcp *t, int peer)
{
    tcp_peer *p = &t->peers[peer];
    const cadre_transfer *x = p->receives.queue.head;
    cadre_frame frame;
    cadre_status status = cadre_frame_decode(p->receives.header, &frame);
    if (status == CADRE_OK &&
        (frame.generation != t->base.generation || frame.sender != peer)) {
        status = cadre_fail(
            CADRE_ERR_CORRUPT, "frame of another group, or of another rank");
    }
    if (status == CADRE_OK && frame.named) {
        status = cadre_fail(
            CADRE_ERR_CORRUPT, "frame that names memory, which none share");
    }
    if (status != CADRE_OK) {
        return fail_unusable(t, peer);
    }
    status = cadre_frame_compare(&frame, t->base.rank, x->call, x->nbytes);
    if (status != CADRE_OK) {
        t->base.failed_peer = peer;
    }
    p->receives.crc = 0;
    p->receives.check_bytes =
        frame.checked && x->nbytes > 0 ? CADRE_FRAME_CHECK_BYTES : 0;
    return status;
}

// Compares the checksum of a complete payload.
static cadre_status check_payload(tcp *t, int peer)
{
    const cadre_lane *l = &t->peers[peer].receives;
    if (l->check_bytes == 0 || cadre_load_u32(l->check) == l->crc) {
        return CADRE_OK;
    }
    (void)cadre_fail(CADRE_ERR_CORRUPT,
        "a payload was damaged on its way: its checksum is wrong");
    return fail_unusable(t, peer);
}

// Reads once: the rest of the header, or of the payload, or of the checksum.
static ssize_t read_once(tcp_peer *p, cadre_transfer *x, size_t *wanted)
{
    struct iovec vectors[CADRE_LANE_VECTORS];
    int n = cadre_lane_lay_out(x, &p->receives, vectors);
    if (x->moved < CADRE_FRAME_BYTES) {
        n = 1; // nothing of the payload before the header has been compared
    }
    *wanted = cadre_lane_total(vectors, n);
    struct msghdr message = {
        .msg_iov = vectors,
        .msg_iovlen = (size_t)n,
    };
    return recvmsg(p->socket, &message, MSG_DONTWAIT);
}

// Reads what a peer has sent, as far as receives are posted.
static cadre_status receive_some(tcp *t, int peer, bool *moved)
{
    tcp_peer *p = &t->peers[peer];
    cadre_lane *l = &p->receives;
    while (l->queue.head != NULL) {
        cadre_transfer *x = l->queue.head;
        bool in_header = x->moved < CADRE_FRAME_BYTES;
        size_t wanted;
        ssize_t got = read_once(p, x, &wanted);
        if (got < 0) {
            return would_block(errno) ? CADRE_OK : fail_lost(t, peer, errno);
        }
        if (got == 0) {
            return fail_lost(t, peer, 0);
        }
        *moved = true;
        cadre_lane_account(x, l, (size_t)got);
        if (in_header && x->moved == CADRE_FRAME_BYTES) {
            CADRE_TRY(check_header(t, peer));
        }
        if (cadre_lane_is_done(x, l)) {
            CADRE_TRY(check_payload(t, peer));
            cadre_queue_pop(&l->queue)->done = true;
        } else if ((size_t)got < wanted) {
            return CADRE_OK;
        }
    }
    return CADRE_OK;
}

static cadre_status tcp_post_send(
    cadre_transport *base, int peer, cadre_transfer *x)
{
    tcp *t = as_tcp(base);
    tcp_peer *p = &t->peers[peer];
    bool first = p->sends.queue.head == NULL;
    base->sent_overhead_bytes += check_bytes_of(p, x);
    cadre_queue_push(&p->sends.queue, x);
    if (!first) {
        return CADRE_OK;
    }
    begin_send(t, p);
    bool moved;
    return send_some(t, peer, &moved);
}

static cadre_status tcp_post_receive(
    cadre_transport *base, int peer, cadre_transfer *x)
{
    cadre_queue_push(&as_tcp(base)->peers[peer].receives.queue, x);
    return CADRE_OK;
}

// Peers with nothing under way are not looked at: one that leaves then is
// missed by nobody here.
static void prepare_poll(tcp *t)
{
    for (int i = 0; i < t->base.world_size; i++) {
        const tcp_peer *p = &t->peers[i];
        short events = 0;
        if (p->receives.queue.head != NULL) {
            events |= POLLIN;
        }
        if (p->sends.queue.head != NULL) {
            events |= POLLOUT | POLLRDHUP;
        }
        t->polled[i] = (struct pollfd){
            .fd = events == 0 ? -1 : p->socket,
            .events = events,
        };
    }
    t->polled[t->base.world_size] =
        (struct pollfd){.fd = t->wake_event, .events = POLLIN};
}

// Serves a peer for which poll() had news.
static cadre_status serve_peer(tcp *t, int peer, short events, bool *moved)
{
    tcp_peer *p = &t->peers[peer];
    if (events & (POLLIN | POLLHUP | POLLERR)) {
        CADRE_TRY(receive_some(t, peer, moved));
    }
    if (p->sends.queue.head == NULL) {
        return CADRE_OK;
    }
    if (events & POLLRDHUP) {
        return fail_lost(t, peer, 0); // it will take nothing any more
    }
    if (events & (POLLOUT | POLLHUP | POLLERR)) {
        CADRE_TRY(send_some(t, peer, moved));
    }
    return CADRE_OK;
}

// Polls once and serves whoever is ready.
static cadre_status poll_once(tcp *t, int timeout_ms, bool *moved)
{
    int n_ready = poll(t->polled, (nfds_t)t->base.world_size + 1, timeout_ms);
    if (n_ready < 0 && errno != EINTR) {
        return cadre_fail_errno(CADRE_ERR_IO, errno, "cannot wait for peers");
    }
    if (n_ready <= 0) {
        return CADRE_OK;
    }
    if (t->polled[t->base.world_size].revents != 0) {
        uint64_t n_wakes;
        *moved = read(t->wake_event, &n_wakes, sizeof(n_wakes)) > 0;
    }
    for (int i = 0; i < t->base.world_size; i++) {
        short events = t->polled[i].revents;
        if (events != 0) {
            CADRE_TRY(serve_peer(t, i, events, moved));
        }
    }
    return CADRE_OK;
}

static cadre_status tcp_progress(cadre_transport *base, cadre_deadline deadline)
{
    tcp *t = as_tcp(base);
    bool moved = false;
    int64_t begin = cadre_now_ns();
    int64_t now = begin;
    int64_t spin_end = cadre_spin_end(&t->spin, begin);
    prepare_poll(t);
    do {
        bool sleeps = now >= spin_end;
        CADRE_TRY(poll_once(t,
            sleeps ? cadre_deadline_left_ms(deadline, MAX_SLEEP_MS) : 0,
            &moved));
        now = cadre_now_ns();
    } while (!moved && now < deadline);
    if (begin < deadline) {
        cadre_spin_learn(&t->spin, now - begin);
    }
    return CADRE_OK;
}

static void tcp_wake(cadre_transport *base)
{
    // Cannot fail but when it has been woken 2^64 times without notice.
    uint64_t one = 1;
    ssize_t written = write(as_tcp(base)->wake_event, &one, sizeof(one));
    (void)written;
}

static void tcp_abandon(cadre_transport *base)
{
    tcp *t = as_tcp(base);
    for (int i = 0; i < base->world_size; i++) {
        t->peers[i].sends.queue = (cadre_transfer_queue){0};
        t->peers[i].receives.queue = (cadre_transfer_queue){0};
    }
}

static void close_sockets(const int *sockets, int n)
{
    for (int i = 0; i < n; i++) {
        if (sockets[i] >= 0) {
            close(sockets[i]);
        }
    }
}

static void tcp_close(cadre_transport *base)
{
    tcp *t = as_tcp(base);
    for (int i = 0; i < base->world_size; i++) {
        close_sockets(&t->peers[i].socket, 1);
    }
    close(t->wake_event);
    cadre_free(t->polled);
    cadre_free(t);
}

// Sets a socket up for frames.  Each option is for one family; the other one
// refuses it or has no use for it.
static void prepare_socket(int socket)
{
    // Small frames must not wait for each other.
    int on = 1;
    (void)setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));

    // A Unix socket takes no more than its sender's buffer holds, and each time
    // it is full both sides fall asleep and wake up.  TCP finds its own size.
    int buffer_bytes = UNIX_BUFFER_BYTES;
    if (cadre_socket_is_unix(socket)) {
        (void)setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &buffer_bytes,
            sizeof(buffer_bytes)); // the system may give less
    }
}

// Takes the sockets and finds out how many ranks share this host.
static void take_sockets(tcp *t, const int *sockets)
{
    int n_local = 1;
    for (int i = 0; i < t->base.world_size; i++) {
        int socket = i == t->base.rank ? -1 : sockets[i];
        t->peers[i].socket = socket;
        if (socket >= 0) {
            prepare_socket(socket);
            t->peers[i].checks = !cadre_peer_is_local(socket);
            n_local += t->peers[i].checks ? 0 : 1;
        }
    }
    t->spin.allowed = cadre_cpu_count() >= n_local;
}

void cadre_tcp_check_all(cadre_transport *t)
{
    for (int i = 0; i < t->world_size; i++) {
        as_tcp(t)->peers[i].checks = true;
    }
}

static const cadre_transport_ops tcp_ops = {
    .scheme = "tcp",
    .header_bytes = CADRE_FRAME_BYTES,
    .post_send = tcp_post_send,
    .post_receive = tcp_post_receive,
    .progress = tcp_progress,
    .wake = tcp_wake,
    .abandon = tcp_abandon,
    .close = tcp_close,
};

cadre_status cadre_tcp_open(int rank, int world_size, uint64_t generation,
    const int *sockets, cadre_transport **out)
{
    CADRE_ASSERT(rank >= 0 && rank < world_size);
    cadre_status status = CADRE_ERR_NO_MEMORY;
    tcp *t =
        cadre_alloc_flex(sizeof(*t), (size_t)world_size, sizeof(t->peers[0]));
    if (t == NULL) {
        goto give_up_sockets;
    }
    t->polled = cadre_alloc_array((size_t)world_size + 1, sizeof(*t->polled));
    if (t->polled == NULL) {
        goto free_transport;
    }
    t->wake_event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (t->wake_event < 0) {
        status = cadre_fail_errno(CADRE_ERR_IO, errno, "cannot open an event");
        goto free_polled;
    }

    t->base.ops = &tcp_ops;
    t->base.rank = rank;
    t->base.world_size = world_size;
    t->base.generation = generation;
    t->base.failed_peer = -1;
    take_sockets(t, sockets);
    *out = &t->base;
    return CADRE_OK;

free_polled:
    cadre_free(t->polled);
free_transport:
    cadre_free(t);
give_up_sockets:
    close_sockets(sockets, world_size);
    return status;
}
