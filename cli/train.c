// SPDX-License-Identifier: Apache-2.0
//
// cadre train: makes a configuration of a recipe, files, keys and options, and
// runs it: as this process, as threads of it, or as ranks that it starts and
// watches.  Ranks are started with the run's config.yaml, so that what is
// written down is what is run.

#include "bind.h"
#include "command.h"
#include "display.h"
#include "failure.h"
#include "keys.h"
#include "launched.h"
#include "log_lines.h"
#include "number.h"
#include "options.h"
#include "relaunch.h"
#include "run_folder.h"
#include "stop.h"
#include "train_config.h"
#include "yaml.h"

#include <cadre/launch.h>
#include <cadre/train.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 4096, MOST_THREADS = 1024 };

static const char on_stop[] =
    "\ncadre: finishing the step, then saving; again: stop now\n";

#define MOST_STEPS  INT64_C(1000000000000000)
#define MOST_EPOCHS INT64_C(1000000000)

static int refuse(const char *text)
{
    fprintf(stderr, "cadre train: %s\n", text);
    return EXIT_REFUSED;
}

// --- One rank, whatever it is: this process or one of its threads

typedef struct rank_job {
    const train_wishes *wishes;
    cadre_train_config config;
    int world_size;
    char problem[RUN_FOLDER_PROBLEM_BYTES];
    display display;
    atomic_bool stepped;    // a first step is under way
    atomic_int exit_status; // written by all ranks, alike
} rank_job;

static void on_progress(const cadre_train_progress *progress, void *ctx)
{
    rank_job *job = ctx;
    display_progress(progress, &job->display);
}

// Asked on every rank, in every step.
static int on_stop_asked(void *ctx)
{
    rank_job *job = ctx;
    atomic_store(&job->stepped, true);
    return stop_signal(NULL);
}

// A resumed run's leaves are its checkpoint's, unless they are given.
static cadre_status settle_resumed(cadre_train_config *config)
{
    return config->resume[0] == '\0' ? CADRE_OK : cadre_train_adopt(config);
}

static bool prepare_folder(const train_wishes *w,
    const cadre_train_config *config, char problem[RUN_FOLDER_PROBLEM_BYTES])
{
    return run_folder_take(config->out, w->resume != NULL, problem) &&
           run_folder_write_config(config, problem);
}

// On rank 0: the first that is written.  Ranks that were started find it there.
static const char *on_begin(void *ctx)
{
    rank_job *job = ctx;
    if (job->wishes->started) {
        return NULL;
    }
    // The library takes the leaves from rank 0; the file says how many.
    cadre_train_config written = job->config;
    if (written.leaves == 0 && settle_resumed(&written) != CADRE_OK) {
        return cadre_error_text();
    }
    train_config_share_out(
        job->wishes, job->world_size, job->config.threads, &written);
    return prepare_folder(job->wishes, &written, job->problem) ? NULL
                                                               : job->problem;
}

static void show_summary(
    const rank_job *job, const cadre_train_summary *summary)
{
    if (job->wishes->json) {
        printf("%s\n", summary->json);
        return;
    }
    const char *out = job->config.out;
    printf("%s: %" PRId64 " steps%s, loss %.4f", out, summary->steps,
        summary->stopped_by != 0 ? " until stopped" : "", summary->loss);
    if (summary->stopped_by == 0) {
        bool is_text = isnan(summary->eval_accuracy);
        printf(is_text ? ", test %.4f bits per byte" : ", test accuracy %.4f",
            is_text ? summary->eval_bits_per_byte : summary->eval_accuracy);
    }
    printf("\nparams_hash %016" PRIx64 "\n", summary->params_hash);
    printf("see %s/report.html, summary.json, metrics.jsonl, "
           "model.safetensors\n",
        out);
}

static int outcome(const cadre_train_summary *summary)
{
    if (!summary->replicas_equal) {
        return EXIT_FAULT;
    }
    return summary->stopped_by == 0 ? EXIT_DONE
                                    : EXIT_SIGNALLED + summary->stopped_by;
}

