// SPDX-License-Identifier: Apache-2.0

#include "train/resume.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/number.h"
#include "parallel/checkpoint_files.h"
#include "parallel/verdict.h"
#include "train/identity.h"
#include "train/report_data.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- the folder ---

static const char step_prefix[] = "step-";

static char *checkpoints_of(const char *folder)
{
    return cadre_path_join(folder, "checkpoints");
}

static char *step_path(const char *checkpoints, int64_t step)
{
    char name[40];
    snprintf(name, sizeof(name), "%s%" PRId64, step_prefix, step);
    return cadre_path_join(checkpoints, name);
}

char *cadre_resume_path(const char *folder, int64_t step)
{
    char *checkpoints = checkpoints_of(folder);
    char *path = checkpoints == NULL ? NULL : step_path(checkpoints, step);
    cadre_free(checkpoints);
    return path;
}

// The steps of which there are checkpoints, valid or not.
typedef struct step_list {
    int64_t *steps; // NULL: they are only counted
    size_t n;
} step_list;

static void note_step(const char *name, void *ctx)
{
    step_list *list = ctx;
    size_t n = sizeof(step_prefix) - 1;
    int64_t step;
    // "step-06" is somebody's copy, and no other name of step-6.
    if (strncmp(name, step_prefix, n) != 0 || name[n] == '0' ||
        name[n] == '+' || !cadre_parse_int(name + n, 1, INT64_MAX, &step)) {
        return;
    }
    if (list->steps != NULL) {
        list->steps[list->n] = step;
    }
    list->n++;
}

static int newer_first(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left;
    int64_t b = *(const int64_t *)right;
    return (a < b) - (a > b);
}

