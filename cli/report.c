// SPDX-License-Identifier: Apache-2.0
//
// cadre report: builds report.html of a run's folder from its other files.

#include "command.h"
#include "failure.h"
#include "options.h"
#include "run_folder.h"
#include "yaml.h"

#include <cadre/train.h>
#include <stdio.h>

static int refuse(const char *text)
{
    fprintf(stderr, "cadre report: %s\n", text);
    return EXIT_REFUSED;
}

static int report_folder(const char *folder)
{
    char file[CADRE_PATH_BYTES];
    char problem[YAML_PROBLEM_BYTES];
    cadre_train_config config;
    if (!run_folder_path(folder, "config.yaml", file)) {
        return refuse("the folder's name is empty or too long");
    }
    if (yaml_read(file, &config, problem) != YAML_READ) {
        return refuse(problem);
    }
    snprintf(config.out, sizeof(config.out), "%s", folder);
    cadre_status status = cadre_report(&config);
    if (status != CADRE_OK) {
        return report_failure("report", status, false);
    }
    printf("%s/report.html\n", folder);
    return EXIT_DONE;
}

static int help(const option *options, int n_options)
{
    printf("usage: cadre report DIR\n\n"
           "Builds DIR/report.html of a run again, from metrics.jsonl, "
           "summary.json and,\nif there is one, trace.json.  The run need not "
           "have ended.\n\n");
    options_help(options, n_options);
    printf("\nFor example:\n"
           "  cadre report runs/demo\n");
    return EXIT_DONE;
}

int command_report(int argc, char **argv)
{
    bool wants_help = false;
    const option options[] = {
        {OPTION_FLAG, "--help", "-h", NULL, "show this text", &wants_help, 0,
            0},
    };
    enum { N_OPTIONS = sizeof(options) / sizeof(options[0]) };
    int n_words;
    if (!options_parse("report", options, N_OPTIONS, OPTION_WORDS_ANYWHERE,
            argc, argv, &n_words)) {
        return EXIT_REFUSED;
    }
    if (wants_help) {
        return help(options, N_OPTIONS);
    }
    return n_words == 1 ? report_folder(argv[0])
                        : refuse("the folder of one run is wanted");
}
