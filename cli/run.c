// SPDX-License-Identifier: Apache-2.0
//
// cadre run: starts a program as N ranks on this host.

#include "bind.h"
#include "command.h"
#include "launched.h"
#include "options.h"

#include <cadre/launch.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 4096 };

typedef struct wishes {
    int64_t n_ranks; // 0: the number of cores
    int64_t threads; // 0: the cores divided among the ranks
    const char *bind;
    const char *log_dir;
    bool tag;
    bool help;
} wishes;

static void help(const option *options, int n_options)
{
    printf("usage: cadre run [options] [--] PROGRAM [ARGS...]\n\n"
           "Starts PROGRAM as N ranks on this host, watches over them and "
           "passes on the\nexit status of the first that fails "
           "(128 + signal if one killed it).\n\n");
    options_help(options, n_options);
    printf(
        "\nEach rank finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, "
        "MASTER_ADDR,\nMASTER_PORT and OMP_NUM_THREADS in its environment, and "
        "CADRE_RANK,\nCADRE_WORLD_SIZE, CADRE_LOCAL_RANK, "
        "CADRE_LOCAL_WORLD_SIZE, CADRE_STORE and\nCADRE_SECRET_FD.\n\n"
        "For example:\n"
        "  cadre run -n 2 --tag ./my_program --epochs 3\n");
}

// How the first failing rank ended, and the last it said.
static void show_failure(const cadre_launch_result *result)
{
    fprintf(stderr, "cadre: %s\n", result->text);
    if (result->last_lines[0] == '\0') {
        return;
    }
    fprintf(stderr, "cadre: the last lines of its standard error:\n");
    const char *line = result->last_lines;
    while (*line != '\0') {
        int nbytes = (int)strcspn(line, "\n");
        fprintf(stderr, "    | %.*s\n", nbytes, line);
        line += nbytes + (line[nbytes] == '\n' ? 1 : 0);
    }
}

static int exit_status(cadre_status status, const cadre_launch_result *result)
{
    if (status != CADRE_OK) {
        fprintf(stderr, "cadre run: %s\n", cadre_error_text());
        return status == CADRE_ERR_NOT_FOUND  ? result->exit_status
               : status == CADRE_ERR_INTERNAL ? EXIT_FAULT
                                              : EXIT_REFUSED;
    }
    if (result->text[0] != '\0') {
        show_failure(result);
    }
    return result->stopped_by != 0 ? EXIT_SIGNALLED + result->stopped_by
                                   : result->exit_status;
}

static int launch(const wishes *w, char **argv)
{
    cadre_launch_options options = {
        .n_ranks = (int)w->n_ranks,
        .argv = (const char *const *)argv,
        .threads = (int)w->threads,
        .tag = w->tag,
        .log_dir = w->log_dir,
    };
    if (!bind_from_word("run", w->bind, &options.bind)) {
        return EXIT_REFUSED;
    }
    if (options.n_ranks == 0) {
        options.n_ranks = core_count();
        fprintf(stderr, "cadre: %d ranks, one per core\n", options.n_ranks);
    }
    cadre_launch_result result;
    cadre_status status = cadre_launch(&options, &result);
    return exit_status(status, &result);
}

int command_run(int argc, char **argv)
{
    wishes w = {0};
    const option options[] = {
        {OPTION_NUMBER, "-n", "-np --nproc-per-node --np", "N",
            "ranks on this host (default: the number of cores)", &w.n_ranks, 1,
            MOST_RANKS},
        {OPTION_NUMBER, "--threads", NULL, "T",
            "OMP_NUM_THREADS (default: cores / ranks, at least 1)", &w.threads,
            1, MOST_RANKS},
        {OPTION_TEXT, "--bind", NULL, "TO",
            "core: each rank has cores of its own; none (default)", &w.bind, 0,
            0},
        {OPTION_TEXT, "--log-dir", NULL, "DIR",
            "also write each rank's output to DIR/rank-R.log", &w.log_dir, 0,
            0},
        {OPTION_FLAG, "--tag", NULL, NULL,
            "put [host:rank] before each line of output", &w.tag, 0, 0},
        {OPTION_FLAG, "--help", "-h", NULL, "show this text", &w.help, 0, 0},
        {.kind = OPTION_UNBUILT, .name = "--nnodes"},
        {.kind = OPTION_UNBUILT, .name = "--node-rank"},
        {.kind = OPTION_UNBUILT, .name = "--rdzv"},
        {.kind = OPTION_UNBUILT, .name = "--hosts"},
        {.kind = OPTION_UNBUILT, .name = "--hostfile"},
        {.kind = OPTION_UNBUILT, .name = "-H"},
        {.kind = OPTION_UNBUILT, .name = "-x"},
        {.kind = OPTION_UNBUILT, .name = "--max-restarts"},
    };
    enum { N_OPTIONS = sizeof(options) / sizeof(options[0]) };
    int n_words;
    if (!options_parse("run", options, N_OPTIONS, OPTION_WORDS_LAST, argc, argv,
            &n_words)) {
        return EXIT_REFUSED;
    }
    if (w.help) {
        help(options, N_OPTIONS);
        return EXIT_DONE;
    }
    if (n_words == 0) {
        fprintf(stderr,
            "cadre run: no program to run: cadre run [options] PROGRAM "
            "[ARGS...]\n");
        return EXIT_REFUSED;
    }
    argv[n_words] = NULL;
    return launch(&w, argv);
}
