// SPDX-License-Identifier: Apache-2.0

#include "bench_plan.h"

#include "nearest.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct choice {
    const char *name;
    int value;
    bool unbuilt;
} choice;

enum { MOST_CHOICES = 12 };

// clang-format off
static const choice operations[] = {
    {"allreduce", BENCH_ALLREDUCE, false},
    {"reduce-scatter", BENCH_REDUCE_SCATTER, false},
    {"allgather", BENCH_ALLGATHER, false},
    {"broadcast", BENCH_BROADCAST, false},
    {"barrier", BENCH_BARRIER, false},
    {"reduce", 0, true}, {"alltoall", 0, true}, {"gather", 0, true},
    {"scatter", 0, true}, {"sendrecv", 0, true}, {NULL, 0, false}};
static const choice dtypes[] = {
    {"f32", CADRE_F32, false}, {"bf16", CADRE_BF16, false},
    {"f16", CADRE_F16, false}, {"f64", CADRE_F64, false},
    {"i8", CADRE_I8, false}, {"u8", CADRE_U8, false},
    {"i32", CADRE_I32, false}, {"i64", CADRE_I64, false}, {NULL, 0, false}};
static const choice reduce_ops[] = {
    {"sum", CADRE_SUM, false}, {"mean", CADRE_MEAN, false},
    {"min", CADRE_MIN, false}, {"max", CADRE_MAX, false},
    {"product", CADRE_PRODUCT, false}, {NULL, 0, false}};
static const choice transports[] = {
    {"auto", 0, false}, {"inproc", 0, false}, {"tcp", 0, false},
    {"shm", 0, false}, {"ucx", 0, true}, {NULL, 0, false}};
static const choice orders[] = {
    {"canonical", 0, false}, {"ring", 0, false}, {NULL, 0, false}};
static const choice buffers[] = {
    {"arena", true, false}, {"user", false, false}, {NULL, 0, false}};
// clang-format on

// Finds a word among those that are known, or says why it cannot be had.
static bool choose(const char *what, const choice *choices, const char *word,
    const choice **chosen)
{
    const char *names[MOST_CHOICES];
    int n = 0;
    for (const choice *c = choices; c->name != NULL; c++) {
        bool meant = strcmp(word, c->name) == 0;
        if (meant && c->unbuilt) {
            fprintf(
                stderr, "cadre bench: %s '%s' is not built yet\n", what, word);
            return false;
        }
        if (meant) {
            *chosen = c;
            return true;
        }
        names[n] = c->name;
        n += !c->unbuilt;
    }
    fprintf(stderr, "cadre bench: there is no %s '%s'; did you mean '%s'?\n",
        what, word, nearest(word, names, n));
    return false;
}

// Bytes: digits, and K, M or G for 2^10, 2^20, 2^30.
static bool read_size(const char *option, const char *text, size_t *nbytes)
{
    static const char suffixes[] = "KMG";
    char *end = NULL;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    const char *at =
        *end == '\0' ? NULL : strchr(suffixes, toupper((unsigned char)*end));
    int shift = at == NULL ? 0 : 10 * (int)(at - suffixes + 1);
    bool ended = *end == '\0' || (at != NULL && end[1] == '\0');
    if (!isdigit((unsigned char)*text) || !ended || errno != 0 || n == 0 ||
        n > (unsigned long long)PTRDIFF_MAX >> shift) {
        fprintf(stderr,
            "cadre bench: %s wants a number of bytes such as 4, 1K or 256M, "
            "not '%s'\n",
            option, text);
        return false;
    }
    *nbytes = (size_t)n << shift;
    return true;
}

static bool read_sizes(const bench_words *w, bench_plan *plan)
{
    enum { SMALLEST = 8, LARGEST = 64 << 20 };
    plan->smallest = SMALLEST;
    plan->largest = LARGEST;
    if ((w->smallest != NULL &&
            !read_size("-b", w->smallest, &plan->smallest)) ||
        (w->largest != NULL && !read_size("-e", w->largest, &plan->largest))) {
        return false;
    }
    if (plan->smallest > plan->largest) {
        if (w->smallest != NULL && w->largest != NULL) {
            fprintf(stderr,
                "cadre bench: the smallest size, -b %s, is above the largest, "
                "-e %s\n",
                w->smallest, w->largest);
            return false;
        }
        // The one that was given is meant.
        if (w->smallest != NULL) {
            plan->largest = plan->smallest;
        } else {
            plan->smallest = plan->largest;
        }
    }
    return true;
}

