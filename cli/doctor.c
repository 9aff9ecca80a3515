// SPDX-License-Identifier: Apache-2.0
//
// cadre doctor: what was found on this host and what is missing, with the fix
// for each.

#include "doctor.h"

#include "command.h"
#include "options.h"

#include <cadre/cadre.h>
#include <cadre/train.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { TEST_RANKS = 2 };

typedef struct check {
    const char *id;
    void (*look)(doctor_finding *f);
} check;

// --- Checks of Cadre itself

static void doctor_version(doctor_finding *f)
{
    snprintf(f->found, sizeof(f->found), "%d.%d.%d, %s (%s)",
        CADRE_VERSION_MAJOR, CADRE_VERSION_MINOR, CADRE_VERSION_PATCH,
        cadre_train_library(), cadre_train_isa());
}

static void doctor_unbuilt(doctor_finding *f)
{
    f->state = DOCTOR_SKIP;
    snprintf(f->found, sizeof(f->found), "not built yet");
}

static cadre_status add_up(cadre_group *world, void *ctx)
{
    int64_t *sum = ctx; // one entry per rank
    int rank = cadre_rank(world);
    int64_t mine = rank + 1;
    return cadre_allreduce(
        world, &mine, &sum[rank], 1, CADRE_I64, CADRE_SUM, NULL);
}

// Ranks that are threads really add something up.
static void doctor_inproc(doctor_finding *f)
{
    int64_t sum[TEST_RANKS] = {0};
    cadre_status status =
        cadre_launch_threads(TEST_RANKS, NULL, add_up, sum, NULL);
    if (status == CADRE_OK && sum[0] == 3 && sum[1] == 3) {
        snprintf(f->found, sizeof(f->found), "2 ranks added up");
        return;
    }
    f->state = DOCTOR_FAIL;
    snprintf(f->found, sizeof(f->found), "2 ranks do not add up: %s",
        status == CADRE_OK ? "the sum is wrong" : cadre_error_text());
    snprintf(f->fix, sizeof(f->fix), "this is a fault of Cadre: report it");
}

// The first recipe that has the same data as recipe i.
static int first_with_data_of(int i)
{
    int first = 0;
    while (strcmp(cadre_recipe_data(first), cadre_recipe_data(i)) != 0) {
        first++;
    }
    return first;
}

// What is known of a recipe's data: a folder of images is the user's own.
typedef enum data_state { DATA_THERE, DATA_MISSING, DATA_OWN } data_state;

static data_state look_for_data(int recipe)
{
    cadre_train_config config;
    if (cadre_recipe_config(cadre_recipe_name(recipe), &config) != CADRE_OK) {
        return DATA_MISSING;
    }
    if (config.data_side > 0) {
        return DATA_OWN;
    }
    return cadre_train_check(&config, 1) == CADRE_OK ? DATA_THERE
                                                     : DATA_MISSING;
}

// Whether the data of every recipe is there, which takes reading all of it; the
// library says where to get it.
static void doctor_data(doctor_finding *f)
{
    enum { MOST_RECIPES = 64 };
    static const char *const words[] = {"yes", "no", "yours"};
    data_state states[MOST_RECIPES];
    for (int i = 0; i < MOST_RECIPES && cadre_recipe_name(i) != NULL; i++) {
        int first = first_with_data_of(i);
        states[i] = first < i ? states[first] : look_for_data(i);
        size_t used = strlen(f->found);
        snprintf(f->found + used, sizeof(f->found) - used, "%s%s %s",
            used == 0 ? "" : ", ", cadre_recipe_name(i), words[states[i]]);
        if (states[i] == DATA_MISSING && first == i) {
            f->state = DOCTOR_WARN;
            snprintf(f->fix, sizeof(f->fix), "%s", cadre_error_text());
        }
    }
}

