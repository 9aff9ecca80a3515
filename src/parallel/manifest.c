// SPDX-License-Identifier: Apache-2.0

#include "parallel/manifest.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/number.h"
#include "state/leaf.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 1, HASH_DIGITS = 16, MOST_BYTES = 64 << 20 };

void cadre_manifest_release(cadre_manifest *manifest)
{
    cadre_free(manifest->note);
    manifest->note = NULL;
}

// The names of the settings, in their order.
static void name_settings(cadre_setting settings[CADRE_UPDATE_SETTINGS])
{
    const cadre_engine_options none = {0};
    cadre_update_settings(&none, settings);
}

static json_t *hex(uint64_t value)
{
    char digits[HASH_DIGITS + 1];
    snprintf(digits, sizeof(digits), "%016" PRIx64, value);
    return json_string(digits);
}

// --- writing ---

static json_t *settings_json(const cadre_manifest *m)
{
    cadre_setting named[CADRE_UPDATE_SETTINGS];
    name_settings(named);
    json_t *object = json_object();
    for (int i = 0; i < CADRE_UPDATE_SETTINGS; i++) {
        json_object_set_new(object, named[i].name, json_real(m->settings[i]));
    }
    return object;
}

static json_t *files_json(const cadre_manifest *m)
{
    json_t *array = json_array();
    for (int i = 0; i < m->n_files; i++) {
        const cadre_manifest_file *f = &m->files[i];
        json_array_append_new(
            array, json_pack("{s:s, s:I, s:I}", "plane", f->plane, "bytes",
                       (json_int_t)f->nbytes, "crc32c", (json_int_t)f->crc32c));
    }
    return array;
}

static json_t *body_json(const cadre_manifest *m)
{
    return json_pack("{s:i, s:I, s:I, s:i, s:f, s:f, s:i, s:i, s:i, s:o, s:o, "
                     "s:o, s:o, s:s?}",
        "version", (int)VERSION, "step", (json_int_t)m->step, "updates",
        (json_int_t)m->updates, "skipped_in_row", m->skipped_in_row,
        "beta1_power", m->powers.beta1, "beta2_power", m->powers.beta2,
        "leaves", m->leaves, "fold", m->fold, "world_size", m->world_size,
        "layout_hash", hex(m->layout_hash), "params_hash", hex(m->params_hash),
        "settings", settings_json(m), "files", files_json(m), "note", m->note);
}

// The hash of a body's one shortest form, whatever its file looks like; false
// without memory.
static bool hash_body(const json_t *body, uint64_t *hash)
{
    const size_t flags = JSON_COMPACT | JSON_SORT_KEYS;
    size_t nbytes = json_dumpb(body, NULL, 0, flags);
    char *text = nbytes == 0 ? NULL : cadre_alloc(nbytes);
    bool made = text != NULL && json_dumpb(body, text, nbytes, flags) == nbytes;
    if (made) {
        *hash = cadre_hash(text, nbytes, 0);
    }
    cadre_free(text);
    return made;
}

static json_t *root_json(const cadre_manifest *m)
{
    json_t *body = body_json(m);
    uint64_t hash;
    if (body == NULL || !hash_body(body, &hash)) {
        json_decref(body);
        return NULL;
    }
    return json_pack("{s:o, s:o}", "manifest", body, "hash", hex(hash));
}

cadre_status cadre_manifest_write(
    const cadre_manifest *manifest, const char *path)
{
    json_t *root = root_json(manifest);
    if (root == NULL) {
        return cadre_fail(CADRE_ERR_NO_MEMORY, "out of memory for '%s'", path);
    }
    cadre_new_file file;
    cadre_status status = cadre_new_file_open(path, &file);
    if (status == CADRE_OK) {
        // What fails here is seen again, and reported, by commit.
        (void)json_dumpf(root, file.stream, JSON_INDENT(2));
        (void)fputc('\n', file.stream);
        status = cadre_new_file_commit(&file);
    }
    json_decref(root);
    return status;
}

// --- reading ---

static cadre_status damaged(const char *path, const char *how)
{
    return cadre_fail(
        CADRE_ERR_CORRUPT, "'%s' is no usable manifest: %s", path, how);
}

