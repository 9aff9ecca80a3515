// SPDX-License-Identifier: Apache-2.0
//
// Who is at the other end of a connection on this host, as the kernel knows it:
// a proof that needs no secret.
//
// Threads: any.

#ifndef CADRE_BASE_PEER_H
#define CADRE_BASE_PEER_H

#include <stdbool.h>
#include <sys/types.h>

/** The other end is on this host too, by its address. */
bool cadre_peer_is_local(int fd);

/**
 * The user whose process holds the other end.  False if that is not known: the
 * peer is on another host, has gone, or the system does not tell.
 *
 * Of TCP, to be asked only when something has been received: before that, the
 * peer may be a connection that no process has accepted.  Of a Unix socket, the
 * user is the one who connected, listened, or made the pair.
 */
bool cadre_peer_user(int fd, uid_t *user);

/**
 * As above, of TCP, by the system's list of sockets: what is done where the
 * kernel cannot be asked for one of them.  While many come and go at once, one
 * may be missed.
 */
bool cadre_peer_user_listed(int fd, uid_t *user);

/**
 * CPUs that this process may run on, together with the processes of this host
 * at the other ends of n Unix sockets; where an fd is another socket, or -1, or
 * the process cannot be seen, it does not count.  At least 1.
 *
 * So ranks that have been bound to a core each do not look like ranks that
 * share one.
 */
int cadre_peers_cpu_count(const int *fds, int n);

#endif // CADRE_BASE_PEER_H
