// SPDX-License-Identifier: Apache-2.0

#include "data/idx_file.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/unnamed_file.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

cadre_status cadre_idx_corrupt(
    const cadre_idx_file *file, const char *format, ...)
{
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    return cadre_fail(CADRE_ERR_CORRUPT, "'%s' %s", file->path, what);
}

static cadre_status try_open(
    const char *folder, const char *name, cadre_idx_file *file)
{
    char *path = cadre_path_join(folder, name);
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = cadre_regular_file_open(path, &file->fd);
    if (status != CADRE_OK) {
        cadre_free(path);
        return status;
    }
    file->path = path;
    if (cadre_gunzip_is_wanted(file->fd)) {
        status = cadre_gunzip_create(file->fd, path, &file->gunzip);
    }
    if (status != CADRE_OK) {
        cadre_idx_close(file);
    }
    return status;
}

static cadre_status find(
    const char *folder, const char *name, cadre_idx_file *file)
{
    cadre_status status = try_open(folder, name, file);
    if (status != CADRE_ERR_NOT_FOUND) {
        return status;
    }
    char gzipped[128];
    snprintf(gzipped, sizeof(gzipped), "%s.gz", name);
    status = try_open(folder, gzipped, file);
    if (status != CADRE_ERR_NOT_FOUND) {
        return status;
    }
    return cadre_fail(CADRE_ERR_NOT_FOUND,
        "there is neither '%s/%s' nor '%s/%s'", folder, name, folder, gzipped);
}

// Reads up to nbytes; fewer where the file ends.
static cadre_status read_plain(
    const cadre_idx_file *file, uint8_t *at, size_t nbytes, size_t *got)
{
    size_t done = 0;
    ssize_t n = 1;
    while (done < nbytes && n != 0) {
        n = read(file->fd, at + done, nbytes - done);
        if (n < 0 && errno != EINTR) {
            return cadre_fail_errno(
                CADRE_ERR_IO, errno, "cannot read '%s'", file->path);
        }
        done += n > 0 ? (size_t)n : 0;
    }
    *got = done;
    return CADRE_OK;
}

static cadre_status read_some(
    cadre_idx_file *file, uint8_t *at, size_t nbytes, size_t *got)
{
    return file->gunzip == NULL
               ? read_plain(file, at, nbytes, got)
               : cadre_gunzip_read(file->gunzip, at, nbytes, got);
}

static cadre_status read_all(cadre_idx_file *file, uint8_t *at, int64_t nbytes)
{
    size_t got;
    CADRE_TRY(read_some(file, at, (size_t)nbytes, &got));
    return got == (size_t)nbytes ? CADRE_OK
                                 : cadre_idx_corrupt(file,
                                       "is cut: bytes missing at its end: %lld",
                                       (long long)nbytes - (long long)got);
}

// The data end here.  The end of a gzipped file holds its checksum, which is
// compared on the way.
static cadre_status read_end(cadre_idx_file *file)
{
    uint8_t more;
    size_t got;
    CADRE_TRY(read_some(file, &more, 1, &got));
    return got == 0 ? CADRE_OK
                    : cadre_idx_corrupt(file,
                          "goes on behind the last element that its header "
                          "announces");
}

static uint32_t big_endian(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 |
           (uint32_t)at[2] << 8 | at[3];
}

static cadre_status read_header(cadre_idx_file *file, int n_dims)
{
    uint8_t head[4 + 4 * CADRE_IDX_MAX_DIMS];
    const uint8_t *extent = head + 4;
    file->first = 4 + 4 * n_dims;
    CADRE_TRY(read_all(file, head, file->first));

    uint32_t magic = big_endian(head);
    uint32_t wanted = 0x0800u | (uint32_t)n_dims;
    if (magic != wanted) {
        return cadre_idx_corrupt(file,
            "begins with %08x instead of %08x, so it is no such file",
            (unsigned)magic, (unsigned)wanted);
    }
    for (int d = 0; d < n_dims; d++) {
        file->extents[d] = big_endian(extent);
        extent += 4;
    }
    return CADRE_OK;
}