static cadre_status load(const char *path, json_t **root)
{
    int fd;
    CADRE_TRY(cadre_regular_file_open(path, &fd));
    struct stat about;
    cadre_status status = CADRE_OK;
    if (fstat(fd, &about) != 0 || about.st_size > MOST_BYTES) {
        status = damaged(path, "it is far too long");
    } else {
        *root = json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL);
        if (*root == NULL) {
            status = damaged(path, "it is not JSON, or cut");
        }
    }
    close(fd);
    return status;
}

static bool read_hex(const json_t *value, uint64_t *out)
{
    const char *text = json_string_value(value);
    return text != NULL && cadre_parse_hash(text, out);
}

static bool read_settings(const json_t *object, cadre_manifest *m)
{
    cadre_setting named[CADRE_UPDATE_SETTINGS];
    name_settings(named);
    for (int i = 0; i < CADRE_UPDATE_SETTINGS; i++) {
        const json_t *value = json_object_get(object, named[i].name);
        if (!json_is_real(value)) {
            return false;
        }
        m->settings[i] = json_real_value(value);
    }
    return true;
}

static bool read_files(const json_t *array, cadre_manifest *m)
{
    size_t n = json_array_size(array);
    if (n < 1 || n > CADRE_MANIFEST_FILES) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        cadre_manifest_file *f = &m->files[i];
        const json_t *entry = json_array_get(array, i);
        const char *plane = json_string_value(json_object_get(entry, "plane"));
        f->nbytes = json_integer_value(json_object_get(entry, "bytes"));
        f->crc32c =
            (uint32_t)json_integer_value(json_object_get(entry, "crc32c"));
        if (plane == NULL || strlen(plane) >= sizeof(f->plane) ||
            strchr(plane, '/') != NULL) {
            return false;
        }
        snprintf(f->plane, sizeof(f->plane), "%s", plane);
    }
    m->n_files = (int)n;
    return true;
}

static bool read_numbers(json_t *body, cadre_manifest *m)
{
    json_int_t step;
    json_int_t updates;
    int unpacked = json_unpack(body, "{s:I, s:I, s:i, s:F, s:F, s:i, s:i, s:i}",
        "step", &step, "updates", &updates, "skipped_in_row",
        &m->skipped_in_row, "beta1_power", &m->powers.beta1, "beta2_power",
        &m->powers.beta2, "leaves", &m->leaves, "fold", &m->fold, "world_size",
        &m->world_size);
    m->step = step;
    m->updates = updates;
    return unpacked == 0 && step >= 0 && updates >= 0 && updates <= step &&
           m->skipped_in_row >= 0 && m->leaves >= 1 &&
           m->leaves <= CADRE_MAX_LEAVES;
}

static cadre_status read_note(const json_t *value, cadre_manifest *m)
{
    const char *note = json_string_value(value);
    if (note == NULL) {
        return CADRE_OK;
    }
    m->note = cadre_alloc_string(note);
    return m->note == NULL ? CADRE_ERR_NO_MEMORY : CADRE_OK;
}

static cadre_status read_root(
    const json_t *root, const char *path, cadre_manifest *m)
{
    json_t *body = json_object_get(root, "manifest");
    uint64_t found;
    uint64_t wanted;
    if (!json_is_object(body) ||
        !read_hex(json_object_get(root, "hash"), &wanted)) {
        return damaged(path, "manifest or hash is missing");
    }
    if (!hash_body(body, &found)) {
        return CADRE_ERR_NO_MEMORY;
    }
    if (found != wanted) {
        return damaged(path, "its content does not match its hash");
    }
    if (json_integer_value(json_object_get(body, "version")) != VERSION) {
        return damaged(path, "another version of this library wrote it");
    }
    if (!read_numbers(body, m) ||
        !read_hex(json_object_get(body, "layout_hash"), &m->layout_hash) ||
        !read_hex(json_object_get(body, "params_hash"), &m->params_hash) ||
        !read_settings(json_object_get(body, "settings"), m) ||
        !read_files(json_object_get(body, "files"), m)) {
        return damaged(path, "a field is missing or out of range");
    }
    return read_note(json_object_get(body, "note"), m);
}

cadre_status cadre_manifest_read(const char *path, cadre_manifest *out)
{
    json_t *root;
    CADRE_TRY(load(path, &root));
    cadre_manifest m = {0};
    cadre_status status = read_root(root, path, &m);
    json_decref(root);
    if (status == CADRE_OK) {
        *out = m;
    }
    return status;
}
