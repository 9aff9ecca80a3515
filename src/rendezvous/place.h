// SPDX-License-Identifier: Apache-2.0
//
// What launchers tell a rank: which one it is, and where the others meet.

#ifndef CADRE_RENDEZVOUS_PLACE_H
#define CADRE_RENDEZVOUS_PLACE_H

#include "cadre/status.h"
#include <stdbool.h>

enum { CADRE_MAX_RANKS = 4096, CADRE_STORE_BYTES = 300 };

typedef struct cadre_place {
    int rank;
    int world_size;
    int local_rank;
    int local_world_size;
    // Where the hub is: "fd:N", a connected Unix socket that the launcher
    // passed on; "tcp:HOST:PORT"; or "" for a rank that is alone.
    char store[CADRE_STORE_BYTES];
    bool hosts_hub; // listens at the store itself: rank 0 without a launcher
    const char *source; // "cadre run", "RANK and WORLD_SIZE" or "alone"
    // What proves that a rank belongs to the job (proof.h); the descriptor
    // comes before the file, and both before the last.
    bool has_secret_fd;
    int secret_fd;
    const char *secret_file; // in the environment; or NULL
    bool believes_all;       // CADRE_AUTH=none
} cadre_place;

/**
 * Reads the environment: CADRE_RANK, CADRE_WORLD_SIZE, CADRE_LOCAL_RANK,
 * CADRE_LOCAL_WORLD_SIZE and CADRE_STORE; else RANK, WORLD_SIZE, MASTER_ADDR,
 * MASTER_PORT, LOCAL_RANK and LOCAL_WORLD_SIZE; else alone.  And
 * CADRE_SECRET_FD, CADRE_SECRET_FILE and CADRE_AUTH.
 *
 * Errors: CADRE_ERR_INVALID_ARG  names the variable, its value, what is wrong
 */
cadre_status cadre_place_from_environment(cadre_place *out);

#endif // CADRE_RENDEZVOUS_PLACE_H
