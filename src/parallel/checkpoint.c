// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints: a folder with a file per plane and a manifest.  Rank 0 writes and
// reads; planes come from, and go to, all ranks as the placement table says.
// Each thing that rank 0 does alone is followed by a verdict, so that all ranks
// go on or none.
//
// Memory:  on rank 0 one whole plane where the optimizer's are sharded.
// Threads: the group's.

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/folder.h"
#include "parallel/checkpoint_files.h"
#include "parallel/engine.h"
#include "parallel/verdict.h"
#include "parallel/whole.h"
#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_NOTE_BYTES = 16 << 20 };

static const char params_name[] = "params";

// --- notes ---

cadre_status cadre_engine_set_note(cadre_engine *engine, const char *note)
{
    if (engine == NULL) {
        return cadre_fail(CADRE_ERR_INVALID_ARG, "the engine is NULL");
    }
    char *copy = NULL;
    if (note != NULL) {
        json_t *text = json_string(note);
        bool usable = text != NULL && strlen(note) <= MOST_NOTE_BYTES;
        json_decref(text);
        if (!usable) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "engine: a note needs to be UTF-8 and at most %d bytes",
                MOST_NOTE_BYTES);
        }
        copy = cadre_alloc_string(note);
        if (copy == NULL) {
            return CADRE_ERR_NO_MEMORY;
        }
    }
    cadre_free(engine->note);
    engine->note = copy;
    return CADRE_OK;
}

const char *cadre_engine_note(const cadre_engine *engine)
{
    return engine->note;
}

static cadre_status check_call(
    const cadre_engine *engine, const char *dir, const char *call)
{
    if (engine == NULL || dir == NULL || dir[0] == '\0') {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "checkpoint_%s: the engine or dir is NULL", call);
    }
    if (engine->open) {
        return cadre_fail(CADRE_ERR_STATE,
            "checkpoint_%s: a step is open; close it with cadre_step_end",
            call);
    }
    return CADRE_OK;
}

static bool is_first(const cadre_engine *engine)
{
    return cadre_rank(engine->group) == 0;
}

static cadre_placement optimizer_placement(const cadre_engine *engine)
{
    return cadre_placement_of((int)engine->o.mode)->optimizer;
}

// --- saving ---

static void note_entry(const char *name, void *ctx)
{
    (void)name;
    *(bool *)ctx = true;
}

// A name that is taken by something else than a checkpoint stays as it is.
static cadre_status check_target(const char *dir)
{
    bool occupied = false;
    cadre_status status = cadre_folder_list(dir, note_entry, &occupied);
    if (status == CADRE_ERR_NOT_FOUND || (status == CADRE_OK && !occupied)) {
        return CADRE_OK;
    }
    struct stat about;
    if (status != CADRE_OK &&
        (lstat(dir, &about) != 0 || S_ISDIR(about.st_mode))) {
        return status; // it could not be looked at
    }
    char *path = cadre_path_join(dir, CADRE_MANIFEST_NAME);
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    bool checkpoint = access(path, F_OK) == 0;
    cadre_free(path);
    return checkpoint ? CADRE_OK
                      : cadre_fail(CADRE_ERR_INVALID_ARG,
                            "checkpoint_save: '%s' is there and is no "
                            "checkpoint: choose another name",
                            dir);
}

static cadre_manifest describe(const cadre_engine *e)
{
    cadre_manifest m = {
        .step = e->step,
        .updates = e->updates,
        .skipped_in_row = e->skipped_in_row,
        .powers = e->powers,
        .leaves = e->o.leaves,
        .fold = e->o.fold,
        .world_size = cadre_world_size(e->group),
        .layout_hash = cadre_layout_hash(&e->model->layout),
        .params_hash = cadre_model_hash(e->model),
        .note = e->note,
    };
    cadre_setting settings[CADRE_UPDATE_SETTINGS];
    cadre_update_settings(&e->o, settings);
    for (int i = 0; i < CADRE_UPDATE_SETTINGS; i++) {
        m.settings[i] = settings[i].value;
    }
    return m;
}

// A checkpoint on its way, on rank 0.
typedef struct draft {
    const cadre_engine *engine;
    cadre_new_folder folder;
    cadre_manifest manifest; // borrows the engine's note
} draft;

static cadre_status begin_draft(
    const cadre_engine *engine, const char *dir, draft *d)
{
    CADRE_TRY(check_target(dir));
    d->engine = engine;
    d->manifest = describe(engine);
    return cadre_new_folder_open(dir, &d->folder);
}

// A whole plane; NULL: the parameters, wherever they lie.
static cadre_status write_plane(draft *d, const char *name, float *plane)
{
    cadre_manifest_file *file = &d->manifest.files[d->manifest.n_files++];
    snprintf(file->plane, sizeof(file->plane), "%s", name);
    char *path = cadre_checkpoint_plane_path(d->folder.aside, name);
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status =
        cadre_model_write_plane(d->engine->model, plane, path);
    if (status == CADRE_OK) {
        status = cadre_checkpoint_checksum(path, &file->nbytes, &file->crc32c);
    }
    cadre_free(path);
    return status;
}