// Newest first; steps are for cadre_free().  No folder is an empty list.
static cadre_status list_steps(const char *checkpoints, step_list *out)
{
    step_list count = {0};
    cadre_status status = cadre_folder_list(checkpoints, note_step, &count);
    if (status == CADRE_ERR_NOT_FOUND) {
        *out = (step_list){0};
        return CADRE_OK;
    }
    CADRE_TRY(status);
    // Ours alone: nobody adds to it meanwhile.
    step_list list = {.steps = cadre_alloc_array(count.n, sizeof(int64_t))};
    if (list.steps == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    status = cadre_folder_list(checkpoints, note_step, &list);
    if (status != CADRE_OK) {
        cadre_free(list.steps);
        return status;
    }
    qsort(list.steps, list.n, sizeof(list.steps[0]), newer_first);
    *out = list;
    return CADRE_OK;
}

// What a run that died has left behind.
static void remove_part(const char *name, void *ctx)
{
    size_t n = strlen(name);
    size_t suffix = sizeof(CADRE_ASIDE) - 1;
    if (n < suffix || strcmp(name + n - suffix, CADRE_ASIDE) != 0) {
        return;
    }
    char *path = cadre_path_join(ctx, name);
    if (path != NULL && cadre_folder_remove(path) != CADRE_OK) {
        cadre_log(CADRE_LOG_WARN, "train", "%s", cadre_error_text());
    }
    cadre_free(path);
}

static void remove_step(const char *checkpoints, int64_t step)
{
    char *path = step_path(checkpoints, step);
    if (path == NULL || cadre_folder_remove(path) != CADRE_OK) {
        cadre_log(CADRE_LOG_WARN, "train", "%s", cadre_error_text());
    }
    cadre_free(path);
}

void cadre_resume_prune(const char *folder, int64_t newest_step, int keep)
{
    char *checkpoints = checkpoints_of(folder);
    step_list list;
    if (checkpoints == NULL || list_steps(checkpoints, &list) != CADRE_OK) {
        cadre_free(checkpoints);
        return;
    }
    int n_kept = 0;
    for (size_t i = 0; i < list.n && keep > 0; i++) {
        // A newer one is damaged: the run went on from an older.
        if (list.steps[i] > newest_step || n_kept == keep) {
            remove_step(checkpoints, list.steps[i]);
        } else {
            n_kept++;
        }
    }
    (void)cadre_folder_list(checkpoints, remove_part, checkpoints);
    cadre_free(list.steps);
    cadre_free(checkpoints);
}

// --- finding ---

// One that is whole, and of a run of ours.
static cadre_status open_checkpoint(
    const char *path, cadre_checkpoint_info *info, cadre_note *note)
{
    CADRE_TRY(cadre_checkpoint_inspect(path, info));
    cadre_status status = cadre_note_read(info->note, note);
    cadre_checkpoint_info_release(info);
    return status;
}

static cadre_status none_is_valid(const char *folder, size_t n)
{
    if (n == 0) {
        return cadre_fail(CADRE_ERR_CORRUPT,
            "there is no checkpoint in '%s/checkpoints' to go on from", folder);
    }
    return cadre_fail(CADRE_ERR_CORRUPT,
        "no checkpoint in '%s/checkpoints' is valid: %s", folder,
        cadre_error_text());
}

typedef struct found {
    char *path;
    cadre_checkpoint_info info; // its note is released
    cadre_note note;
} found;

// Tries one after another; tell: says which were passed over.
static cadre_status find_newest(const char *folder, bool tell, found *out)
{
    char *checkpoints = checkpoints_of(folder);
    step_list list = {0};
    cadre_status status = checkpoints == NULL ? CADRE_ERR_NO_MEMORY
                                              : list_steps(checkpoints, &list);
    bool searching = status == CADRE_OK;
    for (size_t i = 0; i < list.n && searching; i++) {
        char *path = step_path(checkpoints, list.steps[i]);
        status = path == NULL ? CADRE_ERR_NO_MEMORY
                              : open_checkpoint(path, &out->info, &out->note);
        searching = status != CADRE_OK && status != CADRE_ERR_NO_MEMORY;
        if (status == CADRE_OK) {
            out->path = path;
            continue;
        }
        if (searching && tell) {
            cadre_log(CADRE_LOG_WARN, "train", "'%s' is passed over: %s", path,
                cadre_error_text());
        }
        cadre_free(path);
    }
    if (searching) {
        status = none_is_valid(folder, list.n);
    }
    cadre_free(list.steps);
    cadre_free(checkpoints);
    return status;
}

// --- adopting ---

// Compares what is known without the data.
static cadre_status compare_settings(
    const cadre_train_config *config, const found *f, bool any_host)
{
    char *ours = cadre_identity_text(config, NULL, f->info.leaves);
    if (ours == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status =
        cadre_identity_compare(ours, f->note.identity_text, any_host);
    cadre_free(ours);
    return status;
}

// A run that was stopped has a summary without an evaluation, and one that died
// has none.
static cadre_status find_end(cadre_train_config *config)
{
    config->resume_ended = false;
    json_t *summary;
    cadre_status status =
        cadre_report_json(config->resume, "summary.json", &summary);
    if (status != CADRE_OK) {
        return status == CADRE_ERR_CORRUPT ? CADRE_OK : status;
    }
    const json_t *steps = json_object_get(summary, "steps");
    config->resume_ended = json_integer_value(steps) == config->resume_step &&
                           json_is_object(json_object_get(summary, "eval"));
    json_decref(summary);
    return CADRE_OK;
}

static cadre_status adopt(cadre_train_config *config, const found *f)
{
    if (config->total_steps == 0) {
        config->total_steps = f->note.total_steps;
    }
    CADRE_TRY(compare_settings(config, f, config->leaves > 0));
    if (config->total_steps != f->note.total_steps) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "optim.total_steps is %" PRId64 ", but in the run that is resumed "
            "it is %" PRId64 ": go on with the same",
            config->total_steps, f->note.total_steps);
    }
    config->resume_step = f->info.step;
    config->leaves = config->leaves == 0 ? f->info.leaves : config->leaves;
    return find_end(config);
}

