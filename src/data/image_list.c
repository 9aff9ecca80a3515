// SPDX-License-Identifier: Apache-2.0

#include "data/image_list.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/hash.h"
#include "base/log.h"
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

// More than any data set has; whoever points at a whole disk is told.
enum { MOST_CLASSES = 100000, MOST_IMAGES = 1 << 28 };

// --- names that grow ---

// Names back to back, each with its zero.
typedef struct name_block {
    char *data;
    size_t used;
    size_t room;
    int64_t n;
    cadre_status status; // of what was added last
} name_block;

static cadre_status make_room(name_block *b, size_t nbytes)
{
    enum { FIRST = 4096 };
    if (b->room - b->used >= nbytes) {
        return CADRE_OK;
    }
    size_t room = 2 * b->room + FIRST + nbytes;
    char *data = cadre_alloc(room);
    if (data == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    if (b->used > 0) {
        memcpy(data, b->data, b->used);
    }
    cadre_free(b->data);
    b->data = data;
    b->room = room;
    return CADRE_OK;
}

static void add_name(const char *name, void *ctx)
{
    name_block *b = ctx;
    size_t nbytes = strlen(name) + 1;
    if (name[0] == '.' || b->status != CADRE_OK) {
        return;
    }
    b->status = make_room(b, nbytes);
    if (b->status == CADRE_OK) {
        memcpy(b->data + b->used, name, nbytes);
        b->used += nbytes;
        b->n++;
    }
}

static cadre_status list_names(const char *folder, name_block *b)
{
    CADRE_TRY(cadre_folder_list(folder, add_name, b));
    return b->status;
}

// --- classes ---

static int by_name(const void *left, const void *right)
{
    const char *const *a = left;
    const char *const *b = right;
    return strcmp(*a, *b);
}

// What a path leads to, a link being followed.
static cadre_status look_at(
    const char *folder, const char *name, struct stat *about)
{
    char *path = cadre_path_join(folder, name);
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = stat(path, about) == 0
                              ? CADRE_OK
                              : cadre_fail_errno(CADRE_ERR_IO, errno,
                                    "cannot look at '%s'", path);
    cadre_free(path);
    return status;
}

typedef struct class_list {
    name_block names;
    char **classes; // into names
    int64_t n;
} class_list;

static void release_classes(class_list *c)
{
    cadre_free(c->classes);
    cadre_free(c->names.data);
    *c = (class_list){0};
}

// Those of the names that are folders, in order.
static cadre_status keep_folders(const char *folder, class_list *c)
{
    c->classes = cadre_alloc_array((size_t)c->names.n, sizeof(*c->classes));
    if (c->classes == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    char *name = c->names.data;
    for (int64_t i = 0; i < c->names.n; i++) {
        struct stat about;
        CADRE_TRY(look_at(folder, name, &about));
        if (S_ISDIR(about.st_mode)) {
            c->classes[c->n++] = name;
        }
        name += strlen(name) + 1;
    }
    qsort(c->classes, (size_t)c->n, sizeof(*c->classes), by_name);
    return CADRE_OK;
}

static cadre_status list_classes(const char *folder, class_list *c)
{
    cadre_status status = list_names(folder, &c->names);
    if (status == CADRE_ERR_NOT_FOUND) {
        return cadre_fail(status,
            "%s; data.path has to name a folder with train/<class>/ and "
            "val/<class>/, where images lie",
            cadre_error_text());
    }
    CADRE_TRY(status);
    CADRE_TRY(keep_folders(folder, c));
    if (c->n < 1 || c->n > MOST_CLASSES) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "'%s' has %" PRId64
            " folders; one for each class is wanted, 1 to %d of them",
            folder, c->n, (int)MOST_CLASSES);
    }
    return CADRE_OK;
}