static cadre_status save_slot(cadre_engine *e, draft *d, int slot)
{
    const cadre_plane *own = &e->slots[slot];
    cadre_placement placement = optimizer_placement(e);
    bool first = is_first(e);
    float *whole = own->data;
    float *memory = NULL;
    if (placement == CADRE_SHARDED) {
        size_t n = e->model->layout.n_elements;
        memory = first ? cadre_alloc_array(n, sizeof(*memory)) : NULL;
        bool made = memory != NULL || !first;
        CADRE_TRY(cadre_share_verdict(
            e->group, made ? CADRE_OK : CADRE_ERR_NO_MEMORY));
        whole = memory;
    }
    cadre_status status = CADRE_OK;
    if (placement == CADRE_SHARDED) {
        status = cadre_plane_collect(
            e->group, &e->model->layout, placement, own->data, whole);
    }
    if (status == CADRE_OK) {
        status = cadre_share_verdict(
            e->group, first ? write_plane(d, own->name, whole) : CADRE_OK);
    }
    cadre_free(memory);
    return status;
}

static cadre_status finish_draft(draft *d)
{
    char *path = cadre_path_join(d->folder.aside, CADRE_MANIFEST_NAME);
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = cadre_manifest_write(&d->manifest, path);
    cadre_free(path);
    return status != CADRE_OK ? status : cadre_new_folder_commit(&d->folder);
}

cadre_status cadre_checkpoint_save(cadre_engine *engine, const char *dir)
{
    CADRE_TRY(check_call(engine, dir, "save"));
    bool first = is_first(engine);
    cadre_group *group = engine->group;
    draft d = {0};
    cadre_status status = cadre_share_verdict(
        group, first ? begin_draft(engine, dir, &d) : CADRE_OK);
    if (status == CADRE_OK) {
        status = cadre_share_verdict(
            group, first ? write_plane(&d, params_name, NULL) : CADRE_OK);
    }
    for (int i = 0; i < engine->n_slots && status == CADRE_OK; i++) {
        status = save_slot(engine, &d, i);
    }
    if (status == CADRE_OK) {
        status =
            cadre_share_verdict(group, first ? finish_draft(&d) : CADRE_OK);
    }
    cadre_new_folder_discard(&d.folder);
    return status;
}

// --- loading ---

static cadre_status check_settings(
    const cadre_engine *e, const cadre_manifest *m, const char *dir)
{
    cadre_setting settings[CADRE_UPDATE_SETTINGS];
    cadre_update_settings(&e->o, settings);
    for (int i = 0; i < CADRE_UPDATE_SETTINGS; i++) {
        if (settings[i].value != m->settings[i]) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "checkpoint '%s' was made with %s %.17g, not %.17g: give the "
                "same",
                dir, settings[i].name, m->settings[i], settings[i].value);
        }
    }
    if (m->leaves != e->o.leaves && !e->leaves_given) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "checkpoint '%s' was made with %d leaves, not %d: give leaves, "
            "since another number has other bits",
            dir, m->leaves, e->o.leaves);
    }
    return CADRE_OK;
}

static cadre_status check_planes(
    const cadre_engine *e, const cadre_manifest *m, const char *dir)
{
    bool same = m->layout_hash == cadre_layout_hash(&e->model->layout) &&
                m->n_files == 1 + e->n_slots &&
                strcmp(m->files[0].plane, params_name) == 0;
    for (int i = 0; i < e->n_slots && same; i++) {
        same = strcmp(m->files[1 + i].plane, e->slots[i].name) == 0;
    }
    return same ? CADRE_OK
                : cadre_fail(CADRE_ERR_CORRUPT,
                      "checkpoint '%s' is of another model: names, shapes or "
                      "flags of its parameters differ",
                      dir);
}

static cadre_status open_checkpoint(
    const cadre_engine *e, const char *dir, cadre_manifest *out)
{
    cadre_manifest m;
    CADRE_TRY(cadre_checkpoint_verify(dir, &m));
    cadre_status status = check_settings(e, &m, dir);
    if (status == CADRE_OK) {
        status = check_planes(e, &m, dir);
    }
    if (status != CADRE_OK) {
        cadre_manifest_release(&m);
        return status;
    }
    *out = m;
    return CADRE_OK;
}

// Reads a whole plane; NULL: the parameters, to wherever they lie.
static cadre_status read_plane(
    const cadre_engine *e, const char *dir, const char *name, float *plane)
{
    char *path = cadre_checkpoint_plane_path(dir, name);
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = cadre_model_read_plane(e->model, plane, path);
    cadre_free(path);
    return status;
}

static cadre_status read_params(
    const cadre_engine *e, const char *dir, const cadre_manifest *m)
{
    CADRE_TRY(read_plane(e, dir, params_name, NULL));
    return cadre_model_hash(e->model) == m->params_hash
               ? CADRE_OK
               : cadre_fail(CADRE_ERR_CORRUPT,
                     "the parameters in '%s' do not match their hash", dir);
}

