// SPDX-License-Identifier: Apache-2.0
//
// Linux: accept4() sets the new socket's flags in the same call.

#define _GNU_SOURCE // accept4

#include "base/socket.h"

#include "base/fail.h"
#include "base/number.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    HOST_BYTES = 256,
    HIGHEST_PORT = 65535,
    BACKLOG = 4096,
    FLAGS = SOCK_CLOEXEC | SOCK_NONBLOCK,
};

// Splits at the last colon, and takes the brackets off.
static bool split(const char *text, char host[HOST_BYTES], const char **port)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL) {
        return false;
    }
    size_t nbytes = (size_t)(colon - text);
    if (nbytes >= 2 && text[0] == '[' && colon[-1] == ']') {
        text++;
        nbytes -= 2;
    }
    if (nbytes >= HOST_BYTES) {
        return false;
    }
    memcpy(host, text, nbytes);
    host[nbytes] = '\0';
    *port = colon + 1;
    return true;
}

static int look_up(
    const char *text, int flags, cadre_address *out, int most, int *n)
{
    char host[HOST_BYTES];
    const char *port;
    int64_t number;
    if (!split(text, host, &port) ||
        !cadre_parse_int(port, 0, HIGHEST_PORT, &number)) {
        return EAI_NONAME;
    }
    struct addrinfo hints = {
        .ai_flags = flags | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0) {
        return error;
    }
    *n = 0;
    for (struct addrinfo *a = found; a != NULL && *n < most; a = a->ai_next) {
        if (a->ai_addrlen <= sizeof(out->storage)) {
            memcpy(&out[*n].storage, a->ai_addr, a->ai_addrlen);
            out[(*n)++].nbytes = a->ai_addrlen;
        }
    }
    freeaddrinfo(found);
    return *n > 0 ? 0 : EAI_NONAME;
}

static const char unix_scheme[] = "unix:";

// Abstract names begin with a zero, and end where the address does.
static bool parse_unix(const char *name, cadre_address *out)
{
    struct sockaddr_un *a = (struct sockaddr_un *)&out->storage;
    size_t nbytes = strlen(name);
    if (nbytes == 0 || nbytes >= sizeof(a->sun_path)) {
        return false;
    }
    *out = (cadre_address){.storage.ss_family = AF_UNIX};
    memcpy(a->sun_path + 1, name, nbytes);
    out->nbytes =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + nbytes);
    return true;
}

static void write_unix(
    const cadre_address *address, char text[CADRE_ADDRESS_BYTES])
{
    const struct sockaddr_un *a = (const struct sockaddr_un *)&address->storage;
    size_t head = offsetof(struct sockaddr_un, sun_path) + 1;
    size_t nbytes = address->nbytes > head ? address->nbytes - head : 0;
    snprintf(text, CADRE_ADDRESS_BYTES, "%s%.*s", unix_scheme, (int)nbytes,
        a->sun_path + 1);
}

void cadre_address_unnamed(cadre_address *out)
{
    *out = (cadre_address){
        .storage.ss_family = AF_UNIX, .nbytes = sizeof(sa_family_t)};
}

cadre_status cadre_address_resolve(
    const char *text, cadre_address *out, int most, int *n)
{
    int error = look_up(text, 0, out, most, n);
    if (error != 0) {
        return cadre_fail(CADRE_ERR_IO, "the address %s cannot be resolved: %s",
            text, gai_strerror(error));
    }
    return CADRE_OK;
}

bool cadre_address_parse(const char *text, cadre_address *out)
{
    size_t scheme = strlen(unix_scheme);
    if (strncmp(text, unix_scheme, scheme) == 0) {
        return parse_unix(text + scheme, out);
    }
    int n;
    return look_up(text, AI_NUMERICHOST, out, 1, &n) == 0;
}

void cadre_address_text(
    const cadre_address *address, char text[CADRE_ADDRESS_BYTES])
{
    if (address->storage.ss_family == AF_UNIX) {
        write_unix(address, text);
        return;
    }
    char host[64];
    char port[8];
    if (getnameinfo((const struct sockaddr *)&address->storage, address->nbytes,
            host, sizeof(host), port, sizeof(port),
            NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        snprintf(text, CADRE_ADDRESS_BYTES, "unknown");
        return;
    }
    bool v6 = address->storage.ss_family == AF_INET6;
    snprintf(text, CADRE_ADDRESS_BYTES, "%s%s%s:%s", v6 ? "[" : "", host,
        v6 ? "]" : "", port);
}

static cadre_status own_address(int fd, cadre_address *out)
{
    out->nbytes = sizeof(out->storage);
    if (getsockname(fd, (struct sockaddr *)&out->storage, &out->nbytes) != 0) {
        return cadre_fail_errno(
            CADRE_ERR_IO, errno, "a socket's address is not known");
    }
    return CADRE_OK;
}

cadre_status cadre_socket_own_address(int fd, cadre_address *out)
{
    CADRE_TRY(own_address(fd, out));
    if (out->storage.ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)&out->storage)->sin6_port = 0;
    } else if (out->storage.ss_family == AF_INET) {
        ((struct sockaddr_in *)&out->storage)->sin_port = 0;
    }
    return CADRE_OK;
}

static void set_option(int fd, int level, int name)
{
    int on = 1;
    (void)setsockopt(fd, level, name, &on, sizeof(on));
}