// Names the first class that only one of the splits has.
static cadre_status compare_classes(
    const class_list *train, const class_list *val, const char *path)
{
    for (int64_t i = 0; i < train->n || i < val->n; i++) {
        const char *a = i < train->n ? train->classes[i] : NULL;
        const char *b = i < val->n ? val->classes[i] : NULL;
        int order = a == NULL ? 1 : b == NULL ? -1 : strcmp(a, b);
        if (order != 0) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "'%s': class '%s' is in %s and not in %s; both need the same "
                "folders",
                path, order < 0 ? a : b, order < 0 ? "train" : "val",
                order < 0 ? "val" : "train");
        }
    }
    return CADRE_OK;
}

// --- images ---

static bool is_image(const char *name)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        if (dot != NULL && strcasecmp(dot, endings[i]) == 0) {
            return true;
        }
    }
    return false;
}

// The names of one class's folder become entries with sizes; *n counts them.
typedef struct survey {
    const char *folder;
    int32_t label;
    cadre_image_entry *images; // room for all of them
    int64_t n;
    int64_t n_others; // files that are no images
} survey;

static cadre_status survey_name(survey *s, const char *name)
{
    struct stat about;
    CADRE_TRY(look_at(s->folder, name, &about));
    if (S_ISDIR(about.st_mode)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "'%s/%s' is a folder; images have to lie in their class's own",
            s->folder, name);
    }
    if (!S_ISREG(about.st_mode) && is_image(name)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG, "'%s/%s' is no ordinary file",
            s->folder, name);
    }
    if (!is_image(name)) {
        s->n_others++;
        return CADRE_OK;
    }
    s->images[s->n++] = (cadre_image_entry){
        .name = name, .nbytes = about.st_size, .label = s->label};
    return CADRE_OK;
}

static int by_image_name(const void *left, const void *right)
{
    const cadre_image_entry *a = left;
    const cadre_image_entry *b = right;
    return strcmp(a->name, b->name);
}

static cadre_status survey_class(survey *s, const char *names, int64_t n_names)
{
    const int64_t first = s->n;
    for (int64_t i = 0; i < n_names; i++) {
        CADRE_TRY(survey_name(s, names));
        names += strlen(names) + 1;
    }
    if (s->n == first) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "class folder '%s' has no image (.jpg, .jpeg or .png)", s->folder);
    }
    qsort(s->images + first, (size_t)(s->n - first), sizeof(*s->images),
        by_image_name);
    return CADRE_OK;
}

// Reads the names of all classes; ends[i] is how many there are up to class i.
static cadre_status read_names(
    const cadre_image_list *list, name_block *b, int64_t *ends)
{
    for (int64_t i = 0; i < list->n_classes; i++) {
        char *folder = cadre_path_join(list->folder, list->classes[i]);
        cadre_status status =
            folder == NULL ? CADRE_ERR_NO_MEMORY : list_names(folder, b);
        cadre_free(folder);
        CADRE_TRY(status);
        if (b->n > MOST_IMAGES) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "'%s' has more than %d files", list->folder, (int)MOST_IMAGES);
        }
        ends[i] = b->n;
    }
    return CADRE_OK;
}

static cadre_status survey_all(
    cadre_image_list *list, const name_block *b, const int64_t *ends)
{
    survey s = {.images = list->images};
    const char *names = b->data;
    int64_t begin = 0;
    for (int64_t i = 0; i < list->n_classes; i++) {
        char *folder = cadre_path_join(list->folder, list->classes[i]);
        if (folder == NULL) {
            return CADRE_ERR_NO_MEMORY;
        }
        s.folder = folder;
        s.label = (int32_t)i;
        cadre_status status = survey_class(&s, names, ends[i] - begin);
        cadre_free(folder);
        CADRE_TRY(status);
        for (; begin < ends[i]; begin++) {
            names += strlen(names) + 1;
        }
    }
    list->n_images = s.n;
    if (s.n_others > 0) {
        cadre_log(CADRE_LOG_INFO, "data",
            "%" PRId64 " files in '%s' are no images and are passed over",
            s.n_others, list->folder);
    }
    return CADRE_OK;
}

