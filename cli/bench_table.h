// SPDX-License-Identifier: Apache-2.0
//
// How `cadre bench` shows what it measured, row by row as it comes: in the
// columns of nccl-tests, or as a line of JSON per size.

#ifndef CADRE_CLI_BENCH_TABLE_H
#define CADRE_CLI_BENCH_TABLE_H

#include "bench_measure.h"

/** What stands above the rows; of JSON nothing. */
void bench_show_head(const cadre_group *world, const bench_plan *plan);

void bench_show_row(
    const cadre_group *world, const bench_plan *plan, const bench_row *row);

#endif // CADRE_CLI_BENCH_TABLE_H
