// SPDX-License-Identifier: Apache-2.0
//
// One collective of MPI at one size, measured as `cadre bench` does its own:
// f32, sum, in place; before every call each rank writes its whole buffer anew
// and waits in a barrier; after it, it checks every element.  Only the call is
// timed, and it takes as long as on its slowest rank.
//
//     mpirun -n 2 mpi_collective allreduce BYTES WARM-UPS ITERATIONS
//
// Rank 0 prints a line of JSON.  Any MPI builds it.

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PERIOD = 251, ROOT = 0, ALIGNMENT = 64 };

typedef enum operation {
    ALLREDUCE,
    REDUCE_SCATTER,
    ALLGATHER,
    BROADCAST,
    N_OPERATIONS,
} operation;

// As cadre bench calls them.
static const char *const names[N_OPERATIONS] = {
    "allreduce", "reduce-scatter", "allgather", "broadcast"};

typedef struct contest {
    operation op;
    int rank;
    int n_ranks;
    int count; // of a part where there are parts, else of the vector
    int total;
    float *buffer;
    float own[2 * PERIOD];    // what this rank brings, two periods
    float result[2 * PERIOD]; // what comes out of a reduction, or of the root
} contest;

static int number_at(int i)
{
    return i % PERIOD * (i % PERIOD) % PERIOD;
}

static float element_of(operation op, int rank, int i)
{
    if (op == ALLREDUCE || op == REDUCE_SCATTER) {
        return (float)((3 * rank + number_at(i)) % 7 - 3);
    }
    return (float)((3 * rank + number_at(i)) % 127);
}

static void make_patterns(contest *c)
{
    int reduced = c->op == ALLREDUCE || c->op == REDUCE_SCATTER;
    for (int i = 0; i < 2 * PERIOD; i++) {
        c->own[i] = element_of(c->op, c->rank, i);
        c->result[i] = element_of(c->op, ROOT, i);
        for (int r = 1; reduced && r < c->n_ranks; r++) {
            c->result[i] += element_of(c->op, r, i); // exact
        }
    }
}

static void rewrite(const contest *c)
{
    for (int i = 0; i < c->total; i += PERIOD) {
        int left = c->total - i;
        size_t n = (size_t)(left < PERIOD ? left : PERIOD);
        memcpy(c->buffer + i, c->own, n * sizeof(float));
    }
}

static void call(const contest *c)
{
    switch (c->op) {
    case ALLREDUCE:
        MPI_Allreduce(MPI_IN_PLACE, c->buffer, c->count, MPI_FLOAT, MPI_SUM,
            MPI_COMM_WORLD);
        break;
    case REDUCE_SCATTER:
        MPI_Reduce_scatter_block(MPI_IN_PLACE, c->buffer, c->count, MPI_FLOAT,
            MPI_SUM, MPI_COMM_WORLD);
        break;
    case ALLGATHER:
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, c->buffer, c->count,
            MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case BROADCAST:
        MPI_Bcast(c->buffer, c->count, MPI_FLOAT, ROOT, MPI_COMM_WORLD);
        break;
    case N_OPERATIONS:
        break;
    }
}

static long differences(
    const float *expected, int first, int count, const float *found)
{
    long wrong = 0;
    for (int i = 0; i < count; i += PERIOD) {
        int n = count - i < PERIOD ? count - i : PERIOD;
        const float *e = expected + first % PERIOD;
        if (memcmp(e, found + i, (size_t)n * sizeof(float)) == 0) {
            continue;
        }
        for (int k = 0; k < n; k++) {
            wrong += memcmp(e + k, found + i + k, sizeof(float)) != 0;
        }
    }
    return wrong;
}

static long count_wrong_parts(const contest *c)
{
    long wrong = 0;
    float brought[2 * PERIOD];
    for (int r = 0; r < c->n_ranks; r++) {
        for (int i = 0; i < 2 * PERIOD; i++) {
            brought[i] = element_of(c->op, r, i);
        }
        wrong += differences(
            brought, r * c->count, c->count, c->buffer + r * c->count);
    }
    return wrong;
}

