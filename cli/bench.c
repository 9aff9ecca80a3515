// SPDX-License-Identifier: Apache-2.0
//
// cadre bench: measures a collective over ranks that it starts, as processes or
// as threads of this one; or is itself one rank of those that a launcher has
// started.

#include "bench_measure.h"
#include "bench_table.h"
#include "bind.h"
#include "command.h"
#include "failure.h"
#include "free_memory.h"
#include "launched.h"
#include "options.h"
#include "relaunch.h"
#include "stop.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 4096, MOST_CALLS = 1000000, MOST_WORDS = 64 };

static const char on_stop[] = "\ncadre: stopping; again: stop now\n";

typedef struct bench_wishes {
    int64_t n_ranks; // 0: the number of cores
    bench_words words;
    int64_t check;
    const char *bind;
    bool help;
    bool started; // by this command, as a rank
} bench_wishes;

static int refuse(const char *text)
{
    fprintf(stderr, "cadre bench: %s\n", text);
    return EXIT_REFUSED;
}

// --- One rank, whatever it is: this process or one of its threads

typedef struct bench_job {
    const bench_plan *plan;
    atomic_int exit_status; // written by all ranks, alike
    atomic_bool started;    // likewise: something was measured
} bench_job;

static void *allocate(cadre_group *world, const bench_plan *plan, size_t nbytes)
{
    void *buffer = NULL;
    enum { ALIGNMENT = 64 }; // that of arenas
    bool done = plan->arena
                    ? cadre_arena_alloc(world, nbytes, &buffer) == CADRE_OK
                    : posix_memalign(&buffer, ALIGNMENT, nbytes) == 0;
    return done ? buffer : NULL;
}

static void release(cadre_group *world, const bench_plan *plan, void *buffer)
{
    if (plan->arena) {
        cadre_arena_free(world, buffer);
    } else {
        free(buffer);
    }
}

// Whether this rank's part of the free memory is enough for its buffer, and as
// much again for what ranks send one another.
static bool has_room(int n_local, size_t nbytes)
{
    return nbytes <= free_memory() / 2 / (unsigned)n_local;
}

// Whether all ranks are fine; if not, the lowest that is not speaks for all.
static cadre_status agree(
    cadre_group *world, bool fine, bool *all_fine, bool *speaks)
{
    int64_t mine = fine ? 0 : cadre_world_size(world) - cadre_rank(world);
    int64_t any = 0;
    cadre_status status =
        cadre_allreduce(world, &mine, &any, 1, CADRE_I64, CADRE_MAX, NULL);
    *all_fine = any == 0;
    *speaks = any != 0 && any == mine;
    return status;
}

// Gives all ranks their buffers or none: then *buffer is NULL, and it has been
// said why.
static cadre_status get_buffer(
    cadre_group *world, const bench_plan *plan, size_t nbytes, void **buffer)
{
    int n_local = launched_local_ranks();
    n_local = n_local > 0 ? n_local : cadre_world_size(world);
    bool all_fine;
    bool speaks;
    *buffer = NULL;
    // All look before any takes.
    cadre_status status =
        agree(world, has_room(n_local, nbytes), &all_fine, &speaks);
    if (status == CADRE_OK && all_fine) {
        *buffer = allocate(world, plan, nbytes);
        status = agree(world, *buffer != NULL, &all_fine, &speaks);
    }
    if (status == CADRE_OK && all_fine) {
        return CADRE_OK;
    }
    if (status == CADRE_OK && speaks) {
        fprintf(stderr,
            "cadre bench: %d ranks with buffers of %zu MiB, and as much again "
            "to move them, do not fit into this host's free memory of %" PRIu64
            " MiB: choose a smaller -e\n",
            n_local, nbytes >> 20, free_memory() >> 20);
    }
    release(world, plan, *buffer);
    *buffer = NULL;
    return status;
}

static void take_note(cadre_group *world, bench_job *job, const bench_row *row)
{
    atomic_store(&job->started, true);
    if (cadre_rank(world) == 0) {
        bench_show_row(world, job->plan, row);
    }
    if (row->wrong == 0) {
        return;
    }
    atomic_store(&job->exit_status, EXIT_FAULT);
    if (cadre_rank(world) == 0) {
        fprintf(stderr,
            "cadre bench: %" PRId64 " elements came out wrong at %zu bytes: a "
            "fault of this program\n",
            row->wrong, row->nbytes);
    }
}

