// SPDX-License-Identifier: Apache-2.0
//
// A rank for tests: all-reduces until it is told to stop, or until something
// goes wrong, which it says on standard error before it exits with status 3.
//
//     rank_program [steps=N] [timeout=MS] [early=RANK] [status=RANK:STATUS]
//                  [desync=RANK] [pause=MS] [pids=PATH] [log=1]
//
// early: this rank finishes after half of the steps, as if all were done.
// status: this rank exits with that status after half of the steps.
// desync: this rank calls another collective after half of the steps.
// pids: when the ranks are under way, each writes its process number to the file
// PATH.RANK.
// log: warnings of the library go to standard error.

#include <cadre/group.h>
#include <cadre/log.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 10000, FAILED = 3 };

typedef struct wishes {
    long steps; // -1: for ever
    long timeout_ms;
    long pause_ms; // between steps
    int early;
    int failing;
    int failing_status;
    int disagreeing;
    const char *pids;
    bool logs;
} wishes;

static void show(
    cadre_log_level level, const char *component, const char *line, void *ctx)
{
    (void)level;
    (void)ctx;
    fprintf(stderr, "%s: %s\n", component, line);
}

static const char *value_of(const char *argument, const char *name)
{
    size_t n = strlen(name);
    return strncmp(argument, name, n) == 0 && argument[n] == '='
               ? argument + n + 1
               : NULL;
}

static void read_wish(const char *argument, wishes *w)
{
    const char *value;
    if ((value = value_of(argument, "steps")) != NULL) {
        w->steps = strtol(value, NULL, 10);
    } else if ((value = value_of(argument, "timeout")) != NULL) {
        w->timeout_ms = strtol(value, NULL, 10);
    } else if ((value = value_of(argument, "pause")) != NULL) {
        w->pause_ms = strtol(value, NULL, 10);
    } else if ((value = value_of(argument, "early")) != NULL) {
        w->early = (int)strtol(value, NULL, 10);
    } else if ((value = value_of(argument, "desync")) != NULL) {
        w->disagreeing = (int)strtol(value, NULL, 10);
    } else if ((value = value_of(argument, "pids")) != NULL) {
        w->pids = value;
    } else if ((value = value_of(argument, "log")) != NULL) {
        w->logs = *value == '1';
    } else if ((value = value_of(argument, "status")) != NULL) {
        char *end;
        w->failing = (int)strtol(value, &end, 10);
        w->failing_status = (int)strtol(end + 1, NULL, 10);
    } else {
        fprintf(stderr, "rank_program: what is '%s'?\n", argument);
        exit(EXIT_FAILURE);
    }
}

static int failed(int rank)
{
    fprintf(stderr, "rank %d says: %s\n", rank, cadre_error_text());
    return FAILED;
}

static void rest(long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

// Aside and renamed, so that whoever sees the file sees the number.
static void write_pid(const char *path, int rank)
{
    char aside[512];
    char name[512];
    snprintf(aside, sizeof(aside), "%s.%d.part", path, rank);
    snprintf(name, sizeof(name), "%s.%d", path, rank);
    FILE *file = fopen(aside, "w");
    if (file != NULL) {
        fprintf(file, "%d\n", (int)getpid());
        fclose(file);
        rename(aside, name);
    }
}

// Status 0 to go on; the sums are checked, so that nobody mistakes silence for
// success.
static int step(cadre_group *world, const wishes *w, long i, float *data)
{
    int rank = cadre_rank(world);
    bool middle = i == w->steps / 2;
    if (middle && rank == w->disagreeing) {
        return cadre_barrier(world, NULL) == CADRE_OK ? 0 : failed(rank);
    }
    for (int k = 0; k < COUNT; k++) {
        data[k] = (float)(rank + 1);
    }
    if (cadre_allreduce(world, data, data, COUNT, CADRE_F32, CADRE_SUM, NULL) !=
        CADRE_OK) {
        return failed(rank);
    }
    int n = cadre_world_size(world);
    int sum_of_ranks = n * (n + 1) / 2;
    float wanted = (float)sum_of_ranks;
    if (data[0] < wanted || data[COUNT - 1] > wanted) {
        fprintf(stderr, "rank %d got a wrong sum\n", rank);
        return EXIT_FAILURE;
    }
    if (i == 0 && w->pids != NULL) {
        write_pid(w->pids, rank);
    }
    rest(w->pause_ms);
    return 0;
}

int main(int argc, char **argv)
{
    static float data[COUNT];
    wishes w = {.steps = 10, .early = -1, .failing = -1, .disagreeing = -1};
    for (int i = 1; i < argc; i++) {
        read_wish(argv[i], &w);
    }
    if (w.logs) {
        cadre_log_set_sink(CADRE_LOG_WARN, show, NULL);
    }
    cadre_init_options options = {.timeout_ms = (int)w.timeout_ms};
    // A rank that ends early still has it: it is lost, not leaked.
    static cadre_group *world;
    if (cadre_init(&options, &world) != CADRE_OK) {
        return failed(-1);
    }
    int rank = cadre_rank(world);
    int status = 0;
    for (long i = 0; status == 0 && (w.steps < 0 || i < w.steps); i++) {
        bool middle = i == w.steps / 2;
        if (middle && rank == w.early) {
            break;
        }
        if (middle && rank == w.failing) {
            return w.failing_status;
        }
        status = step(world, &w, i, data);
    }
    cadre_finalize(world);
    if (status == 0) {
        printf("rank %d of %s is done\n", rank, getenv("WORLD_SIZE"));
    }
    return status;
}
