// SPDX-License-Identifier: Apache-2.0
//
// Linux: SO_PEERCRED, and the tables of TCP sockets in /proc/net, which have a
// line for each socket: its two ends, its state, its owner, its inode.

#define _GNU_SOURCE // struct ucred

#include "base/peer.h"

#include "base/number.h"
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum {
    END_BYTES = 48,   // "0100007F:1F90", or of IPv6
    LINE_BYTES = 512, // of the table
    // A table that changes while it is read may leave a line out.
    ATTEMPTS = 3,
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

static bool user_of_tcp(int fd, uid_t *user)
{
    end own;
    end peer;
    if (!get_ends(fd, &own, &peer) || !ends_are_local(&own, &peer)) {
        return false;
    }
    const char *table =
        own.any.sa_family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6";
    bool found = false;
    for (int i = 0; i < ATTEMPTS && !found; i++) {
        found = find_owner(table, &own, &peer, user);
    }
    // That this connection still stands shows that its line was the one read.
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return found && (n > 0 || (n < 0 && errno == EAGAIN));
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
    struct ucred who = {.uid = (uid_t)-1};
    nbytes = sizeof(who);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &nbytes) != 0) {
        return false;
    }
    *user = who.uid;
    return true;
}
