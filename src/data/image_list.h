// SPDX-License-Identifier: Apache-2.0
//
// The files of one split of a folder of images:
//
//     train/<class>/<image>, val/<class>/<image>
//
// Both splits have the same classes.  They and the images of each are in the
// order of their names' bytes, so the list is the same wherever the same files
// lie.  Images end in .jpg, .jpeg or .png; other files, and names that begin
// with a dot, are passed over.
//
// Threads: a finished list is immutable; any.

#ifndef CADRE_DATA_IMAGE_LIST_H
#define CADRE_DATA_IMAGE_LIST_H

#include "cadre/status.h"
#include "data/dataset.h"
#include <stddef.h>
#include <stdint.h>

typedef struct cadre_image_entry {
    const char *name;
    int64_t nbytes;
    int32_t label; // number of its class
} cadre_image_entry;

typedef struct cadre_image_list {
    char *folder; // of the split
    char **classes;
    int64_t n_classes;
    cadre_image_entry *images;
    int64_t n_images;
    char *names; // of all images
} cadre_image_list;

/**
 * Lists the images of a split.  Give *out to cadre_image_list_fini().
 *
 * Errors: CADRE_ERR_NOT_FOUND    a split's folder is missing
 *         CADRE_ERR_INVALID_ARG  the folders are not as above; says which
 *         CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_image_list_make(
    const char *path, cadre_split split, cadre_image_list *out);
void cadre_image_list_fini(cadre_image_list *list);

/** An image's path, for cadre_free(); NULL without memory. */
char *cadre_image_list_path(const cadre_image_list *list, int64_t index);

/** A hash of the names, the sizes and the classes. */
uint64_t cadre_image_list_hash(const cadre_image_list *list);

#endif // CADRE_DATA_IMAGE_LIST_H
