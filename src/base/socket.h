// SPDX-License-Identifier: Apache-2.0
//
// Stream sockets: TCP over IPv4 and IPv6, and Unix socket pairs.  Every socket
// made here is non-blocking and is not handed to programs that are started.
//
// Threads: any.

#ifndef CADRE_BASE_SOCKET_H
#define CADRE_BASE_SOCKET_H

#include "cadre/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

enum { CADRE_ADDRESS_BYTES = 80 }; // "[numeric IPv6 address%zone]:port"

typedef struct cadre_address {
    struct sockaddr_storage storage;
    socklen_t nbytes;
} cadre_address;

/**
 * Looks up "HOST:PORT", where HOST is a name or a number; that of IPv6 may
 * stand in brackets.  *n is how many addresses were found, at least 1 and at
 * most `most`.
 *
 * Errors: CADRE_ERR_IO  names the host and the resolver's reason
 */
cadre_status cadre_address_resolve(
    const char *text, cadre_address *out, int most, int *n);

/** Reads what cadre_address_text() wrote; never asks a resolver. */
bool cadre_address_parse(const char *text, cadre_address *out);

/** A Unix socket that gets its abstract name when it listens. */
void cadre_address_unnamed(cadre_address *out);

/** "127.0.0.1:4000", "[::1]:4000" or, of an abstract name, "unix:0000a". */
void cadre_address_text(
    const cadre_address *address, char text[CADRE_ADDRESS_BYTES]);

/** The socket's own address, with port 0 so that it can be listened at. */
cadre_status cadre_socket_own_address(int fd, cadre_address *out);

/**
 * Listens; port 0 lets the system choose.  *bound, unless NULL, is the address.
 *
 * Errors: CADRE_ERR_IO  names the address and the reason
 */
cadre_status cadre_socket_listen(
    const cadre_address *address, int *fd, char bound[CADRE_ADDRESS_BYTES]);

/**
 * Reserves a port of 127.0.0.1: nobody gets it from the system, but a program
 * that is told of it can listen there (with SO_REUSEADDR) until fd is closed.
 */
cadre_status cadre_socket_reserve_port(int *fd, int *port);

/** A pair of connected Unix sockets. */
cadre_status cadre_socket_pair(int ends[2]);

/** The next connection to a listening socket, or -1 with errno. */
int cadre_socket_accept(int listener);

/** Begins to connect: writable means that it is decided.  -1 with errno. */
int cadre_socket_connect(const cadre_address *address);

/** What became of cadre_socket_connect(): 0, or an errno value. */
int cadre_socket_error(int fd);

bool cadre_socket_is_unix(int fd);

/**
 * Takes over a socket that was inherited: non-blocking, and not handed on.
 * False if fd is no connected Unix stream socket.
 */
bool cadre_socket_adopt(int fd);

/** As send(), without a signal if the peer is gone; passed: -1 or goes along. */
ssize_t cadre_socket_send(int fd, const void *data, size_t nbytes, int passed);

/**
 * As recv(); *passed is a descriptor that came along, or -1.  Of several that
 * came at once, all are closed.
 */
ssize_t cadre_socket_receive(int fd, void *data, size_t nbytes, int *passed);

#endif // CADRE_BASE_SOCKET_H