cadre_status cadre_idx_open(
    const char *folder, const char *name, int n_dims, cadre_idx_file *file)
{
    *file = (cadre_idx_file){0};
    CADRE_TRY(find(folder, name, file));
    cadre_status status = read_header(file, n_dims);
    if (status != CADRE_OK) {
        cadre_idx_close(file);
    }
    return status;
}

cadre_status cadre_idx_read(
    cadre_idx_file *file, uint8_t *elements, int64_t nbytes)
{
    CADRE_TRY(read_all(file, elements, nbytes));
    return read_end(file);
}

cadre_status cadre_idx_each(cadre_idx_file *file, int64_t nbytes,
    cadre_idx_taker *take, void *ctx, uint64_t *hash)
{
    // A file to which large pieces are written lies in large pieces of the page
    // cache, where a read finds its place sooner.
    enum { PIECE = 1 << 20 };
    uint8_t *piece = cadre_alloc(PIECE);
    if (piece == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = CADRE_OK;
    uint64_t sum = 0;
    int64_t count;
    for (int64_t at = 0; at < nbytes && status == CADRE_OK; at += count) {
        count = nbytes - at < PIECE ? nbytes - at : PIECE;
        status = read_all(file, piece, count);
        if (status == CADRE_OK && take != NULL) {
            status = take(ctx, piece, count);
        }
        sum = cadre_hash(piece, (size_t)count, sum);
    }
    cadre_free(piece);
    *hash = sum;
    return status == CADRE_OK ? read_end(file) : status;
}

// A file that is written from its begin to its end.
typedef struct target {
    int fd;
    int64_t end;
} target;

static cadre_status write_piece(void *ctx, const uint8_t *piece, int64_t nbytes)
{
    target *t = ctx;
    for (int64_t done = 0; done < nbytes;) {
        ssize_t n =
            pwrite(t->fd, piece + done, (size_t)(nbytes - done), t->end);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return cadre_fail_errno(CADRE_ERR_IO, n == 0 ? EIO : errno,
                "a file without a name takes no more");
        }
        done += n > 0 ? n : 0;
        t->end += n > 0 ? n : 0;
    }
    return CADRE_OK;
}

static cadre_status unpack(cadre_idx_file *file, int64_t nbytes, uint64_t *hash)
{
    target t = {.fd = -1};
    cadre_status status = cadre_unnamed_file_open(nbytes, &t.fd);
    if (status == CADRE_OK) {
        status = cadre_idx_each(file, nbytes, write_piece, &t, hash);
    }
    if (status == CADRE_OK) {
        cadre_gunzip_destroy(file->gunzip);
        file->gunzip = NULL;
        close(file->fd);
        file->fd = t.fd;
        file->first = 0;
        return CADRE_OK;
    }
    if (t.fd >= 0) {
        close(t.fd);
    }
    return status != CADRE_ERR_IO
               ? status
               : cadre_fail(status, "'%s' cannot be unpacked: %s", file->path,
                     cadre_error_text());
}

cadre_status cadre_idx_keep(
    cadre_idx_file *file, int64_t nbytes, uint64_t *hash)
{
    return file->gunzip == NULL ? cadre_idx_each(file, nbytes, NULL, NULL, hash)
                                : unpack(file, nbytes, hash);
}

cadre_status cadre_idx_read_at(
    const cadre_idx_file *file, int64_t at, uint8_t *elements, size_t nbytes)
{
    off_t from = (off_t)(file->first + at);
    for (size_t done = 0; done < nbytes;) {
        ssize_t n =
            pread(file->fd, elements + done, nbytes - done, from + (off_t)done);
        if (n == 0) {
            return cadre_idx_corrupt(
                file, "has become shorter since it was opened");
        }
        if (n < 0 && errno != EINTR) {
            return cadre_fail_errno(
                CADRE_ERR_IO, errno, "cannot read '%s'", file->path);
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return CADRE_OK;
}

void cadre_idx_close(cadre_idx_file *file)
{
    if (file->path == NULL) {
        return;
    }
    cadre_gunzip_destroy(file->gunzip);
    close(file->fd);
    cadre_free(file->path);
    *file = (cadre_idx_file){0};
}