static cadre_status run_rank(cadre_group *world, void *ctx)
{
    rank_job *job = ctx;
    const cadre_train_hooks hooks = {
        .ctx = job,
        .progress = on_progress,
        .stop_signal = on_stop_asked,
        .begin = on_begin,
    };
    cadre_train_summary summary;
    cadre_status status = cadre_train(world, &job->config, &hooks, &summary);
    bool first = cadre_rank(world) == 0;
    if (first) {
        display_close(&job->display);
    }
    if (status != CADRE_OK) {
        return status;
    }
    if (first) {
        show_summary(job, &summary);
    }
    if (first && !summary.replicas_equal) {
        refuse("the ranks' parameters differ: a fault of this program");
    }
    atomic_store(&job->exit_status, outcome(&summary));
    cadre_train_summary_release(&summary);
    return CADRE_OK;
}

static void init_job(
    const train_wishes *w, const cadre_train_config *config, rank_job *job)
{
    *job = (rank_job){.wishes = w, .config = *config};
    display_init(&job->display, &job->config, w->quiet);
}

static cadre_init_options group_options(const cadre_train_config *config)
{
    return (cadre_init_options){
        .transport = config->transport,
        .timeout_ms = config->timeout_ms,
        .order = config->order,
    };
}

// --- The ways to run

static int run_as_threads(
    const cadre_train_config *config, int n_ranks, rank_job *job)
{
    const cadre_init_options options = group_options(config);
    job->world_size = n_ranks;
    stop_install(on_stop);
    cadre_status status =
        cadre_launch_threads(n_ranks, &options, run_rank, job, NULL);
    return status == CADRE_OK
               ? atomic_load(&job->exit_status)
               : report_failure("train", status, atomic_load(&job->stepped));
}

// What a launcher has made of this process, or a rank that is alone.
static int run_as_process(
    const train_wishes *w, cadre_group *world, rank_job *job)
{
    int world_size = cadre_world_size(world);
    if (w->n_ranks > 0 && w->n_ranks != world_size) {
        fprintf(stderr,
            "cadre train: -n %" PRId64 " under a launcher with %d ranks: leave "
            "-n out\n",
            w->n_ranks, world_size);
        return EXIT_REFUSED;
    }
    job->world_size = world_size;
    cadre_status status = run_rank(world, job);
    return status == CADRE_OK
               ? atomic_load(&job->exit_status)
               : report_failure("train", status, atomic_load(&job->stepped));
}

static int join_and_run(const train_wishes *w, rank_job *job)
{
    const char *rank = launched_rank();
    stop_install(rank == NULL || strcmp(rank, "0") == 0 ? on_stop : NULL);
    const cadre_init_options options = group_options(&job->config);
    cadre_group *world;
    cadre_status status = cadre_init(&options, &world);
    if (status != CADRE_OK) {
        return report_failure("train", status, false);
    }
    int exit_status = run_as_process(w, world, job);
    cadre_finalize(world);
    return exit_status;
}

static int launch(const train_wishes *w, const cadre_train_config *config,
    cadre_bind bind, int n_ranks)
{
    char file[CADRE_PATH_BYTES];
    if (!run_folder_path(config->out, "config.yaml", file)) {
        return refuse("the path of the run's folder is too long");
    }
    char threads[NUMBER_BYTES];
    snprintf(threads, sizeof(threads), "%d", config->threads);

    bool resume = w->resume != NULL;
    const char *argv[16] = {NULL, "train", "--started", "--threads", threads,
        resume ? "--resume" : "--out", config->out};
    int n_args = 7;
    if (w->quiet) {
        argv[n_args++] = "--quiet";
    }
    if (w->json) {
        argv[n_args++] = "--json";
    }
    if (w->trace != NULL) {
        argv[n_args++] = "--trace";
        argv[n_args++] = w->trace;
    }
    if (!resume) {
        argv[n_args++] = "--";
        argv[n_args] = file;
    }

    const cadre_launch_options options = {
        .n_ranks = n_ranks,
        .threads = config->threads,
        .timeout_ms = config->timeout_ms,
        .bind = bind,
    };
    return relaunch(argv, options);
}