static long count_wrong(const contest *c)
{
    switch (c->op) {
    case ALLREDUCE:
    case BROADCAST:
        return differences(c->result, 0, c->count, c->buffer);
    case REDUCE_SCATTER:
        return differences(c->result, c->rank * c->count, c->count, c->buffer);
    case ALLGATHER:
        return count_wrong_parts(c);
    case N_OPERATIONS:
        break;
    }
    return 0;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const contest *c, double *us, int n, long wrong)
{
    qsort(us, (size_t)n, sizeof(us[0]), compare);
    double median = n % 2 == 1 ? us[n / 2] : (us[n / 2 - 1] + us[n / 2]) / 2;
    printf("{\"op\": \"%s\", \"bytes\": %zu, \"ranks\": %d, "
           "\"median_us\": %.3f, \"p95_us\": %.3f, \"wrong\": %ld}\n",
        names[c->op], (size_t)c->total * sizeof(float), c->n_ranks, median,
        us[(n * 95 + 99) / 100 - 1], wrong);
}

static void measure(const contest *c, int n_warm_ups, int n)
{
    double *us = calloc((size_t)n, sizeof(us[0]));
    if (us == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 1);
        return;
    }
    long wrong = 0;
    for (int i = -n_warm_ups; i < n; i++) {
        rewrite(c);
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        call(c);
        double took = MPI_Wtime() - start;
        us[i < 0 ? 0 : i] = took * 1e6;
        wrong += count_wrong(c);
    }
    MPI_Allreduce(MPI_IN_PLACE, us, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (c->rank == 0) {
        report(c, us, n, wrong);
    }
    free(us);
}

// A whole number of at least `lowest`, or -1.
static long number_from(const char *text, long lowest)
{
    char *end = NULL;
    long n = strtol(text, &end, 10);
    return *text != '\0' && *end == '\0' && n >= lowest ? n : -1;
}

// Reads the arguments; 0 if they make no sense.
static int read_arguments(
    contest *c, int argc, char **argv, int *n_warm_ups, int *n)
{
    if (argc != 5) {
        return 0;
    }
    while (c->op < N_OPERATIONS && strcmp(argv[1], names[c->op]) != 0) {
        c->op++;
    }
    long nbytes = number_from(argv[2], 4);
    long warm_ups = number_from(argv[3], 0);
    long iterations = number_from(argv[4], 1);
    if (c->op == N_OPERATIONS || nbytes < 0 || warm_ups < 0 || iterations < 0 ||
        iterations > 1000000 || warm_ups > 1000000 ||
        nbytes / 4 > INT_MAX - PERIOD) {
        return 0;
    }
    int n_parts =
        c->op == REDUCE_SCATTER || c->op == ALLGATHER ? c->n_ranks : 1;
    long count = nbytes / 4 / n_parts;
    c->count = count > 0 ? (int)count : 1;
    c->total = c->count * n_parts;
    *n_warm_ups = (int)warm_ups;
    *n = (int)iterations;
    return 1;
}

int main(int argc, char **argv)
{
    contest c = {.op = ALLREDUCE};
    int n_warm_ups;
    int n;
    void *memory = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &c.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &c.n_ranks);
    if (!read_arguments(&c, argc, argv, &n_warm_ups, &n)) {
        fprintf(stderr,
            "usage: mpi_collective OPERATION BYTES WARM-UPS ITERATIONS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    if (posix_memalign(&memory, ALIGNMENT, (size_t)c.total * sizeof(float)) !=
        0) {
        fprintf(stderr, "mpi_collective: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }
    c.buffer = memory;
    make_patterns(&c);
    measure(&c, n_warm_ups, n);
    free(memory);
    MPI_Finalize();
    return 0;
}
