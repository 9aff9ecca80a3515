// SPDX-License-Identifier: Apache-2.0
//
// cadre eval: evaluates a finished run's model on the test split.

#include "command.h"
#include "failure.h"
#include "launched.h"
#include "options.h"
#include "path.h"
#include "run_folder.h"
#include "yaml.h"

#include <cadre/train.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_THREADS = 1024 };

typedef struct wishes {
    int64_t threads; // 0: not given
    bool json;
    bool help;
} wishes;

enum { HASH_BYTES = 17 };

static void write_hash(uint64_t value, char hash[HASH_BYTES])
{
    snprintf(hash, HASH_BYTES, "%016" PRIx64, value);
}

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static bool print_json(const cadre_eval_result *result)
{
    char hash[HASH_BYTES];
    write_hash(result->params_hash, hash);
    bool is_text = isnan(result->accuracy);
    json_t *object = json_pack("{s:o, s:o, s:I, s:s}", "loss",
        real(result->loss), is_text ? "bits_per_byte" : "accuracy",
        real(is_text ? result->bits_per_byte : result->accuracy), "samples",
        (json_int_t)result->n_samples, "params_hash", hash);
    bool made = object != NULL;
    if (made) {
        // Should a write fail, main() says so.
        (void)json_dumpf(object, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(object);
    return made;
}

static int show(const wishes *w, const cadre_eval_result *result)
{
    if (!w->json) {
        bool is_text = isnan(result->accuracy);
        printf("test %s %.4f, loss %.6f, %" PRId64 " samples\n"
               "params_hash %016" PRIx64 "\n",
            is_text ? "bits per byte" : "accuracy",
            is_text ? result->bits_per_byte : result->accuracy, result->loss,
            result->n_samples, result->params_hash);
        return EXIT_DONE;
    }
    if (!print_json(result)) {
        fprintf(stderr, "cadre eval: out of memory\n");
        return EXIT_RANK_FAILED;
    }
    return EXIT_DONE;
}

// NULL if there is none, or none that can be read.
static json_t *read_summary(const char *folder)
{
    char file[CADRE_PATH_BYTES];
    char reason[PATH_REASON_BYTES];
    FILE *stream = run_folder_path(folder, "summary.json", file)
                       ? path_open_regular(file, reason)
                       : NULL;
    if (stream == NULL) {
        return NULL;
    }
    json_t *summary = json_loadf(stream, 0, NULL);
    fclose(stream);
    return summary;
}

// The hash that the run's summary has for its model, if it has one: a bit that
// flipped in the file shows in no other way.
static bool is_the_runs(const char *folder, const cadre_eval_result *result)
{
    json_t *summary = read_summary(folder);
    const char *wanted =
        json_string_value(json_object_get(summary, "params_hash"));
    char hash[HASH_BYTES];
    write_hash(result->params_hash, hash);
    bool same = wanted == NULL || strcmp(wanted, hash) == 0;
    if (!same) {
        fprintf(stderr,
            "cadre eval: the parameters in '%s/model.safetensors' hash to %s, "
            "but summary.json says %s: the file is damaged or of another run\n",
            folder, hash, wanted);
    }
    json_decref(summary);
    return same;
}

static int evaluate(
    const wishes *w, const cadre_train_config *config, const char *folder)
{
    char model[CADRE_PATH_BYTES];
    if (!run_folder_path(folder, "model.safetensors", model)) {
        fprintf(stderr, "cadre eval: the folder's name is empty or too long\n");
        return EXIT_REFUSED;
    }
    const cadre_init_options options = {
        .transport = "auto", .timeout_ms = config->timeout_ms};
    cadre_group *world;
    cadre_status status = cadre_init(&options, &world);
    if (status != CADRE_OK) {
        return report_failure("eval", status, false);
    }
    cadre_eval_result result;
    status = cadre_evaluate(world, config, model, &result);
    int exit_status = EXIT_DONE;
    if (status != CADRE_OK) {
        exit_status = report_failure("eval", status, false);
    } else if (cadre_rank(world) == 0) {
        exit_status =
            is_the_runs(folder, &result) ? show(w, &result) : EXIT_DAMAGED;
    }
    cadre_finalize(world);
    return exit_status;
}

static int evaluate_folder(const wishes *w, const char *folder)
{
    char file[CADRE_PATH_BYTES];
    char problem[YAML_PROBLEM_BYTES] = "the folder's name is empty or too long";
    cadre_train_config config;
    if (!run_folder_path(folder, "config.yaml", file) ||
        yaml_read(file, &config, problem) != YAML_READ) {
        fprintf(stderr, "cadre eval: %s\n", problem);
        return EXIT_REFUSED;
    }
    config.threads = w->threads > 0  ? (int)w->threads
                     : is_launched() ? launched_threads()
                                     : core_count();
    return evaluate(w, &config, folder);
}

static int help(const option *options, int n_options)
{
    printf("usage: cadre eval RUN [options]\n\n"
           "Evaluates the model of RUN, the folder of a finished run, on the "
           "test split.\n\n");
    options_help(options, n_options);
    printf("\nMore ranks share the work under a launcher.  For example:\n"
           "  cadre eval runs/demo\n"
           "  cadre run -n 2 cadre eval runs/demo\n");
    return EXIT_DONE;
}

int command_eval(int argc, char **argv)
{
    wishes w = {0};
    const option options[] = {
        {OPTION_NUMBER, "--threads", NULL, "T",
            "compute threads (default: the cores)", &w.threads, 1,
            MOST_THREADS},
        {OPTION_FLAG, "--json", NULL, NULL, "print the result as JSON", &w.json,
            0, 0},
        {OPTION_FLAG, "--help", "-h", NULL, "show this text", &w.help, 0, 0},
    };
    enum { N_OPTIONS = sizeof(options) / sizeof(options[0]) };
    int n_words;
    if (!options_parse("eval", options, N_OPTIONS, OPTION_WORDS_ANYWHERE, argc,
            argv, &n_words)) {
        return EXIT_REFUSED;
    }
    if (w.help) {
        return help(options, N_OPTIONS);
    }
    if (n_words != 1) {
        fprintf(stderr, "cadre eval: the folder of one run is wanted\n");
        return EXIT_REFUSED;
    }
    return evaluate_folder(&w, argv[0]);
}
