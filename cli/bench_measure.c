// SPDX-License-Identifier: Apache-2.0

#include "bench_measure.h"

#include "bench_pattern.h"
#include "stop.h"

#include <stdlib.h>
#include <time.h>

enum { ROOT = 0 };

typedef struct measurement {
    cadre_group *world;
    const bench_plan *plan;
    int rank;
    int n_ranks;
    uint8_t *buffer;
    size_t count;
    size_t total;
    size_t *counts; // the parts, all of count
    pattern_kind kind;
    pattern own;
    pattern result;
    double *us; // of each timed call
    int64_t n;  // of them
    int64_t wrong;
} measurement;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// In place, as gradients are.
static cadre_status call(const measurement *m)
{
    const bench_plan *p = m->plan;
    size_t own_first = m->count * (size_t)m->rank * cadre_dtype_bytes(p->dtype);
    switch (p->op) {
    case BENCH_ALLREDUCE:
        return cadre_allreduce(m->world, m->buffer, m->buffer, m->count,
            p->dtype, p->reduce_op, NULL);
    case BENCH_REDUCE_SCATTER:
        return cadre_reduce_scatter(m->world, m->buffer, m->buffer, m->counts,
            p->dtype, p->reduce_op, NULL);
    case BENCH_ALLGATHER:
        return cadre_allgather(m->world, m->buffer + own_first, m->buffer,
            m->counts, p->dtype, NULL);
    case BENCH_BROADCAST:
        return cadre_broadcast(
            m->world, m->buffer, m->count, p->dtype, ROOT, NULL);
    case BENCH_BARRIER:
        break;
    }
    return cadre_barrier(m->world, NULL);
}

// Parts of all ranks, each with what its owner brought.
static size_t count_wrong_parts(const measurement *m)
{
    size_t wrong = 0;
    size_t part_bytes = m->count * cadre_dtype_bytes(m->plan->dtype);
    for (int r = 0; r < m->n_ranks; r++) {
        const pattern p = pattern_of_rank(&m->kind, r);
        wrong += pattern_count_wrong(&p, (size_t)r * m->count, m->count,
            m->buffer + (size_t)r * part_bytes);
    }
    return wrong;
}

static size_t count_wrong(const measurement *m)
{
    switch (m->plan->op) {
    case BENCH_ALLREDUCE:
    case BENCH_BROADCAST:
        return pattern_count_wrong(&m->result, 0, m->count, m->buffer);
    case BENCH_REDUCE_SCATTER:
        return pattern_count_wrong(
            &m->result, (size_t)m->rank * m->count, m->count, m->buffer);
    case BENCH_ALLGATHER:
        return count_wrong_parts(m);
    case BENCH_BARRIER:
        break;
    }
    return 0;
}

// Whether a signal has come to any rank: they stop together.
static cadre_status agree_to_stop(const measurement *m, int *stopped_by)
{
    int64_t any = stop_signal(NULL);
    cadre_status status =
        cadre_allreduce(m->world, &any, &any, 1, CADRE_I64, CADRE_MAX, NULL);
    *stopped_by = (int)any;
    return status;
}

static cadre_status call_once(measurement *m, double *us)
{
    pattern_write(&m->own, 0, m->total, m->buffer);
    cadre_status status = cadre_barrier(m->world, NULL);
    if (status != CADRE_OK) {
        return status;
    }
    int64_t start = now_ns();
    status = call(m);
    *us = (double)(now_ns() - start) / 1e3;
    if (status == CADRE_OK && m->plan->check) {
        m->wrong += (int64_t)count_wrong(m);
    }
    return status;
}

static cadre_status call_many(measurement *m, int *stopped_by)
{
    // Often enough for who waits, seldom enough to cost nothing.
    int64_t calls_between = m->total < 1 << 20 ? 32 : 1;
    double warm_up_us;
    *stopped_by = 0;
    for (int64_t i = -m->plan->warmups; i < m->n; i++) {
        cadre_status status = CADRE_OK;
        if (i % calls_between == 0) {
            status = agree_to_stop(m, stopped_by);
        }
        if (status == CADRE_OK && *stopped_by == 0) {
            status = call_once(m, i < 0 ? &warm_up_us : &m->us[i]);
        }
        if (status != CADRE_OK || *stopped_by != 0) {
            return status;
        }
    }
    return CADRE_OK;
}

// What all ranks saw: the slowest of each call, and every wrong element.
static cadre_status gather(measurement *m)
{
    cadre_status status = cadre_allreduce(
        m->world, m->us, m->us, (size_t)m->n, CADRE_F64, CADRE_MAX, NULL);
    return status == CADRE_OK ? cadre_allreduce(m->world, &m->wrong, &m->wrong,
                                    1, CADRE_I64, CADRE_SUM, NULL)
                              : status;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static bench_row make_row(measurement *m)
{
    qsort(m->us, (size_t)m->n, sizeof(m->us[0]), compare);
    int64_t middle = m->n / 2;
    double median =
        m->n % 2 == 1 ? m->us[middle] : (m->us[middle - 1] + m->us[middle]) / 2;
    size_t nbytes = m->total * cadre_dtype_bytes(m->plan->dtype);
    // A clock that does not move would make a bandwidth of infinity.
    double algbw = median > 0 ? (double)nbytes / median / 1e3 : 0;
    return (bench_row){
        .nbytes = nbytes,
        .count = m->count,
        .median_us = median,
        .p95_us = m->us[(m->n * 95 + 99) / 100 - 1],
        .algbw_gbs = algbw,
        .busbw_gbs = algbw * bench_bus_factor(m->plan->op, m->n_ranks),
        .wrong = m->wrong,
    };
}

// What ranks bring, and what is to come out.
static void make_patterns(measurement *m)
{
    m->kind = (pattern_kind){
        .dtype = m->plan->dtype,
        .reduced = bench_reduces(m->plan->op),
        .op = m->plan->reduce_op,
        .n_ranks = m->n_ranks,
    };
    m->own = pattern_of_rank(&m->kind, m->rank);
    m->result = m->kind.reduced ? pattern_of_result(&m->kind)
                                : pattern_of_rank(&m->kind, ROOT);
}

cadre_status bench_measure(cadre_group *world, const bench_plan *plan,
    void *buffer, size_t count, bench_row *row, int *stopped_by)
{
    measurement m = {
        .world = world,
        .plan = plan,
        .rank = cadre_rank(world),
        .n_ranks = cadre_world_size(world),
        .buffer = buffer,
        .count = count,
    };
    m.total = bench_total(plan, m.n_ranks, count);
    m.n = bench_iterations(plan, m.total * cadre_dtype_bytes(plan->dtype));
    m.us = calloc((size_t)m.n, sizeof(m.us[0]));
    m.counts = calloc((size_t)m.n_ranks, sizeof(m.counts[0]));
    cadre_status status =
        m.us == NULL || m.counts == NULL ? CADRE_ERR_NO_MEMORY : CADRE_OK;
    if (status == CADRE_OK) {
        for (int r = 0; r < m.n_ranks; r++) {
            m.counts[r] = count;
        }
        make_patterns(&m);
        status = call_many(&m, stopped_by);
    }
    if (status == CADRE_OK && *stopped_by == 0) {
        status = gather(&m);
        *row = make_row(&m);
    }
    free(m.us);
    free(m.counts);
    return status;
}
