// SPDX-License-Identifier: Apache-2.0
//
// Times a collective at one size.
//
// Before every call, warm-up or not, each rank writes its whole buffer anew and
// waits in a barrier; after it, it checks what came out.  Only the call itself
// is timed, and it took as long as on its slowest rank.
//
// Memory:  borrows the group, the plan and the buffer.
// Threads: one per rank.

#ifndef CADRE_CLI_BENCH_MEASURE_H
#define CADRE_CLI_BENCH_MEASURE_H

#include "bench_plan.h"

typedef struct bench_row {
    size_t nbytes; // what is meant by a call's size, as nccl-tests have it
    size_t count;
    double median_us;
    double p95_us;
    double algbw_gbs;
    double busbw_gbs;
    int64_t wrong; // elements of all ranks and calls; 0 if nothing was checked
} bench_row;

/**
 * Measures calls of `count` elements (bench_count()) in a buffer that holds
 * them.  Every rank gets the same row.  *stopped_by: the signal that came, to
 * whichever rank, and then there is no row; or 0.
 */
CADRE_MUST_CHECK cadre_status bench_measure(cadre_group *world,
    const bench_plan *plan, void *buffer, size_t count, bench_row *row,
    int *stopped_by);

#endif // CADRE_CLI_BENCH_MEASURE_H
