// SPDX-License-Identifier: Apache-2.0

#define _XOPEN_SOURCE 700 // realpath

#include "base/folder.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *with_suffix(const char *path, const char *suffix)
{
    size_t nbytes = strlen(path) + strlen(suffix) + 1;
    char *text = cadre_alloc(nbytes);
    if (text != NULL) {
        snprintf(text, nbytes, "%s%s", path, suffix);
    }
    return text;
}

cadre_status cadre_folder_list(
    const char *path, void (*visit)(const char *name, void *ctx), void *ctx)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        int error = errno;
        return cadre_fail_errno(
            error == ENOENT ? CADRE_ERR_NOT_FOUND : CADRE_ERR_IO, error,
            "cannot read the folder '%s'", path);
    }
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 &&
            strcmp(entry->d_name, "..") != 0) {
            visit(entry->d_name, ctx);
        }
    }
    closedir(folder);
    return CADRE_OK;
}

// A file that cannot be removed shows when the folder is.
static void remove_file(const char *name, void *ctx)
{
    char *path = cadre_path_join(ctx, name);
    if (path != NULL) {
        (void)unlink(path);
    }
    cadre_free(path);
}

static cadre_status remove_as_it_is(char *path)
{
    // A file; or a link, and then what it leads to is none of ours.
    if (unlink(path) == 0) {
        return CADRE_OK;
    }
    cadre_status status = cadre_folder_list(path, remove_file, path);
    if (status == CADRE_ERR_NOT_FOUND) {
        return CADRE_OK;
    }
    CADRE_TRY(status);
    return rmdir(path) == 0 ? CADRE_OK
                            : cadre_fail_errno(CADRE_ERR_IO, errno,
                                  "cannot remove the folder '%s'", path);
}

// Its name becomes one that counts for nothing; *aside is then for
// cadre_free().  NULL if there is no such folder.
static cadre_status move_aside(const char *path, char **aside)
{
    *aside = NULL;
    char *name = with_suffix(path, ".old" CADRE_ASIDE);
    if (name == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = remove_as_it_is(name);
    if (status == CADRE_OK && rename(path, name) == 0) {
        *aside = name;
        return CADRE_OK;
    }
    int error = errno;
    cadre_free(name);
    if (status != CADRE_OK || error == ENOENT) {
        return status;
    }
    return cadre_fail_errno(CADRE_ERR_IO, error, "cannot rename '%s'", path);
}

cadre_status cadre_folder_remove(const char *path)
{
    char *aside;
    CADRE_TRY(move_aside(path, &aside));
    cadre_status status = aside == NULL ? CADRE_OK : remove_as_it_is(aside);
    cadre_free(aside);
    return status;
}

static cadre_status sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    return synced ? CADRE_OK
                  : cadre_fail_errno(CADRE_ERR_IO, error,
                        "cannot write the folder '%s' to the disk", path);
}

static cadre_status sync_above(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) {
        return sync_folder(".");
    }
    char *above = cadre_alloc_string(path);
    if (above == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    above[slash == path ? 1 : slash - path] = '\0';
    cadre_status status = sync_folder(above);
    cadre_free(above);
    return status;
}

// A path may lead through the folder that is to be replaced, as "a/../a" does:
// then it leads nowhere while that one is renamed.  So both names become those
// of what the folder aside, which is there, really is.
static cadre_status settle(cadre_new_folder *f)
{
    char real[PATH_MAX];
    if (realpath(f->aside, real) == NULL) {
        return cadre_fail_errno(
            CADRE_ERR_IO, errno, "cannot write '%s'", f->path);
    }
    cadre_free(f->aside);
    cadre_free(f->path);
    f->aside = cadre_alloc_string(real);
    real[strlen(real) - strlen(CADRE_ASIDE)] = '\0';
    f->path = cadre_alloc_string(real);
    return f->aside != NULL && f->path != NULL ? CADRE_OK : CADRE_ERR_NO_MEMORY;
}

static cadre_status make_aside(cadre_new_folder *f)
{
    if (f->path == NULL || f->aside == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    CADRE_TRY(remove_as_it_is(f->aside));
    CADRE_TRY(cadre_make_folders(f->aside));
    return settle(f);
}

cadre_status cadre_new_folder_open(const char *path, cadre_new_folder *folder)
{
    cadre_new_folder f = {.path = cadre_alloc_string(path)};
    for (size_t n = f.path == NULL ? 0 : strlen(f.path);
         n > 1 && f.path[n - 1] == '/'; n--) {
        f.path[n - 1] = '\0';
    }
    f.aside = f.path == NULL ? NULL : with_suffix(f.path, CADRE_ASIDE);
    cadre_status status = make_aside(&f);
    if (status != CADRE_OK) {
        cadre_free(f.path);
        cadre_free(f.aside);
        return status;
    }
    *folder = f;
    return CADRE_OK;
}

// Renames, and puts back what was replaced if that does not work.
static cadre_status swap(const cadre_new_folder *f)
{
    char *old;
    CADRE_TRY(move_aside(f->path, &old));
    bool renamed = rename(f->aside, f->path) == 0;
    int error = errno;
    if (!renamed && old != NULL) {
        (void)rename(old, f->path);
    } else if (renamed && old != NULL) {
        (void)remove_as_it_is(old); // a name that counts for nothing
    }
    cadre_free(old);
    return renamed ? CADRE_OK
                   : cadre_fail_errno(
                         CADRE_ERR_IO, error, "cannot write '%s'", f->path);
}

static void release_names(cadre_new_folder *f)
{
    cadre_free(f->path);
    cadre_free(f->aside);
    *f = (cadre_new_folder){0};
}

cadre_status cadre_new_folder_commit(cadre_new_folder *folder)
{
    cadre_status status = sync_folder(folder->aside);
    if (status == CADRE_OK) {
        status = swap(folder);
    }
    if (status != CADRE_OK) {
        cadre_new_folder_discard(folder);
        return status;
    }
    status = sync_above(folder->path);
    release_names(folder);
    return status;
}

void cadre_new_folder_discard(cadre_new_folder *folder)
{
    // No verdict: what went wrong before is what counts, and its text.
    char *aside = folder->aside;
    if (aside != NULL &&
        cadre_folder_list(aside, remove_file, aside) == CADRE_OK) {
        (void)rmdir(aside);
    }
    release_names(folder);
}