static cadre_status measure_all(
    cadre_group *world, bench_job *job, void *buffer)
{
    const bench_plan *plan = job->plan;
    for (size_t nbytes = bench_next_size(plan, 0); nbytes > 0;
         nbytes = bench_next_size(plan, nbytes)) {
        bench_row row;
        int stopped_by = 0;
        size_t count = bench_count(plan, cadre_world_size(world), nbytes);
        cadre_status status =
            bench_measure(world, plan, buffer, count, &row, &stopped_by);
        if (status != CADRE_OK) {
            return status;
        }
        if (stopped_by != 0) {
            atomic_store(&job->exit_status, EXIT_SIGNALLED + stopped_by);
            return CADRE_OK;
        }
        take_note(world, job, &row);
    }
    return CADRE_OK;
}

static cadre_status run_rank(cadre_group *world, void *ctx)
{
    bench_job *job = ctx;
    const bench_plan *plan = job->plan;
    int n = cadre_world_size(world);
    size_t count = bench_count(plan, n, plan->largest);
    size_t nbytes =
        bench_total(plan, n, count) * cadre_dtype_bytes(plan->dtype);
    void *buffer;
    cadre_status status = get_buffer(world, plan, nbytes, &buffer);
    if (status != CADRE_OK) {
        return status;
    }
    if (buffer == NULL) {
        atomic_store(&job->exit_status, EXIT_REFUSED);
        return CADRE_OK;
    }
    if (cadre_rank(world) == 0) {
        bench_show_head(world, plan);
    }
    status = measure_all(world, job, buffer);
    release(world, plan, buffer);
    return status;
}

static int outcome(cadre_status status, bench_job *job)
{
    return status == CADRE_OK
               ? atomic_load(&job->exit_status)
               : report_failure("bench", status, atomic_load(&job->started));
}

// --- The ways to run

static int run_as_threads(const bench_plan *plan, int n_ranks)
{
    bench_job job = {.plan = plan};
    stop_install(on_stop);
    cadre_status status =
        cadre_launch_threads(n_ranks, &plan->group, run_rank, &job, NULL);
    return outcome(status, &job);
}

// What a launcher has made of this process.
static int join_and_run(const bench_wishes *w, const bench_plan *plan)
{
    bench_job job = {.plan = plan};
    // A launcher of ours says itself that a signal came.
    bool says = !w->started && strcmp(launched_rank(), "0") == 0;
    stop_install(says ? on_stop : NULL);
    cadre_group *world;
    cadre_status status = cadre_init(&plan->group, &world);
    if (status != CADRE_OK) {
        return report_failure("bench", status, false);
    }
    int world_size = cadre_world_size(world);
    int exit_status = EXIT_REFUSED;
    if (!w->started && w->n_ranks > 0 && w->n_ranks != world_size) {
        fprintf(stderr,
            "cadre bench: -n %" PRId64 " under a launcher with %d ranks: leave "
            "-n out\n",
            w->n_ranks, world_size);
    } else {
        exit_status = outcome(run_rank(world, &job), &job);
    }
    cadre_finalize(world);
    return exit_status;
}

// Ranks get the same words as this process, and know that it started them.
static int launch(int n_ranks, cadre_bind bind, int argc, char **words)
{
    const char *argv[MOST_WORDS + 4] = {NULL, "bench", "--started"};
    for (int i = 1; i < argc; i++) {
        argv[i + 2] = words[i];
    }
    const cadre_launch_options options = {
        .n_ranks = n_ranks, .threads = 1, .bind = bind};
    return relaunch(argv, options);
}

// This process decides how many ranks there are.
static int bench_here(const bench_wishes *w, const bench_plan *plan,
    cadre_bind bind, int argc, char **words)
{
    int n_ranks = (int)w->n_ranks;
    if (n_ranks == 0) {
        n_ranks = core_count();
        fprintf(stderr, "cadre: %d ranks, one per core\n", n_ranks);
    }
    if (strcmp(plan->group.transport, "inproc") == 0) {
        return bind == CADRE_BIND_NONE
                   ? run_as_threads(plan, n_ranks)
                   : refuse("--bind core is for ranks that are processes: "
                            "choose another transport than inproc");
    }
    return launch(n_ranks, bind, argc, words);
}

// A launcher has decided it, and this process is one of the ranks.
static int bench_as_rank(
    const bench_wishes *w, const bench_plan *plan, cadre_bind bind)
{
    if (strcmp(plan->group.transport, "inproc") == 0) {
        return refuse("--transport is inproc, but a launcher has made this a "
                      "rank of its own: choose auto or tcp");
    }
    if (!w->started && bind != CADRE_BIND_NONE) {
        return refuse("a launcher has started this rank: --bind is for the "
                      "launcher");
    }
    return join_and_run(w, plan);
}

// --- The command line