cadre_status cadre_train_adopt(cadre_train_config *config)
{
    if (config == NULL) {
        return cadre_fail(
            CADRE_ERR_INVALID_ARG, "cadre_train_adopt needs a configuration");
    }
    found f = {0};
    cadre_status status = find_newest(config->resume, false, &f);
    if (status == CADRE_OK) {
        status = adopt(config, &f);
    }
    cadre_free(f.note.identity_text);
    cadre_free(f.path);
    return status;
}

// What all ranks take over from rank 0, as words.
enum { LEAVES, TOTAL_STEPS, STEP, ENDED, N_WORDS };

cadre_status cadre_resume_open(
    cadre_group *world, cadre_train_config *config, cadre_resume_point *out)
{
    *out = (cadre_resume_point){.leaves_given = config->leaves > 0};
    found f = {0};
    cadre_status status = CADRE_OK;
    if (cadre_rank(world) == 0) {
        status = find_newest(config->resume, true, &f);
        out->path = f.path;
        out->n_leaves = f.info.leaves;
        out->note = f.note;
        if (status == CADRE_OK) {
            status = adopt(config, &f);
        }
    }
    CADRE_TRY(cadre_share_verdict(world, status));
    int64_t words[N_WORDS] = {config->leaves, config->total_steps,
        config->resume_step, config->resume_ended};
    CADRE_TRY(cadre_broadcast(world, words, N_WORDS, CADRE_I64, 0, NULL));
    config->leaves = (int)words[LEAVES];
    config->total_steps = words[TOTAL_STEPS];
    config->resume_step = words[STEP];
    config->resume_ended = words[ENDED] != 0;
    return CADRE_OK;
}

void cadre_resume_close(cadre_resume_point *point)
{
    cadre_free(point->note.identity_text);
    cadre_free(point->path);
    *point = (cadre_resume_point){0};
}

// --- loading ---

static cadre_status read_manifest(
    const cadre_train_config *config, cadre_manifest *out)
{
    char *folder = cadre_resume_path(config->resume, config->resume_step);
    char *path =
        folder == NULL ? NULL : cadre_path_join(folder, CADRE_MANIFEST_NAME);
    cadre_status status =
        path == NULL ? CADRE_ERR_NO_MEMORY : cadre_manifest_read(path, out);
    cadre_free(path);
    cadre_free(folder);
    return status;
}

cadre_status cadre_resume_check(
    const cadre_train_config *config, const cadre_task *task)
{
    cadre_manifest m;
    CADRE_TRY(read_manifest(config, &m));
    cadre_note note = {0};
    cadre_status status = cadre_note_read(m.note, &note);
    char *ours =
        status != CADRE_OK ? NULL : cadre_identity_text(config, task, m.leaves);
    if (status == CADRE_OK) {
        status = ours == NULL
                     ? CADRE_ERR_NO_MEMORY
                     : cadre_identity_compare(ours, note.identity_text, true);
    }
    cadre_free(ours);
    cadre_free(note.identity_text);
    cadre_manifest_release(&m);
    return status;
}

// V is the checkpoint's: another one is no difference, but a new identity.
static cadre_status compare_identity(const cadre_train_config *config,
    const cadre_task *task, const cadre_resume_point *point)
{
    char *ours = cadre_identity_text(config, task, point->n_leaves);
    if (ours == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = cadre_identity_compare(
        ours, point->note.identity_text, point->leaves_given);
    cadre_free(ours);
    return status;
}

cadre_status cadre_resume_load(cadre_group *world,
    const cadre_train_config *config, const cadre_task *task,
    cadre_engine *engine, cadre_resume_point *point)
{
    bool first = cadre_rank(world) == 0;
    CADRE_TRY(cadre_share_verdict(
        world, first ? compare_identity(config, task, point) : CADRE_OK));
    // Only rank 0's path is looked at.
    CADRE_TRY(cadre_checkpoint_load(engine, first ? point->path : "-"));
    cadre_free(point->note.identity_text);
    point->note.identity_text = NULL;
    return cadre_share_verdict(
        world, cadre_note_read(cadre_engine_note(engine), &point->note));
}
