// SPDX-License-Identifier: Apache-2.0
//
// What `cadre bench` is asked to measure: words and numbers of the command line
// become a plan, or are refused in one sentence.

#ifndef CADRE_CLI_BENCH_PLAN_H
#define CADRE_CLI_BENCH_PLAN_H

#include <cadre/group.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum bench_op {
    BENCH_ALLREDUCE,
    BENCH_REDUCE_SCATTER,
    BENCH_ALLGATHER,
    BENCH_BROADCAST,
    BENCH_BARRIER,
} bench_op;

// The words as they were given; NULL: not given.
typedef struct bench_words {
    const char *op;
    const char *smallest;
    const char *largest;
    const char *dtype;
    const char *reduce_op;
    const char *transport;
    const char *order;
    const char *buffers;
} bench_words;

typedef struct bench_plan {
    bench_op op;
    const char *op_name;
    cadre_dtype dtype;
    cadre_reduce_op reduce_op;
    size_t smallest; // bytes
    size_t largest;  // bytes
    int64_t factor;  // from one size to the next
    int64_t warmups;
    int64_t iterations; // 0: by size
    bool check;
    bool arena; // else memory of this program's own
    bool json;
    cadre_init_options group;
} bench_plan;

/**
 * Reads the words into the plan; the plan's numbers are the caller's.  False
 * when one makes no sense, and it has been said.
 */
bool bench_plan_read(const bench_words *words, bench_plan *plan);

/** Whether the operation reduces, and so has a reduce operation. */
bool bench_reduces(bench_op op);

/** The sizes of the plan, one after another; 0 when there are no more. */
size_t bench_next_size(const bench_plan *plan, size_t nbytes);

/**
 * Elements of a call of about nbytes, at least one: of each rank's part where
 * the operation has parts, else of the whole vector.
 */
size_t bench_count(const bench_plan *plan, int n_ranks, size_t nbytes);

/** Elements of the whole vector, of `count` as above. */
size_t bench_total(const bench_plan *plan, int n_ranks, size_t count);

/** Timed calls for a vector of nbytes: fewer, the longer one takes. */
int64_t bench_iterations(const bench_plan *plan, size_t nbytes);

/** Bus bandwidth over bandwidth, as nccl-tests define it. */
double bench_bus_factor(bench_op op, int n_ranks);

#endif // CADRE_CLI_BENCH_PLAN_H