static bool choose_folder(cadre_train_config *config)
{
    if (config->resume[0] != '\0') {
        return true;
    }
    if (config->out[0] == '\0') {
        run_folder_default(config->recipe, config->out);
    }
    if (run_folder_is_finished(config->out)) {
        fprintf(stderr,
            "cadre train: '%s' holds a finished run: choose another --out or "
            "remove it\n",
            config->out);
        return false;
    }
    return true;
}

static int print_config(const cadre_train_config *config)
{
    // Of a stream that takes no more, main() says why.
    return yaml_write(config, stdout) || ferror(stdout) != 0
               ? EXIT_DONE
               : refuse("the configuration cannot be written as YAML");
}

// Whether it is the data that speaks against a run, and not what was asked for.
static bool is_of_data(cadre_status status)
{
    return status == CADRE_ERR_NOT_FOUND || status == CADRE_ERR_CORRUPT ||
           status == CADRE_ERR_IO;
}

// This process decides how many ranks there are.
static int train_here(
    const train_wishes *w, cadre_bind bind, cadre_train_config *config)
{
    int n_ranks = w->n_ranks > 0 ? (int)w->n_ranks : 1;
    int cores = core_count();
    cadre_status status = settle_resumed(config);
    if (status != CADRE_OK) {
        return report_failure("train", status, false);
    }
    train_config_share_out(
        w, n_ranks, cores / n_ranks > 0 ? cores / n_ranks : 1, config);
    status = cadre_train_check(config, n_ranks);
    // A configuration can be looked at where its data is not.
    if (status != CADRE_OK && !(w->print_config && is_of_data(status))) {
        return report_failure("train", status, false);
    }
    if (w->print_config) {
        return print_config(config);
    }
    const bool as_threads = strcmp(config->transport, "inproc") == 0;
    if (as_threads && bind != CADRE_BIND_NONE) {
        return refuse("--bind core is for ranks that are processes: choose "
                      "a parallel.transport other than inproc");
    }
    if (!choose_folder(config)) {
        return EXIT_REFUSED;
    }
    rank_job job;
    init_job(w, config, &job);
    if (as_threads) {
        return run_as_threads(config, n_ranks, &job);
    }
    if (n_ranks == 1 && bind == CADRE_BIND_NONE) {
        return join_and_run(w, &job);
    }
    if (!prepare_folder(w, config, job.problem)) {
        return refuse(job.problem);
    }
    int exit_status = launch(w, config, bind, n_ranks);
    if (exit_status == EXIT_REFUSED && w->resume == NULL) {
        run_folder_give_back(config->out);
    }
    return exit_status;
}

// A launcher has decided it, and this process is one of the ranks.
static int train_as_rank(
    const train_wishes *w, cadre_bind bind, cadre_train_config *config)
{
    if (bind != CADRE_BIND_NONE) {
        return refuse("a launcher has started this rank: --bind is for the "
                      "launcher");
    }
    config->threads = w->threads > 0 ? (int)w->threads : launched_threads();
    if (strcmp(config->transport, "inproc") == 0) {
        return refuse("parallel.transport is inproc, but a launcher has made "
                      "this a rank of its own: choose auto or tcp");
    }
    if (w->print_config) {
        return strcmp(launched_rank(), "0") == 0 ? print_config(config)
                                                 : EXIT_DONE;
    }
    if (!choose_folder(config)) {
        return EXIT_REFUSED;
    }
    rank_job job;
    init_job(w, config, &job);
    return join_and_run(w, &job);
}

// --- The command line

static int list_recipes(void)
{
    for (int i = 0; cadre_recipe_name(i) != NULL; i++) {
        printf("%-16s %s\n", cadre_recipe_name(i), cadre_recipe_summary(i));
    }
    return EXIT_DONE;
}

static int help(const option *options, int n_options, const char *topic)
{
    cadre_train_config defaults;
    const char *name = cadre_recipe_name(0);
    if (topic != NULL && strcmp(topic, "keys") == 0 &&
        cadre_recipe_config(name, &defaults) == CADRE_OK) {
        printf("Keys of --set KEY=VALUE and of YAML files, where they are "
               "nested at the dots;\nwith the defaults of %s.\n\n",
            name);
        key_help(&defaults);
        return EXIT_DONE;
    }
    printf("usage: cadre train RECIPE [options]\n"
           "       cadre train --resume DIR [options]\n\n"
           "Trains RECIPE, a built-in name or a YAML file such as a run's "
           "config.yaml.\n\n");
    options_help(options, n_options);
    printf("\n`cadre train --help keys` lists the keys.  For example:\n"
           "  cadre train mlp-fashion -n 2 --set optim.lr=5e-4\n");
    return EXIT_DONE;
}