static const check checks[] = {
    {"cadre", doctor_version},
    {"cores", doctor_cores},
    {"instructions", doctor_instructions},
    {"memory", doctor_memory},
    {"shared-memory", doctor_shared_memory},
    {"dev-shm", doctor_dev_shm},
    {"open-files", doctor_descriptors},
    {"processes", doctor_processes},
    {"clock", doctor_clock},
    {"loopback", doctor_loopback},
    {"interfaces", doctor_interfaces},
    {"inproc", doctor_inproc},
    {"ucx", doctor_unbuilt},
    {"mpi", doctor_unbuilt},
    {"nccl", doctor_unbuilt},
    {"data", doctor_data},
};
enum { N_CHECKS = sizeof(checks) / sizeof(checks[0]) };

// --- Showing

static const char *const state_names[] = {
    [DOCTOR_OK] = "ok",
    [DOCTOR_WARN] = "warn",
    [DOCTOR_FAIL] = "fail",
    [DOCTOR_SKIP] = "skip",
};

static void show_text(const doctor_finding findings[N_CHECKS])
{
    for (int i = 0; i < N_CHECKS; i++) {
        const doctor_finding *f = &findings[i];
        printf(
            "%-5s %-14s %s\n", state_names[f->state], checks[i].id, f->found);
        if (f->fix[0] != '\0') {
            printf("%20s -> %s\n", "", f->fix);
        }
    }
}

static bool show_json(const doctor_finding findings[N_CHECKS])
{
    json_t *list = json_array();
    for (int i = 0; i < N_CHECKS && list != NULL; i++) {
        const doctor_finding *f = &findings[i];
        json_t *entry = json_pack("{s:s, s:s, s:s, s:s}", "id", checks[i].id,
            "status", state_names[f->state], "found", f->found, "fix", f->fix);
        if (json_array_append_new(list, entry) != 0) {
            json_decref(list);
            list = NULL;
        }
    }
    json_t *object = json_pack("{s:o}", "checks", list);
    bool made = object != NULL;
    if (made) {
        // Should a write fail, main() says so.
        (void)json_dumpf(object, stdout, JSON_INDENT(2));
        putchar('\n');
    }
    json_decref(object);
    return made;
}

static int examine(bool json)
{
    static doctor_finding findings[N_CHECKS];
    bool failed = false;
    for (int i = 0; i < N_CHECKS; i++) {
        checks[i].look(&findings[i]);
        failed = failed || findings[i].state == DOCTOR_FAIL;
    }
    if (!json) {
        show_text(findings);
    } else if (!show_json(findings)) {
        fprintf(stderr, "cadre doctor: out of memory\n");
        return EXIT_RANK_FAILED;
    }
    return failed ? EXIT_RANK_FAILED : EXIT_DONE;
}

int command_doctor(int argc, char **argv)
{
    bool json = false;
    bool help = false;
    const option options[] = {
        {OPTION_FLAG, "--json", NULL, NULL, "print the findings as JSON", &json,
            0, 0},
        {OPTION_FLAG, "--help", "-h", NULL, "show this text", &help, 0, 0},
    };
    enum { N_OPTIONS = sizeof(options) / sizeof(options[0]) };
    int n_words;
    if (!options_parse("doctor", options, N_OPTIONS, OPTION_WORDS_ANYWHERE,
            argc, argv, &n_words)) {
        return EXIT_REFUSED;
    }
    if (help) {
        printf("usage: cadre doctor [options]\n\n"
               "Says what was found on this host and what is missing, with the "
               "fix for each.\nStatus 3 if something that every run needs is "
               "broken.\n\n");
        options_help(options, N_OPTIONS);
        printf("\nFor example:\n  cadre doctor\n");
        return EXIT_DONE;
    }
    if (n_words > 0) {
        fprintf(stderr, "cadre doctor: takes no words, but there is '%s'\n",
            argv[0]);
        return EXIT_REFUSED;
    }
    return examine(json);
}
