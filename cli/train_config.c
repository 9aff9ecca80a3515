// SPDX-License-Identifier: Apache-2.0

#include "train_config.h"

#include "keys.h"
#include "number.h"
#include "path.h"
#include "run_folder.h"
#include "yaml.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// LONGEST_INSIDE: room for the path of any file in a run's folder.
enum { MOST_LEAVES = 65536, LONGEST_INSIDE = 128 };

static bool refuse(const char *text)
{
    fprintf(stderr, "cadre train: %s\n", text);
    return false;
}

static bool looks_like_path(const char *word)
{
    return strchr(word, '/') != NULL || strstr(word, ".y") != NULL;
}

static bool read_recipe(const char *word, cadre_train_config *config)
{
    if (cadre_recipe_config(word, config) == CADRE_OK) {
        return true;
    }
    char problem[YAML_PROBLEM_BYTES];
    yaml_outcome outcome = yaml_read(word, config, problem);
    if (outcome == YAML_READ) {
        return true;
    }
    if (outcome == YAML_REFUSED || looks_like_path(word)) {
        refuse(problem);
    } else {
        refuse(cadre_error_text());
    }
    return false;
}

static bool set_key(cadre_train_config *config, const char *assignment)
{
    char name[128];
    char problem[KEY_PROBLEM_BYTES];
    const char *value = strchr(assignment, '=');
    if (value == NULL) {
        fprintf(stderr, "cadre train: --set wants KEY=VALUE, not '%s'\n",
            assignment);
        return false;
    }
    snprintf(name, sizeof(name), "%.*s", (int)(value - assignment), assignment);
    if (!key_set(config, name, value + 1, problem)) {
        refuse(problem);
        return false;
    }
    return true;
}

// Whether one of the assignments sets this key.
static bool is_set(const option_list *keys, const char *name)
{
    size_t nbytes = strlen(name);
    for (int i = 0; i < keys->n; i++) {
        if (strncmp(keys->texts[i], name, nbytes) == 0 &&
            keys->texts[i][nbytes] == '=') {
            return true;
        }
    }
    return false;
}

// The run's own configuration; recipe is the word that was given, or NULL.
static bool read_run(
    const train_wishes *w, const char *recipe, cadre_train_config *config)
{
    char file[CADRE_PATH_BYTES];
    char problem[YAML_PROBLEM_BYTES] = "--resume is empty or too long";
    if (!run_folder_path(w->resume, "config.yaml", file) ||
        yaml_read(file, config, problem) != YAML_READ) {
        return refuse(problem);
    }
    if (recipe != NULL && strcmp(recipe, config->recipe) != 0) {
        fprintf(stderr,
            "cadre train: '%s' is not what the run in '%s' trains, which is "
            "%s: leave it out\n",
            recipe, w->resume, config->recipe);
        return false;
    }
    if (w->out != NULL) {
        return refuse("--resume writes on into its folder: leave --out out");
    }
    snprintf(config->out, sizeof(config->out), "%s", w->resume);
    snprintf(config->resume, sizeof(config->resume), "%s", w->resume);
    // Ranks that were started read what was settled for them.
    config->leaves = w->started ? config->leaves : 0;
    return true;
}

// "20:3" is steps 20 to 22.  How many make sense, the library says.
static bool read_trace(const char *text, cadre_train_config *config)
{
    char first[NUMBER_BYTES];
    const char *colon = strchr(text, ':');
    size_t nbytes = colon == NULL ? sizeof(first) : (size_t)(colon - text);
    if (nbytes < sizeof(first)) {
        memcpy(first, text, nbytes);
        first[nbytes] = '\0';
        if (number_from_text(first, &config->trace_first) &&
            number_from_text(colon + 1, &config->trace_count) &&
            config->trace_first >= 1 && config->trace_count >= 1) {
            return true;
        }
    }
    fprintf(stderr,
        "cadre train: --trace is '%.64s'; it is FIRST:COUNT, such as 20:3 for "
        "steps 20 to 22\n",
        text);
    return false;
}

bool train_config_make(
    const train_wishes *w, const char *recipe, cadre_train_config *config)
{
    if ((w->steps > 0 || is_set(&w->keys, "steps")) &&
        (w->epochs > 0 || is_set(&w->keys, "epochs"))) {
        return refuse("steps and epochs both say how long: give one");
    }
    if (!(w->resume != NULL ? read_run(w, recipe, config)
                            : read_recipe(recipe, config))) {
        return false;
    }
    for (int i = 0; i < w->keys.n; i++) {
        if (!set_key(config, w->keys.texts[i])) {
            return false;
        }
    }
    if (w->steps > 0 || w->epochs > 0) {
        config->steps = w->steps;
        config->epochs = w->epochs;
    }
    if (w->trace != NULL && !read_trace(w->trace, config)) {
        return false;
    }
    char *const paths[] = {
        config->data_path, config->data_tokenizer, config->data_cache};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        if (paths[i][0] != '\0' && !path_settle(paths[i])) {
            return refuse("a path of data is too long when made absolute");
        }
    }
    int n = w->out == NULL
                ? 0
                : snprintf(config->out, sizeof(config->out), "%s", w->out);
    // A longer one would show only when the run's last files are written.
    if (n >= CADRE_PATH_BYTES - LONGEST_INSIDE || (w->out != NULL && n == 0)) {
        refuse("--out is empty or too long");
        return false;
    }
    return true;
}

void train_config_share_out(
    const train_wishes *w, int n_ranks, int threads, cadre_train_config *config)
{
    config->threads = w->threads > 0 ? (int)w->threads : threads;
    int64_t leaves = (int64_t)n_ranks * config->threads;
    if (config->leaves == 0) {
        config->leaves = leaves < MOST_LEAVES ? (int)leaves : MOST_LEAVES;
    }
}