static int listen_at(const cadre_address *address)
{
    int fd = socket(address->storage.ss_family, SOCK_STREAM | FLAGS, 0);
    if (fd < 0) {
        return -1;
    }
    // The connections of a job that has just ended must not keep the next from
    // its port; two that listen at once are still refused.
    set_option(fd, SOL_SOCKET, SO_REUSEADDR);
    if (address->storage.ss_family == AF_INET6) {
        set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY);
    }
    if (bind(fd, (const struct sockaddr *)&address->storage, address->nbytes) !=
            0 ||
        listen(fd, BACKLOG) != 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

cadre_status cadre_socket_listen(
    const cadre_address *address, int *fd, char bound[CADRE_ADDRESS_BYTES])
{
    int listener = listen_at(address);
    if (listener < 0) {
        int error = errno;
        char text[CADRE_ADDRESS_BYTES];
        cadre_address_text(address, text);
        return cadre_fail_errno(
            CADRE_ERR_IO, error, "cannot listen at %s", text);
    }
    if (bound != NULL) {
        cadre_address own;
        cadre_status status = own_address(listener, &own);
        if (status != CADRE_OK) {
            close(listener);
            return status;
        }
        cadre_address_text(&own, bound);
    }
    *fd = listener;
    return CADRE_OK;
}

cadre_status cadre_socket_reserve_port(int *fd, int *port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t nbytes = sizeof(address);
    int reserved = socket(AF_INET, SOCK_STREAM | FLAGS, 0);
    if (reserved >= 0) {
        set_option(reserved, SOL_SOCKET, SO_REUSEADDR);
    }
    if (reserved < 0 ||
        bind(reserved, (const struct sockaddr *)&address, nbytes) != 0 ||
        getsockname(reserved, (struct sockaddr *)&address, &nbytes) != 0) {
        int error = errno;
        if (reserved >= 0) {
            close(reserved);
        }
        return cadre_fail_errno(
            CADRE_ERR_IO, error, "no port of 127.0.0.1 is to be had");
    }
    *fd = reserved;
    *port = ntohs(address.sin_port);
    return CADRE_OK;
}

cadre_status cadre_socket_pair(int ends[2])
{
    if (socketpair(AF_UNIX, SOCK_STREAM | FLAGS, 0, ends) != 0) {
        return cadre_fail_errno(
            CADRE_ERR_IO, errno, "cannot make a pair of sockets");
    }
    return CADRE_OK;
}

int cadre_socket_accept(int listener)
{
    int fd = accept4(listener, NULL, NULL, FLAGS);
    if (fd >= 0) {
        set_option(fd, IPPROTO_TCP, TCP_NODELAY);
    }
    return fd;
}

int cadre_socket_connect(const cadre_address *address)
{
    int fd = socket(address->storage.ss_family, SOCK_STREAM | FLAGS, 0);
    if (fd < 0) {
        return -1;
    }
    set_option(fd, IPPROTO_TCP, TCP_NODELAY);
    const struct sockaddr *a = (const struct sockaddr *)&address->storage;
    if (connect(fd, a, address->nbytes) != 0 && errno != EINPROGRESS) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

// A port that nobody listens at may be given to the very socket that tries to
// connect to it, which TCP then connects to itself.
static bool is_own_peer(int fd)
{
    cadre_address own = {.nbytes = sizeof(own.storage)};
    cadre_address peer = {.nbytes = sizeof(peer.storage)};
    return getsockname(fd, (struct sockaddr *)&own.storage, &own.nbytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer.storage, &peer.nbytes) ==
               0 &&
           own.nbytes == peer.nbytes &&
           memcmp(&own.storage, &peer.storage, own.nbytes) == 0;
}

int cadre_socket_error(int fd)
{
    int error = 0;
    socklen_t nbytes = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &nbytes) != 0) {
        return errno;
    }
    return error == 0 && is_own_peer(fd) ? ECONNREFUSED : error;
}

bool cadre_socket_is_unix(int fd)
{
    int domain = AF_UNSPEC;
    socklen_t nbytes = sizeof(domain);
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &nbytes) == 0 &&
           domain == AF_UNIX;
}

bool cadre_socket_adopt(int fd)
{
    int type = 0;
    socklen_t type_bytes = sizeof(type);
    struct sockaddr_storage peer = {.ss_family = AF_UNSPEC};
    socklen_t peer_bytes = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_bytes) != 0 ||
        type != SOCK_STREAM ||
        getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) != 0 ||
        peer.ss_family != AF_UNIX) {
        return false;
    }
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 &&
           fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

// Room for one descriptor, aligned as the header that it starts with.
typedef union passing {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr header;
} passing;

ssize_t cadre_socket_send(int fd, const void *data, size_t nbytes, int passed)
{
    if (passed < 0) {
        return send(fd, data, nbytes, MSG_NOSIGNAL);
    }
    passing control = {.bytes = {0}};
    // sendmsg() does not write to what iov_base points to.
    union {
        const void *from;
        void *base;
    } start = {.from = data};
    struct iovec piece = {.iov_base = start.base, .iov_len = nbytes};
    struct msghdr message = {.msg_iov = &piece,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &passed, sizeof(int));
    return sendmsg(fd, &message, MSG_NOSIGNAL);
}

// There may be room for more than one; they are no use, and would stay open.
static void take_descriptors(const struct cmsghdr *header, int *passed)
{
    int fds[sizeof(passing) / sizeof(int)];
    size_t n = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(header), n * sizeof(int));
    if (n == 1) {
        *passed = fds[0];
        return;
    }
    for (size_t i = 0; i < n; i++) {
        close(fds[i]);
    }
}

ssize_t cadre_socket_receive(int fd, void *data, size_t nbytes, int *passed)
{
    passing control = {.bytes = {0}};
    struct iovec piece = {.iov_base = data, .iov_len = nbytes};
    struct msghdr message = {.msg_iov = &piece,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes)};
    *passed = -1;
    ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = n >= 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header != NULL && header->cmsg_level == SOL_SOCKET &&
        header->cmsg_type == SCM_RIGHTS) {
        take_descriptors(header, passed);
    }
    return n;
}
