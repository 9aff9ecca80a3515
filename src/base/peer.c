// SPDX-License-Identifier: Apache-2.0
//
// Linux: SO_PEERCRED; for TCP the kernel is asked for the socket with the two
// ends in reverse (sock_diag(7)).  Where it does not take that question, it is
// looked for in the tables of /proc/net, which have a line for each socket: its
// two ends, its state, its owner, its inode.

#define _GNU_SOURCE // struct ucred, sched_getaffinity

#include "base/peer.h"

#include "base/number.h"
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    END_BYTES = 48,   // "0100007F:1F90", or of IPv6
    LINE_BYTES = 512, // of the table
    // A table that changes while it is read may leave lines out.
    ATTEMPTS = 20,
};

typedef union end {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage storage;
} end;

static bool get_ends(int fd, end *own, end *peer)
{
    socklen_t own_bytes = sizeof(*own);
    socklen_t peer_bytes = sizeof(*peer);
    memset(own, 0, sizeof(*own));
    memset(peer, 0, sizeof(*peer));
    return getsockname(fd, &own->any, &own_bytes) == 0 &&
           getpeername(fd, &peer->any, &peer_bytes) == 0;
}

static bool is_loopback_v4(const struct sockaddr_in *a)
{
    return ntohl(a->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

// Both ends have the same address, or both are of the loopback network.
static bool ends_are_local(const end *own, const end *peer)
{
    switch (own->any.sa_family) {
    case AF_UNIX:
        return true;
    case AF_INET:
        return own->v4.sin_addr.s_addr == peer->v4.sin_addr.s_addr ||
               (is_loopback_v4(&own->v4) && is_loopback_v4(&peer->v4));
    case AF_INET6:
        return memcmp(&own->v6.sin6_addr, &peer->v6.sin6_addr,
                   sizeof(own->v6.sin6_addr)) == 0;
    default:
        return false;
    }
}

bool cadre_peer_is_local(int fd)
{
    end own;
    end peer;
    return get_ends(fd, &own, &peer) && ends_are_local(&own, &peer);
}

// As the table writes it: words of the address as they lie in memory.
static void write_end(const end *e, char text[END_BYTES])
{
    uint32_t words[4];
    if (e->any.sa_family == AF_INET) {
        memcpy(words, &e->v4.sin_addr, sizeof(words[0]));
        snprintf(text, END_BYTES, "%08X:%04X", words[0],
            (unsigned)ntohs(e->v4.sin_port));
    } else {
        memcpy(words, &e->v6.sin6_addr, sizeof(words));
        snprintf(text, END_BYTES, "%08X%08X%08X%08X:%04X", words[0], words[1],
            words[2], words[3], (unsigned)ntohs(e->v6.sin6_port));
    }
}

// Reads the owner off what follows the state in a socket's line.
static bool read_owner(char *rest, uid_t *user)
{
    enum { QUEUES, TIMER, RETRIES, OWNER, TIMEOUT, INODE, N_FIELDS };
    const char *fields[N_FIELDS];
    char *next = NULL;
    for (int i = 0; i < N_FIELDS; i++) {
        fields[i] = strtok_r(i == 0 ? rest : NULL, " \n", &next);
        if (fields[i] == NULL) {
            return false;
        }
    }
    int64_t owner;
    int64_t inode;
    // Without an inode no process holds it.
    if (!cadre_parse_int(fields[OWNER], 0, UINT32_MAX, &owner) ||
        !cadre_parse_int(fields[INODE], 1, INT64_MAX, &inode)) {
        return false;
    }
    *user = (uid_t)owner;
    return true;
}

// Finds the socket whose ends these are, if its connection stands.
static bool find_owner(
    const char *table, const end *own, const end *peer, uid_t *user)
{
    char from[END_BYTES];
    char to[END_BYTES];
    char wanted[2 * END_BYTES + 8];
    char line[LINE_BYTES];
    write_end(peer, from);
    write_end(own, to);
    int n = snprintf(wanted, sizeof(wanted), ": %s %s 01 ", from, to);
    FILE *file = fopen(table, "re");
    if (file == NULL) {
        return false;
    }
    bool found = false;
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        char *at = strstr(line, wanted);
        found = at != NULL && read_owner(at + n, user);
    }
    fclose(file);
    return found;
}

static bool find_in_table(const end *own, const end *peer, uid_t *user)
{
    const char *table =
        own->any.sa_family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6";
    bool found = false;
    for (int i = 0; i < ATTEMPTS && !found; i++) {
        found = find_owner(table, own, peer, user);
    }
    return found;
}

typedef enum finding { FOUND, NOT_FOUND, CANNOT_ASK } finding;

typedef struct question {
    struct nlmsghdr header;
    struct inet_diag_req_v2 request;
} question;

// The socket whose own end is the peer.
static question make_question(const end *own, const end *peer)
{
    question q = {.header = {.nlmsg_len = sizeof(q),
                      .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                      .nlmsg_flags = NLM_F_REQUEST},
        .request = {.sdiag_family = (uint8_t)own->any.sa_family,
            .sdiag_protocol = IPPROTO_TCP,
            .idiag_states = 1u << TCP_ESTABLISHED}};
    struct inet_diag_sockid *id = &q.request.id;
    id->idiag_cookie[0] = id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    if (own->any.sa_family == AF_INET) {
        id->idiag_sport = peer->v4.sin_port;
        id->idiag_dport = own->v4.sin_port;
        memcpy(id->idiag_src, &peer->v4.sin_addr, sizeof(peer->v4.sin_addr));
        memcpy(id->idiag_dst, &own->v4.sin_addr, sizeof(own->v4.sin_addr));
    } else {
        id->idiag_sport = peer->v6.sin6_port;
        id->idiag_dport = own->v6.sin6_port;
        memcpy(id->idiag_src, &peer->v6.sin6_addr, sizeof(id->idiag_src));
        memcpy(id->idiag_dst, &own->v6.sin6_addr, sizeof(id->idiag_dst));
        id->idiag_if = own->v6.sin6_scope_id;
    }
    return q;
}

// The kernel may also name one that only listens at that end.
static finding read_answer(
    const uint8_t *data, size_t nbytes, const question *q, uid_t *user)
{
    struct nlmsghdr header;
    struct nlmsgerr error;
    struct inet_diag_msg found;
    if (nbytes < sizeof(header)) {
        return CANNOT_ASK;
    }
    memcpy(&header, data, sizeof(header));
    data += sizeof(header);
    nbytes -= sizeof(header);
    if (header.nlmsg_type == NLMSG_ERROR && nbytes >= sizeof(error)) {
        memcpy(&error, data, sizeof(error));
        return error.error == -ENOENT &&
                       error.msg.nlmsg_type == SOCK_DIAG_BY_FAMILY
                   ? NOT_FOUND
                   : CANNOT_ASK;
    }
    if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || nbytes < sizeof(found)) {
        return CANNOT_ASK;
    }
    memcpy(&found, data, sizeof(found));
    *user = found.idiag_uid;
    return found.idiag_state == TCP_ESTABLISHED && found.idiag_inode != 0 &&
                   found.id.idiag_sport == q->request.id.idiag_sport &&
                   found.id.idiag_dport == q->request.id.idiag_dport
               ? FOUND
               : NOT_FOUND;
}