static int help(const option *options, int n_options)
{
    printf("usage: cadre bench OP [options]\n\n"
           "Measures allreduce, reduce-scatter, allgather, broadcast or "
           "barrier, in place.\nEvery rank rewrites its buffer and waits in a "
           "barrier before each call.\n\n");
    options_help(options, n_options);
    printf("\nFor example:\n"
           "  cadre bench allreduce -n 2 -b 64K -e 64M -f 4 -d bf16\n");
    return EXIT_DONE;
}

static int run_command(const bench_wishes *w, bench_plan *plan, int n_words,
    char **words, int argc, char **argv)
{
    if (n_words != 1) {
        return refuse(n_words == 0 ? "no operation is given; `cadre bench "
                                     "--help` lists all"
                                   : "more than one operation is given");
    }
    bench_words known = w->words;
    known.op = words[0];
    cadre_bind bind;
    if (!bench_plan_read(&known, plan) ||
        !bind_from_word("bench", w->bind, &bind)) {
        return EXIT_REFUSED;
    }
    plan->check = w->check != 0;
    return is_launched() ? bench_as_rank(w, plan, bind)
                         : bench_here(w, plan, bind, argc, argv);
}

int command_bench(int argc, char **argv)
{
    bench_wishes w = {.check = 1};
    bench_plan plan = {.factor = 2, .warmups = 5};
    bench_words *words = &w.words;
    const option options[] = {
        {OPTION_NUMBER, "-n", "-np --np --nproc-per-node", "N",
            "ranks on this host (default: the number of cores)", &w.n_ranks, 1,
            MOST_RANKS},
        {OPTION_TEXT, "-b", "--minbytes", "SIZE",
            "smallest size: 4, 1K, 256M (default: 8)", &words->smallest, 0, 0},
        {OPTION_TEXT, "-e", "--maxbytes", "SIZE", "largest size (default: 64M)",
            &words->largest, 0, 0},
        {OPTION_NUMBER, "-f", "--stepfactor", "F",
            "from one size to the next (default: 2)", &plan.factor, 2, 1 << 20},
        {OPTION_TEXT, "-d", "--datatype", "TYPE",
            "f32 (default), bf16, f16, f64, i8, u8, i32, i64", &words->dtype, 0,
            0},
        {OPTION_TEXT, "-o", "--op", "REDOP",
            "sum (default), mean, min, max, product", &words->reduce_op, 0, 0},
        {OPTION_NUMBER, "-w", "--warmup-iters", "N",
            "calls before the timed ones (default: 5)", &plan.warmups, 0,
            MOST_CALLS},
        {OPTION_NUMBER, "-i", "--iters", "N",
            "timed calls (default: 10 to 500, by size)", &plan.iterations, 1,
            MOST_CALLS},
        {OPTION_NUMBER, "-c", "--check", "0|1",
            "check the bits of every result (default: 1)", &w.check, 0, 1},
        {OPTION_TEXT, "--transport", NULL, "NAME",
            "auto (default), shm, tcp; inproc: ranks are threads",
            &words->transport, 0, 0},
        {OPTION_TEXT, "--order", NULL, "NAME", "canonical (default) or ring",
            &words->order, 0, 0},
        {OPTION_TEXT, "--buffers", NULL, "KIND",
            "arena (default): the library's; user: the program's own",
            &words->buffers, 0, 0},
        {OPTION_TEXT, "--bind", NULL, "TO",
            "core: a core for each rank; none (default)", &w.bind, 0, 0},
        {OPTION_FLAG, "--json", NULL, NULL, "a line of JSON per size",
            &plan.json, 0, 0},
        {OPTION_FLAG, "--help", "-h", NULL, "show this text", &w.help, 0, 0},
        {.kind = OPTION_UNBUILT, .name = "--overlap"},
        // Not shown: launch() gives it to the ranks.
        {.kind = OPTION_FLAG, .name = "--started", .value = &w.started},
    };
    enum { N_OPTIONS = sizeof(options) / sizeof(options[0]) };
    if (argc > MOST_WORDS) {
        return refuse("there are too many words");
    }
    // Reading options changes their order; ranks get them as they were.
    char *given[MOST_WORDS];
    memcpy(given, argv, (size_t)argc * sizeof(argv[0]));
    int n_words;
    if (!options_parse("bench", options, N_OPTIONS, OPTION_WORDS_ANYWHERE, argc,
            argv, &n_words)) {
        return EXIT_REFUSED;
    }
    if (w.help) {
        return help(options, N_OPTIONS);
    }
    return run_command(&w, &plan, n_words, argv, argc, given);
}
