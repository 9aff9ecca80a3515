// SPDX-License-Identifier: Apache-2.0
//
// Starting ranks: as processes, watched until the last one has ended (what
// `cadre run` is made of), or as threads of this process.

#ifndef CADRE_LAUNCH_H
#define CADRE_LAUNCH_H

#include "cadre/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Which cores a rank may run on. */
typedef enum cadre_bind {
    CADRE_BIND_NONE = 0, // those of this process
    CADRE_BIND_CORE = 1, // as many as it has threads, and other ranks have
                         // others while there are enough
} cadre_bind;

typedef struct cadre_launch_options {
    int n_ranks;             // on this host; at least 1
    const char *const *argv; // the program (looked up in PATH) and arguments,
                             // ended by NULL
    int threads; // OMP_NUM_THREADS of each rank; 0: this process's cores
                 // divided among the ranks, at least 1
    bool tag;    // "[host:rank] " before each line of output
    const char *log_dir; // what rank R prints also goes to rank-R.log in here;
                         // NULL: no such files
    int timeout_ms;      // a rank silent that long is lost; 0: the rank's own
    cadre_bind bind;
} cadre_launch_options;

typedef struct cadre_launch_result {
    int exit_status; // of the first rank that failed (128 + signal; 3 for one
                     // that left while others still needed it), or 0; of rank
                     // -1: 128 + SIGPIPE if nobody reads what they print, 1 if
                     // it cannot be written
    int rank;        // the first that failed; -1: none
    int stopped_by;  // SIGINT or SIGTERM: the launcher passed it on, or all
                     // ranks exited with 128 + signal; or 0
    char text[1024]; // who or what failed, where, how; empty if none did
    char last_lines[8192]; // of its standard error, 20 lines at most
} cadre_launch_result;

/**
 * Runs n_ranks copies of a program and waits until all have ended.
 *
 * When one fails, the others get 500 ms to report, then SIGTERM, then SIGKILL.
 * SIGINT and SIGTERM to this process are passed on; at the second one the ranks
 * are killed.  Ranks die with this process, however it dies.  Their standard
 * output and error come out of this process's; when nobody reads there any
 * more, the ranks are ended.
 *
 * The result says how the ranks ended; the status, whether they could be run.
 * Threads: the only one of its process that waits for children.
 *
 * Errors: CADRE_ERR_INVALID_ARG
 *         CADRE_ERR_NOT_FOUND  there is no such program, or it cannot be run;
 *                              exit_status says which, as a shell does: 127, 126
 *         CADRE_ERR_STATE      another launch of this process is not over
 *         CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_launch(
    const cadre_launch_options *options, cadre_launch_result *out);

/** What a rank that is a thread does; world is released after it returns. */
typedef cadre_status (*cadre_rank_main)(cadre_group *world, void *ctx);

/**
 * Runs n_ranks ranks as threads of this process, transport "inproc", and waits
 * until all have returned.  ctx is handed to each.
 *
 * Returns CADRE_OK if all did, else the status and text of the first that
 * failed; *failed_rank, unless NULL, is that rank, or -1.
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_launch_threads(int n_ranks,
    const cadre_init_options *options, cadre_rank_main body, void *ctx,
    int *failed_rank);

#ifdef __cplusplus
}
#endif

#endif // CADRE_LAUNCH_H