// The answer is there when the question has been sent.
static finding ask_kernel(const end *own, const end *peer, uid_t *user)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0) {
        return CANNOT_ASK;
    }
    question q = make_question(own, peer);
    uint8_t answer[LINE_BYTES];
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    socklen_t kernel_bytes = sizeof(kernel);
    ssize_t n = -1;
    if (sendto(fd, &q, sizeof(q), 0, (struct sockaddr *)&kernel,
            kernel_bytes) == (ssize_t)sizeof(q)) {
        n = recvfrom(fd, answer, sizeof(answer), MSG_DONTWAIT,
            (struct sockaddr *)&kernel, &kernel_bytes);
    }
    close(fd);
    return n < 0 || kernel.nl_pid != 0
               ? CANNOT_ASK
               : read_answer(answer, (size_t)n, &q, user);
}

// That the connection still stands shows that its own peer was found.
static bool stands(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n > 0 || (n < 0 && errno == EAGAIN);
}

bool cadre_peer_user_listed(int fd, uid_t *user)
{
    end own;
    end peer;
    return get_ends(fd, &own, &peer) && ends_are_local(&own, &peer) &&
           find_in_table(&own, &peer, user) && stands(fd);
}

static bool user_of_tcp(int fd, uid_t *user)
{
    end own;
    end peer;
    if (!get_ends(fd, &own, &peer) || !ends_are_local(&own, &peer)) {
        return false;
    }
    finding f = ask_kernel(&own, &peer, user);
    return f == CANNOT_ASK ? cadre_peer_user_listed(fd, user)
                           : f == FOUND && stands(fd);
}

// Who connected, listened, or made the pair, by a Unix socket.
static bool get_credentials(int fd, struct ucred *who)
{
    socklen_t nbytes = sizeof(*who);
    *who = (struct ucred){.uid = (uid_t)-1};
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &nbytes) == 0;
}

bool cadre_peer_user(int fd, uid_t *user)
{
    int domain = 0;
    socklen_t nbytes = sizeof(domain);
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &nbytes) != 0) {
        return false;
    }
    if (domain != AF_UNIX) {
        return user_of_tcp(fd, user);
    }
    struct ucred who;
    if (!get_credentials(fd, &who)) {
        return false;
    }
    *user = who.uid;
    return true;
}

int cadre_peers_cpu_count(const int *fds, int n)
{
    cpu_set_t all;
    cpu_set_t theirs;
    struct ucred who;
    CPU_ZERO(&all);
    (void)sched_getaffinity(0, sizeof(all), &all);
    for (int i = 0; i < n; i++) {
        CPU_ZERO(&theirs);
        // Of a socket that is not a Unix socket the process is 0.
        if (fds[i] >= 0 && get_credentials(fds[i], &who) && who.pid > 0 &&
            sched_getaffinity(who.pid, sizeof(theirs), &theirs) == 0) {
            CPU_OR(&all, &all, &theirs);
        }
    }
    return CPU_COUNT(&all) > 0 ? CPU_COUNT(&all) : 1;
}
