// SPDX-License-Identifier: Apache-2.0

#include "base/file.h"

#include "base/alloc.h"
#include "base/fail.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *joined(const char *left, const char *between, const char *right)
{
    size_t nbytes = strlen(left) + strlen(between) + strlen(right) + 1;
    char *text = cadre_alloc(nbytes);
    if (text != NULL) {
        snprintf(text, nbytes, "%s%s%s", left, between, right);
    }
    return text;
}

char *cadre_path_join(const char *folder, const char *name)
{
    return joined(folder, "/", name);
}

cadre_status cadre_new_file_open(const char *path, cadre_new_file *file)
{
    cadre_new_file f = {
        .path = cadre_alloc_string(path), .aside = joined(path, "", ".part")};
    cadre_status status = CADRE_ERR_NO_MEMORY;
    if (f.path != NULL && f.aside != NULL) {
        // What lies there was left by a process that died; a link, or a pipe
        // that nobody reads, must not be opened.
        (void)unlink(f.aside);
        f.stream = fopen(f.aside, "wxe"); // e: not handed to children
        status = f.stream != NULL ? CADRE_OK
                                  : cadre_fail_errno(CADRE_ERR_IO, errno,
                                        "cannot write '%s'", f.aside);
    }
    if (status != CADRE_OK) {
        cadre_free(f.path);
        cadre_free(f.aside);
        return status;
    }
    *file = f;
    return CADRE_OK;
}

cadre_status cadre_new_file_commit(cadre_new_file *file)
{
    int failed = fflush(file->stream) != 0 || fsync(fileno(file->stream)) != 0;
    int error = errno;
    if (fclose(file->stream) != 0 && !failed) {
        failed = 1;
        error = errno;
    }
    file->stream = NULL;
    if (!failed && rename(file->aside, file->path) != 0) {
        failed = 1;
        error = errno;
    }
    cadre_status status = CADRE_OK;
    if (failed) {
        unlink(file->aside);
        status = cadre_fail_errno(
            CADRE_ERR_IO, error, "cannot write '%s'", file->path);
    }
    cadre_new_file_discard(file);
    return status;
}

void cadre_new_file_discard(cadre_new_file *file)
{
    if (file->stream != NULL) {
        fclose(file->stream);
        unlink(file->aside);
    }
    cadre_free(file->path);
    cadre_free(file->aside);
    *file = (cadre_new_file){0};
}

static cadre_status check_regular(const char *path, int fd)
{
    struct stat found;
    if (fstat(fd, &found) != 0) {
        return cadre_fail_errno(CADRE_ERR_IO, errno, "cannot open '%s'", path);
    }
    if (S_ISDIR(found.st_mode)) {
        return cadre_fail_errno(CADRE_ERR_IO, EISDIR, "cannot open '%s'", path);
    }
    return S_ISREG(found.st_mode)
               ? CADRE_OK
               : cadre_fail(CADRE_ERR_IO,
                     "cannot open '%s': it is no regular file", path);
}

cadre_status cadre_regular_file_open(const char *path, int *fd)
{
    // Opening a pipe would wait for its writer.
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (opened < 0) {
        int error = errno;
        return cadre_fail_errno(error == ENOENT || error == ENOTDIR
                                    ? CADRE_ERR_NOT_FOUND
                                    : CADRE_ERR_IO,
            error, "cannot open '%s'", path);
    }
    cadre_status status = check_regular(path, opened);
    if (status != CADRE_OK) {
        close(opened);
        return status;
    }
    *fd = opened;
    return CADRE_OK;
}

// One folder.  That it exists already is fine, that something else has its
// name is not.
static cadre_status make_folder(const char *path)
{
    if (mkdir(path, 0777) == 0) {
        return CADRE_OK;
    }
    int error = errno;
    struct stat found;
    if (error == EEXIST && stat(path, &found) == 0 && S_ISDIR(found.st_mode)) {
        return CADRE_OK;
    }
    return cadre_fail_errno(
        CADRE_ERR_IO, error, "cannot make the folder '%s'", path);
}

cadre_status cadre_make_folders(const char *path)
{
    char *text = cadre_alloc_string(path);
    if (text == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = CADRE_OK;
    for (char *at = text + 1; status == CADRE_OK && *text != '\0'; at++) {
        if (*at != '/' && *at != '\0') {
            continue;
        }
        char kept = *at;
        *at = '\0';
        status = make_folder(text);
        *at = kept;
        if (kept == '\0') {
            break;
        }
    }
    cadre_free(text);
    return status;
}
