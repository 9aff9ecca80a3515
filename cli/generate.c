// SPDX-License-Identifier: Apache-2.0
//
// cadre generate: text from a trained GPT.

#include "command.h"
#include "failure.h"
#include "number.h"
#include "options.h"
#include "run_folder.h"
#include "yaml.h"

#include <cadre/train.h>
#include <stdio.h>

enum { MOST_BYTES = 1000000000, MOST_CHOICES = 1000000 };

typedef struct wishes {
    const char *prompt;
    int64_t length;
    const char *temperature;
    int64_t top_k;
    const char *seed;
    bool help;
} wishes;

// Flushed, so that a reader sees the text grow.  Where a write fails, the text
// ends, and main() says why.
static bool print_byte(uint8_t byte, void *ctx)
{
    (void)ctx;
    return putchar(byte) != EOF && fflush(stdout) == 0;
}

static bool read_options(const wishes *w, cadre_generate_options *options)
{
    *options = (cadre_generate_options){
        .prompt = w->prompt,
        .length = w->length,
        .temperature = 0.8,
        .top_k = (int)w->top_k,
        .seed = 1,
        .write = print_byte,
    };
    if (w->prompt == NULL || w->prompt[0] == '\0') {
        fprintf(stderr, "cadre generate: --prompt TEXT is wanted, to go on "
                        "from\n");
        return false;
    }
    if (w->temperature != NULL &&
        (!real_from_text(w->temperature, &options->temperature) ||
            options->temperature < 0 || options->temperature > 100)) {
        fprintf(stderr,
            "cadre generate: --temperature is '%s'; it can be 0 to 100\n",
            w->temperature);
        return false;
    }
    if (w->seed != NULL && !seed_from_text(w->seed, &options->seed)) {
        fprintf(stderr,
            "cadre generate: --seed is '%s'; it can be 0 to "
            "2^64-1\n",
            w->seed);
        return false;
    }
    return true;
}

static int generate(const cadre_generate_options *options, const char *folder)
{
    char file[CADRE_PATH_BYTES];
    char model[CADRE_PATH_BYTES];
    char problem[YAML_PROBLEM_BYTES] = "the folder's name is empty or too long";
    cadre_train_config config;
    if (!run_folder_path(folder, "config.yaml", file) ||
        !run_folder_path(folder, "model.safetensors", model) ||
        yaml_read(file, &config, problem) != YAML_READ) {
        fprintf(stderr, "cadre generate: %s\n", problem);
        return EXIT_REFUSED;
    }
    cadre_group *world;
    cadre_status status = cadre_init(
        &(cadre_init_options){.timeout_ms = config.timeout_ms}, &world);
    if (status != CADRE_OK) {
        return report_failure("generate", status, false);
    }
    int exit_status = EXIT_DONE;
    if (cadre_world_size(world) > 1) {
        fprintf(stderr, "cadre generate: text is written by one rank; start it "
                        "without a launcher\n");
        exit_status = EXIT_REFUSED;
    } else {
        status = cadre_generate(world, &config, model, options);
        exit_status = status == CADRE_OK
                          ? EXIT_DONE
                          : report_failure("generate", status, false);
    }
    cadre_finalize(world);
    return exit_status;
}

static int help(const option *options, int n_options)
{
    printf("usage: cadre generate RUN --prompt TEXT [options]\n\n"
           "Goes on with TEXT as the model in RUN, the folder of a finished "
           "run, would,\nbyte by byte.\n\n");
    options_help(options, n_options);
    printf("\nFor example:\n"
           "  cadre generate runs/bible --prompt 'In the beginning'\n");
    return EXIT_DONE;
}

int command_generate(int argc, char **argv)
{
    wishes w = {.length = 500};
    const option options[] = {
        {OPTION_TEXT, "--prompt", NULL, "TEXT", "what to go on from", &w.prompt,
            0, 0},
        {OPTION_NUMBER, "--length", NULL, "N", "bytes to write (default: 500)",
            &w.length, 1, MOST_BYTES},
        {OPTION_TEXT, "--temperature", NULL, "T",
            "0: always the likeliest byte; 1: as it learned (0.8)",
            &w.temperature, 0, 0},
        {OPTION_NUMBER, "--top-k", NULL, "K",
            "draw from the K likeliest bytes (default: all)", &w.top_k, 1,
            MOST_CHOICES},
        {OPTION_TEXT, "--seed", NULL, "S", "of what is drawn (1)", &w.seed, 0,
            0},
        {OPTION_FLAG, "--help", "-h", NULL, "show this text", &w.help, 0, 0},
    };
    enum { N_OPTIONS = sizeof(options) / sizeof(options[0]) };
    int n_words;
    if (!options_parse("generate", options, N_OPTIONS, OPTION_WORDS_ANYWHERE,
            argc, argv, &n_words)) {
        return EXIT_REFUSED;
    }
    if (w.help) {
        return help(options, N_OPTIONS);
    }
    if (n_words != 1) {
        fprintf(stderr, "cadre generate: the folder of one run is wanted\n");
        return EXIT_REFUSED;
    }
    cadre_generate_options wanted;
    if (!read_options(&w, &wanted)) {
        return EXIT_REFUSED;
    }
    int status = generate(&wanted, argv[0]);
    if (status == EXIT_DONE) {
        putchar('\n');
    }
    return status;
}