static cadre_status load_params(
    cadre_engine *e, const char *dir, const cadre_manifest *m)
{
    CADRE_TRY(cadre_share_verdict(
        e->group, is_first(e) ? read_params(e, dir, m) : CADRE_OK));
    for (int i = 0; i < e->model->layout.n_segments; i++) {
        CADRE_TRY(cadre_broadcast(e->group, cadre_model_values(e->model, i),
            e->model->layout.segments[i].count, CADRE_F32, 0, NULL));
    }
    return CADRE_OK;
}

static cadre_status load_slot(cadre_engine *e, const char *dir, int slot)
{
    cadre_plane *own = &e->slots[slot];
    cadre_placement placement = optimizer_placement(e);
    float *whole = NULL;
    float *memory = NULL;
    cadre_status status = CADRE_OK;
    if (is_first(e)) {
        bool sharded = placement == CADRE_SHARDED;
        size_t n = e->model->layout.n_elements;
        memory = sharded ? cadre_alloc_array(n, sizeof(*memory)) : NULL;
        whole = sharded ? memory : own->data;
        status = whole == NULL ? CADRE_ERR_NO_MEMORY
                               : read_plane(e, dir, own->name, whole);
    }
    status = cadre_share_verdict(e->group, status);
    if (status == CADRE_OK) {
        status = cadre_plane_deal(
            e->group, &e->model->layout, placement, whole, own->data);
    }
    cadre_free(memory);
    return status;
}

// What all ranks take over from the manifest, as words.
enum { STEP, UPDATES, SKIPPED, POWERS, NOTE_BYTES = POWERS + 2, N_WORDS };

static_assert(sizeof(cadre_powers) == 2 * sizeof(int64_t), "sent as words");

// from is NULL on all ranks but 0.
static cadre_status share_text(
    cadre_group *group, const char *from, char *text, size_t nbytes)
{
    if (from != NULL) {
        memcpy(text, from, nbytes);
    }
    CADRE_TRY(cadre_broadcast(group, text, nbytes, CADRE_U8, 0, NULL));
    text[nbytes - 1] = '\0';
    return CADRE_OK;
}

// nbytes is what rank 0 said: with the final zero; none is no bytes.
static cadre_status share_note(
    cadre_engine *e, const cadre_manifest *m, int64_t nbytes)
{
    if (nbytes == 0) {
        return cadre_engine_set_note(e, NULL);
    }
    bool sensible = nbytes > 0 && nbytes <= MOST_NOTE_BYTES + 1;
    char *text = sensible ? cadre_alloc((size_t)nbytes) : NULL;
    cadre_status status = cadre_share_verdict(
        e->group, text != NULL ? CADRE_OK : CADRE_ERR_NO_MEMORY);
    if (status == CADRE_OK && text != NULL) {
        status = share_text(e->group, m->note, text, (size_t)nbytes);
    }
    if (status == CADRE_OK) {
        status = cadre_share_verdict(e->group, cadre_engine_set_note(e, text));
    }
    cadre_free(text);
    return status;
}

// The last part: from here on the engine stands where the checkpoint was made.
static cadre_status share_state(cadre_engine *e, const cadre_manifest *m)
{
    int64_t words[N_WORDS] = {0};
    if (is_first(e)) {
        words[STEP] = m->step;
        words[UPDATES] = m->updates;
        words[SKIPPED] = m->skipped_in_row;
        memcpy(&words[POWERS], &m->powers, sizeof(m->powers));
        words[NOTE_BYTES] = m->note == NULL ? 0 : (int64_t)strlen(m->note) + 1;
    }
    CADRE_TRY(cadre_broadcast(e->group, words, N_WORDS, CADRE_I64, 0, NULL));
    CADRE_TRY(share_note(e, m, words[NOTE_BYTES]));
    e->step = words[STEP];
    e->updates = words[UPDATES];
    e->skipped_in_row = (int)words[SKIPPED];
    memcpy(&e->powers, &words[POWERS], sizeof(e->powers));
    e->compared = false; // a rank's memory may have been the caller's
    e->model->grads = NULL;
    return CADRE_OK;
}

cadre_status cadre_checkpoint_load(cadre_engine *engine, const char *dir)
{
    CADRE_TRY(check_call(engine, dir, "load"));
    cadre_manifest m = {0};
    cadre_status status = cadre_share_verdict(engine->group,
        is_first(engine) ? open_checkpoint(engine, dir, &m) : CADRE_OK);
    if (status == CADRE_OK) {
        status = load_params(engine, dir, &m);
    }
    for (int i = 0; i < engine->n_slots && status == CADRE_OK; i++) {
        status = load_slot(engine, dir, i);
    }
    if (status == CADRE_OK) {
        status = share_state(engine, &m);
    }
    cadre_manifest_release(&m);
    return status;
}
