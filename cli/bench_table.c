// SPDX-License-Identifier: Apache-2.0

#include "bench_table.h"

#include "number.h"

#include <inttypes.h>
#include <stdio.h>

// A barrier has no elements.
static const char *dtype_name(const bench_plan *plan)
{
    return plan->op == BENCH_BARRIER ? "none" : cadre_dtype_name(plan->dtype);
}

static const char *buffers_name(const bench_plan *plan)
{
    return plan->arena ? "arena" : "user";
}

void bench_show_head(const cadre_group *world, const bench_plan *plan)
{
    if (plan->json) {
        return;
    }
    int n = cadre_world_size(world);
    printf("# cadre bench %s: %d rank%s, transport %s, algorithm %s, buffers "
           "%s, in place\n"
           "# time: the median of calls, each as long as on its slowest rank; "
           "GB/s: 10^9 bytes\n"
           "#\n",
        plan->op_name, n, n == 1 ? "" : "s", cadre_transport_name(world),
        cadre_algorithm_name(world), buffers_name(plan));
    printf("# %10s  %12s  %7s  %7s  %4s  %10s  %7s  %7s  %6s\n", "size",
        "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong");
    printf("# %10s  %12s  %7s  %7s  %4s  %10s  %7s  %7s\n", "(B)", "(elements)",
        "", "", "", "(us)", "(GB/s)", "(GB/s)");
    (void)fflush(stdout);
}

static void show_columns(const bench_plan *plan, const bench_row *row)
{
    char wrong[24] = "N/A";
    if (plan->check) {
        snprintf(wrong, sizeof(wrong), "%" PRId64, row->wrong);
    }
    printf("%12zu  %12zu  %7s  %7s  %4d  %10.2f  %7.3f  %7.3f  %6s\n",
        row->nbytes, row->count, dtype_name(plan),
        bench_reduces(plan->op) ? cadre_reduce_op_name(plan->reduce_op)
                                : "none",
        plan->op == BENCH_BROADCAST ? 0 : -1, row->median_us, row->algbw_gbs,
        row->busbw_gbs, wrong);
}

static void show_json(
    const cadre_group *world, const bench_plan *plan, const bench_row *row)
{
    char median[NUMBER_BYTES];
    char p95[NUMBER_BYTES];
    char algbw[NUMBER_BYTES];
    char busbw[NUMBER_BYTES];
    char wrong[NUMBER_BYTES] = "null";
    real_to_text(row->median_us, median);
    real_to_text(row->p95_us, p95);
    real_to_text(row->algbw_gbs, algbw);
    real_to_text(row->busbw_gbs, busbw);
    if (plan->check) {
        snprintf(wrong, sizeof(wrong), "%" PRId64, row->wrong);
    }
    printf("{\"op\": \"%s\", \"bytes\": %zu, \"count\": %zu, "
           "\"dtype\": \"%s\", \"ranks\": %d, \"transport\": \"%s\", "
           "\"algorithm\": \"%s\", \"buffers\": \"%s\", ",
        plan->op_name, row->nbytes, row->count, dtype_name(plan),
        cadre_world_size(world), cadre_transport_name(world),
        cadre_algorithm_name(world), buffers_name(plan));
    printf("\"median_us\": %s, \"p95_us\": %s, \"algbw_gbs\": %s, "
           "\"busbw_gbs\": %s, \"wrong\": %s}\n",
        median, p95, algbw, busbw, wrong);
}

void bench_show_row(
    const cadre_group *world, const bench_plan *plan, const bench_row *row)
{
    if (plan->json) {
        show_json(world, plan, row);
    } else {
        show_columns(plan, row);
    }
    (void)fflush(stdout);
}