static int run_command(const train_wishes *w, const option *options,
    int n_options, int n_words, char **words)
{
    if (w->help) {
        return help(options, n_options, n_words > 0 ? words[0] : NULL);
    }
    if (w->list) {
        return list_recipes();
    }
    if (n_words > 1 || (n_words == 0 && w->resume == NULL)) {
        return refuse(n_words == 0
                          ? "no recipe is given; `cadre train --list` shows all"
                          : "more than one recipe is given");
    }
    cadre_train_config config;
    cadre_bind bind;
    if (!bind_from_word("train", w->bind, &bind) ||
        !train_config_make(w, n_words == 1 ? words[0] : NULL, &config)) {
        return EXIT_REFUSED;
    }
    log_lines_show(w->quiet ? CADRE_LOG_WARN : CADRE_LOG_INFO);
    return is_launched() ? train_as_rank(w, bind, &config)
                         : train_here(w, bind, &config);
}

int command_train(int argc, char **argv)
{
    train_wishes w = {0};
    // Of a file above the limit (ulimit -f) writing says so, in a sentence.
    signal(SIGXFSZ, SIG_IGN);
    const option options[] = {
        {OPTION_NUMBER, "-n", "-np --np --nproc-per-node", "N",
            "ranks on this host (default: 1)", &w.n_ranks, 1, MOST_RANKS},
        {OPTION_NUMBER, "--threads", NULL, "T",
            "compute threads per rank (default: cores / ranks)", &w.threads, 1,
            MOST_THREADS},
        {OPTION_TEXT, "--bind", NULL, "TO",
            "core: cores of its own for each rank; none (default)", &w.bind, 0,
            0},
        {OPTION_NUMBER, "--steps", NULL, "S", "how many steps", &w.steps, 1,
            MOST_STEPS},
        {OPTION_NUMBER, "--epochs", NULL, "E",
            "how many passes over the data (default: the recipe's)", &w.epochs,
            1, MOST_EPOCHS},
        {OPTION_TEXT, "--out", NULL, "DIR",
            "the run's folder (default: runs/<recipe>-<date>-<time>)", &w.out,
            0, 0},
        {OPTION_TEXT, "--resume", NULL, "DIR",
            "go on from the newest valid checkpoint of the run in DIR",
            &w.resume, 0, 0},
        {OPTION_EACH, "--set", NULL, "KEY=VALUE",
            "set a key; may be given many times", &w.keys, 0, 0},
        {OPTION_FLAG, "--quiet", NULL, NULL, "no progress display", &w.quiet, 0,
            0},
        {OPTION_FLAG, "--json", NULL, NULL,
            "print summary.json to standard output at the end", &w.json, 0, 0},
        {OPTION_TEXT, "--trace", NULL, "FIRST:COUNT",
            "record these steps in trace.json, for ui.perfetto.dev", &w.trace,
            0, 0},
        {OPTION_FLAG, "--list", NULL, NULL, "show the recipes", &w.list, 0, 0},
        {OPTION_FLAG, "--print-config", NULL, NULL,
            "show the configuration as YAML and stop", &w.print_config, 0, 0},
        {OPTION_FLAG, "--help", "-h", NULL, "show this text", &w.help, 0, 0},
        // Not shown: launch() gives it to the ranks.
        {.kind = OPTION_FLAG, .name = "--started", .value = &w.started},
    };
    enum { N_OPTIONS = sizeof(options) / sizeof(options[0]) };
    int n_words;
    if (!options_parse("train", options, N_OPTIONS, OPTION_WORDS_ANYWHERE, argc,
            argv, &n_words)) {
        return EXIT_REFUSED;
    }
    return run_command(&w, options, N_OPTIONS, n_words, argv);
}
