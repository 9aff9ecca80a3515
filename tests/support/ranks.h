// SPDX-License-Identifier: Apache-2.0
//
// Runs a function on n ranks at once, as threads or as processes of this host.
//
// Ranks must not use cmocka's assertions, which belong to the main thread:
// RANK_CHECK() says what is wrong and ends the program, which fails the test.

#ifndef CADRE_TESTS_SUPPORT_RANKS_H
#define CADRE_TESTS_SUPPORT_RANKS_H

#include "group/group.h"

typedef enum rank_link {
    LINK_INPROC,
    LINK_SHM,
    LINK_UNIX, // tcp over Unix sockets
    LINK_TCP,  // tcp over the loopback interface
    // As above, with checksums as between hosts: beyond N_LINKS, since it is
    // worth a test here and there.
    LINK_CHECKED,
} rank_link;

enum { N_LINKS = 4 };

/** Connected, non-blocking sockets: [a * n + b] is a's socket to b. */
void connect_all(rank_link link, int n, int *sockets);

/** Opens rank's transport over its n sockets, which are taken. */
cadre_status open_link(rank_link link, int rank, int n, uint64_t generation,
    const int *sockets, cadre_transport **out);

/** What a rank does with its group, which is released after it returns. */
typedef void (*rank_body)(cadre_group *group, void *ctx);

/** Runs body(group, ctx) on n threads that share one verdict. */
void run_as_threads(
    rank_link link, int n, int timeout_ms, rank_body body, void *ctx);

/**
 * Runs body(group, ctx) in n processes, over any link but LINK_INPROC.  A rank
 * that ends otherwise than by returning, or lasts a minute, fails the test.
 */
void run_as_processes(
    rank_link link, int n, int timeout_ms, rank_body body, void *ctx);

/** In a rank: the condition must hold. */
#define RANK_CHECK(condition) \
    ((condition) ? (void)0    \
                 : rank_check_failed(#condition, "", __FILE__, __LINE__))

/** In a rank: the call must succeed. */
#define RANK_OK(call)                        \
    ((call) == CADRE_OK ? (void)0            \
                        : rank_check_failed( \
                              #call, cadre_error_text(), __FILE__, __LINE__))

_Noreturn void rank_check_failed(
    const char *what, const char *why, const char *file, int line);

#endif // CADRE_TESTS_SUPPORT_RANKS_H
