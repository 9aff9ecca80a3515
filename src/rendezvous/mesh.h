// SPDX-License-Identifier: Apache-2.0
//
// Connections between every two ranks that no launcher connects: each rank
// listens, connects to all ranks below it, and is connected to by all above.
// Both ends of a connection prove that they belong to the job; strangers are
// sent away.  Ranks of one host may meet at Unix sockets, whose abstract names
// are in no file system and end with them.
//
// Like the hub it never sleeps: wait for its descriptor and run it.
//
// Threads: one at a time.

#ifndef CADRE_RENDEZVOUS_MESH_H
#define CADRE_RENDEZVOUS_MESH_H

#include "rendezvous/message.h"

typedef struct cadre_mesh cadre_mesh;

/**
 * Listens at the address that the connection to the hub uses, on a port that
 * the system chooses, and at a Unix socket.
 *
 * Errors: CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_mesh_open(
    int hub_socket, int rank, int world_size, cadre_mesh **out);

/** Where peers reach this rank; local, from this host only, or "". */
void cadre_mesh_addresses(const cadre_mesh *mesh,
    char address[CADRE_ADDRESS_BYTES], char local[CADRE_ADDRESS_BYTES]);

/** Stops listening.  Connections not taken are closed.  NULL is allowed. */
void cadre_mesh_close(cadre_mesh *mesh);

/**
 * Lets peers in from now on, at one of the two addresses; the other is given
 * up.  What proves a connection is known.  credentials is borrowed until the
 * mesh is closed.
 *
 * Errors: CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_mesh_begin(cadre_mesh *mesh,
    const cadre_credentials *credentials,
    const uint8_t job_id[CADRE_JOB_ID_BYTES], uint64_t generation, bool local);

/**
 * Begins to connect to rank, if that is one below.  To be called for all,
 * between cadre_mesh_begin() and the first cadre_mesh_run().
 *
 * Errors: CADRE_ERR_PEER_LOST  the text says why
 */
cadre_status cadre_mesh_connect(
    cadre_mesh *mesh, int rank, const char address[CADRE_ADDRESS_BYTES]);

/** Readable when there is something to do. */
int cadre_mesh_fd(const cadre_mesh *mesh);

/**
 * Goes on.  *failed_peer is the rank that could not be reached.
 *
 * Errors: CADRE_ERR_PEER_LOST  the text says why
 */
cadre_status cadre_mesh_run(cadre_mesh *mesh, int *failed_peer);

/** True when all peers are connected. */
bool cadre_mesh_is_complete(const cadre_mesh *mesh);

/** Hands the connections out, world_size of them, -1 at this rank. */
void cadre_mesh_take_sockets(cadre_mesh *mesh, int *sockets);

#endif // CADRE_RENDEZVOUS_MESH_H