static bool is_float(cadre_dtype dtype)
{
    return dtype == CADRE_F32 || dtype == CADRE_F64 || dtype == CADRE_BF16 ||
           dtype == CADRE_F16;
}

static const char *or_else(const char *word, const char *otherwise)
{
    return word != NULL ? word : otherwise;
}

bool bench_plan_read(const bench_words *w, bench_plan *plan)
{
    const choice *op;
    const choice *dtype;
    const choice *reduce_op;
    const choice *transport;
    const choice *order;
    const choice *kind;
    if (!choose("operation", operations, w->op, &op) ||
        !choose("type", dtypes, or_else(w->dtype, "f32"), &dtype) ||
        !choose("reduce operation", reduce_ops, or_else(w->reduce_op, "sum"),
            &reduce_op) ||
        !choose("transport", transports, or_else(w->transport, "auto"),
            &transport) ||
        !choose("order", orders, or_else(w->order, "canonical"), &order) ||
        !choose(
            "kind of buffers", buffers, or_else(w->buffers, "arena"), &kind) ||
        !read_sizes(w, plan)) {
        return false;
    }
    plan->op = (bench_op)op->value;
    plan->op_name = op->name;
    plan->dtype = (cadre_dtype)dtype->value;
    plan->reduce_op = (cadre_reduce_op)reduce_op->value;
    plan->group.transport = transport->name;
    plan->group.order = order->name;
    plan->arena = kind->value != 0;
    if (bench_reduces(plan->op) && plan->reduce_op == CADRE_MEAN &&
        !is_float(plan->dtype)) {
        fprintf(stderr,
            "cadre bench: a mean of %s is not defined: choose floats or "
            "another -o\n",
            dtype->name);
        return false;
    }
    return true;
}

bool bench_reduces(bench_op op)
{
    return op == BENCH_ALLREDUCE || op == BENCH_REDUCE_SCATTER;
}

static bool has_parts(bench_op op)
{
    return op == BENCH_REDUCE_SCATTER || op == BENCH_ALLGATHER;
}

size_t bench_next_size(const bench_plan *plan, size_t nbytes)
{
    if (nbytes == 0) {
        return plan->smallest;
    }
    if (plan->op == BENCH_BARRIER ||
        nbytes > plan->largest / (size_t)plan->factor) {
        return 0;
    }
    return nbytes * (size_t)plan->factor;
}

size_t bench_count(const bench_plan *plan, int n_ranks, size_t nbytes)
{
    if (plan->op == BENCH_BARRIER) {
        return 0;
    }
    size_t n_parts = has_parts(plan->op) ? (size_t)n_ranks : 1;
    size_t count = nbytes / cadre_dtype_bytes(plan->dtype) / n_parts;
    return count > 0 ? count : 1;
}

size_t bench_total(const bench_plan *plan, int n_ranks, size_t count)
{
    return has_parts(plan->op) ? count * (size_t)n_ranks : count;
}

int64_t bench_iterations(const bench_plan *plan, size_t nbytes)
{
    // So many bytes in all: a second or so for each size.
    enum { FEWEST = 10, MOST = 500, BYTES = 256 << 20 };
    if (plan->iterations > 0) {
        return plan->iterations;
    }
    size_t n = nbytes == 0 ? MOST : BYTES / nbytes;
    return n < FEWEST ? FEWEST : n > MOST ? MOST : (int64_t)n;
}

double bench_bus_factor(bench_op op, int n_ranks)
{
    switch (op) {
    case BENCH_ALLREDUCE:
        return 2.0 * (n_ranks - 1) / n_ranks;
    case BENCH_REDUCE_SCATTER:
    case BENCH_ALLGATHER:
        return (double)(n_ranks - 1) / n_ranks;
    case BENCH_BROADCAST:
    case BENCH_BARRIER:
        break;
    }
    return 1;
}
