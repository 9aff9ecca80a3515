// SPDX-License-Identifier: Apache-2.0
//
// A group: ranks that communicate together, and the collectives they call.
//
//     cadre_group *world;
//     cadre_init(NULL, &world);          // launcher, environment, or alone
//     cadre_allreduce(world, x, x, n, CADRE_F32, CADRE_SUM, NULL);
//     cadre_finalize(world);
//
// Collectives.  All ranks of a group call the same collectives in the same
// order, with the same type, operation, counts and root.  Ranks that disagree
// get CADRE_ERR_DESYNC on every rank, with both calls in the text.  A count may
// be 0.  `recv` may be `send` (in place) but must not overlap it otherwise.
//
// Blocking and not.  With out == NULL a collective returns when it is done on
// this rank.  Otherwise it is posted, *out is a work, and the buffers are
// borrowed until that work has been waited for, exactly once, by
// cadre_work_wait().  Works of a group run in the order they were posted.  Data
// moves while a thread is inside a wait, a test or another call of the group.
//
// Order of reduction.  Canonical (docs/numerics.md section 2): element by
// element along one fixed tree over the ranks, so the bits depend on the
// number of ranks and on nothing else, neither transport nor processor.  Or, if
// wished for, round the ring of the ranks (section 4): then they depend on
// where the parts begin as well.  Either way every rank gets the same bits, in
// every run.  <cadre/types.h> says what each operation does.
//
// Failure.  A rank that dies, hangs or disagrees breaks the group on every rank:
// all pending and later calls return the first cause (CADRE_ERR_PEER_LOST,
// _TIMEOUT, _DESYNC or _ABORTED), named in cadre_error_text().  No call waits
// for ever.
//
// Threads: one thread at a time per group.

#ifndef CADRE_GROUP_H
#define CADRE_GROUP_H

#include "cadre/types.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cadre_group cadre_group;
typedef struct cadre_work cadre_work;

typedef struct cadre_init_options {
    // "shm" or "tcp"; NULL or "auto": shm if all ranks share a host, else tcp
    const char *transport;
    int timeout_ms; // a rank silent that long is lost; 0: 30000.  An operation
                    // may last ten times as long while all ranks give signs of
                    // life
    const char *order; // of reduction: "ring"; NULL or "canonical": that
} cadre_init_options;

/**
 * Joins the other ranks of the job and connects to them: the world group.
 *
 * Who the others are is told by the launcher: `cadre run` or cadre_launch();
 * else the environment's RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, where
 * rank 0 listens at that address; else the program is alone, as rank 0 of 1.
 * Blocks until every rank has joined, at most ten times timeout_ms.  options
 * may be NULL.  *out is set on success only; give it to cadre_finalize().
 *
 * Errors: CADRE_ERR_INVALID_ARG  an option or an environment variable makes no
 *                                sense; the text names it
 *         CADRE_ERR_IO           the address cannot be listened at or resolved
 *         CADRE_ERR_TIMEOUT      some rank did not come; the text names it
 *         CADRE_ERR_DESYNC       ranks of different jobs, one rank twice, or
 *                                transports that differ
 *         CADRE_ERR_UNSUPPORTED  the transport cannot be had, such as "shm"
 *                                where two ranks share no host
 *         CADRE_ERR_PEER_LOST, CADRE_ERR_NO_MEMORY
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_init(
    const cadre_init_options *options, cadre_group **out);

/**
 * Says goodbye to the other ranks and releases the group.  NULL is allowed.
 *
 * Bounded: waits for no rank longer than a second, whatever state the group is
 * in.  A rank that says goodbye while others still communicate with it has
 * failed, in their eyes.  Works not waited for are given up.
 */
CADRE_API void cadre_finalize(cadre_group *world);

/** This rank, 0 .. world_size - 1. */
CADRE_API int cadre_rank(const cadre_group *group);

/** The number of ranks, at least 1. */
CADRE_API int cadre_world_size(const cadre_group *group);

/** The transport in use: "inproc", "shm", "tcp", or "none" for a group of one. */
CADRE_API const char *cadre_transport_name(const cadre_group *group);

/**
 * How its reductions are carried out: "shared", in memory that all ranks reach;
 * "direct", by frames from each rank to each; "ring", by frames to the next
 * rank; "none" for a group of one.
 */
CADRE_API const char *cadre_algorithm_name(const cadre_group *group);

/** The order of reduction: "canonical" or "ring". */
CADRE_API const char *cadre_order_name(const cadre_group *group);

/**
 * Reduces count elements over all ranks into every rank's recv.
 *
 * Errors, here and in all collectives below:
 *     CADRE_ERR_INVALID_ARG  a buffer, type, op, count or root makes no sense,
 *                            or integers are to have a mean
 *     CADRE_ERR_NO_MEMORY, _IO  memory, or a descriptor for it, is lacking;
 *                            nothing was posted; the group is whole
 *     CADRE_ERR_STATE        too many works are posted (64)
 *     CADRE_ERR_DESYNC, _PEER_LOST, _TIMEOUT, _ABORTED  the group is broken
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_allreduce(cadre_group *group,
    const void *send, void *recv, size_t count, cadre_dtype dtype,
    cadre_reduce_op op, cadre_work **out);

/**
 * Reduces over all ranks; rank r gets part r.
 *
 * counts has world_size entries, the same on all ranks: part r is counts[r]
 * elements, parts lie one after another in send.  recv has room for this
 * rank's part.  In place means recv == send: the part lands at its front.
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_reduce_scatter(cadre_group *group,
    const void *send, void *recv, const size_t counts[], cadre_dtype dtype,
    cadre_reduce_op op, cadre_work **out);

/**
 * Gives every rank the parts of all, one after another in recv.
 *
 * counts has world_size entries, the same on all ranks; send holds counts[rank]
 * elements.  In place means that send is this rank's part of recv.
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_allgather(cadre_group *group,
    const void *send, void *recv, const size_t counts[], cadre_dtype dtype,
    cadre_work **out);

/** Gives every rank root's count elements of buffer. */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_broadcast(cadre_group *group,
    void *buffer, size_t count, cadre_dtype dtype, int root, cadre_work **out);

/** Returns, or is done, when every rank has called it. */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_barrier(
    cadre_group *group, cadre_work **out);

/**
 * Waits until the work is done and releases it: w is then no longer valid.
 *
 * timeout_ms: 0 means the group's own limit.  When the limit has passed the
 * status is CADRE_ERR_TIMEOUT, the group is broken, and the work released too.
 *
 * Errors: CADRE_ERR_STATE  it has been waited for already, as far as can be
 *                          seen: works are used again
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_work_wait(
    cadre_work *work, int timeout_ms);

/** Moves data and says whether the work is done.  Does not wait or release. */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_work_test(
    cadre_work *work, bool *done);

/**
 * Allocates zeroed memory that peers can reach where the transport allows it,
 * aligned to 64 bytes; give it to cadre_arena_free().  Collectives on such memory
 * copy nothing.  Of a broken group, others may still write to it for a while.
 *
 * Errors: CADRE_ERR_NO_MEMORY
 *         CADRE_ERR_IO  no descriptor is left to share it by
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_arena_alloc(
    cadre_group *group, size_t nbytes, void **out);

/** NULL is allowed. */
CADRE_API void cadre_arena_free(cadre_group *group, void *memory);

#ifdef __cplusplus
}
#endif

#endif // CADRE_GROUP_H