static cadre_status list_images(cadre_image_list *list)
{
    name_block b = {0};
    int64_t *ends = cadre_alloc_array((size_t)list->n_classes, sizeof(*ends));
    cadre_status status =
        ends == NULL ? CADRE_ERR_NO_MEMORY : read_names(list, &b, ends);
    list->names = b.data;
    if (status == CADRE_OK) {
        list->images = cadre_alloc_array((size_t)b.n, sizeof(*list->images));
        status = list->images == NULL ? CADRE_ERR_NO_MEMORY
                                      : survey_all(list, &b, ends);
    }
    cadre_free(ends);
    return status;
}

// --- the whole ---

// Copies the names of classes, so that a list owns what it points to.
static cadre_status take_classes(class_list *from, cadre_image_list *list)
{
    list->classes = cadre_alloc_array((size_t)from->n, sizeof(*list->classes));
    if (list->classes == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    list->n_classes = from->n;
    for (int64_t i = 0; i < from->n; i++) {
        list->classes[i] = cadre_alloc_string(from->classes[i]);
        if (list->classes[i] == NULL) {
            return CADRE_ERR_NO_MEMORY;
        }
    }
    return CADRE_OK;
}

// Lists the classes of one split, and its folder's path.
static cadre_status list_split(
    const char *path, const char *name, char **folder, class_list *c)
{
    *folder = cadre_path_join(path, name);
    return *folder == NULL ? CADRE_ERR_NO_MEMORY : list_classes(*folder, c);
}

static cadre_status make_list(
    const char *path, cadre_split split, class_list c[2], cadre_image_list *out)
{
    static const char *const names[] = {"train", "val"};
    for (int i = 0; i < 2; i++) {
        char *folder = NULL;
        cadre_status status = list_split(path, names[i], &folder, &c[i]);
        if (i == (int)split) {
            out->folder = folder;
        } else {
            cadre_free(folder);
        }
        CADRE_TRY(status);
    }
    CADRE_TRY(compare_classes(&c[0], &c[1], path));
    CADRE_TRY(take_classes(&c[split], out));
    return list_images(out);
}

cadre_status cadre_image_list_make(
    const char *path, cadre_split split, cadre_image_list *out)
{
    class_list c[2] = {0};
    cadre_image_list list = {0};
    cadre_status status = make_list(path, split, c, &list);
    release_classes(&c[0]);
    release_classes(&c[1]);
    if (status != CADRE_OK) {
        cadre_image_list_fini(&list);
        return status;
    }
    *out = list;
    return CADRE_OK;
}

void cadre_image_list_fini(cadre_image_list *list)
{
    for (int64_t i = 0; i < list->n_classes; i++) {
        cadre_free(list->classes[i]);
    }
    cadre_free(list->classes);
    cadre_free(list->images);
    cadre_free(list->names);
    cadre_free(list->folder);
    *list = (cadre_image_list){0};
}

char *cadre_image_list_path(const cadre_image_list *list, int64_t index)
{
    const cadre_image_entry *image = &list->images[index];
    const char *label = list->classes[image->label];
    size_t nbytes =
        strlen(list->folder) + strlen(label) + strlen(image->name) + 3;
    char *path = cadre_alloc(nbytes);
    if (path != NULL) {
        snprintf(path, nbytes, "%s/%s/%s", list->folder, label, image->name);
    }
    return path;
}

uint64_t cadre_image_list_hash(const cadre_image_list *list)
{
    uint64_t hash = 0;
    for (int64_t i = 0; i < list->n_classes; i++) {
        hash = cadre_hash(list->classes[i], strlen(list->classes[i]) + 1, hash);
    }
    for (int64_t i = 0; i < list->n_images; i++) {
        const cadre_image_entry *image = &list->images[i];
        const int64_t words[] = {image->nbytes, image->label};
        hash = cadre_hash(image->name, strlen(image->name) + 1, hash);
        hash = cadre_hash(words, sizeof(words), hash);
    }
    return hash;
}
