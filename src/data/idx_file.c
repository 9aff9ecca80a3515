// SPDX-License-Identifier: Apache-2.0

#include "data/idx_file.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
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
    file->path = cadre_path_join(folder, name);
    if (file->path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    int fd = -1;
    cadre_status status = cadre_regular_file_open(file->path, &fd);
    if (status == CADRE_OK) {
        file->stream = gzdopen(fd, "rb"); // takes the descriptor
        if (file->stream != NULL) {
            return CADRE_OK;
        }
        close(fd);
        status = cadre_fail(CADRE_ERR_NO_MEMORY, "zlib has no memory");
    }
    cadre_free(file->path);
    file->path = NULL;
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

// What zlib says after reading done of nbytes.
static cadre_status check_read(
    const cadre_idx_file *file, int error, int64_t done, int64_t nbytes)
{
    int code;
    (void)gzerror(file->stream, &code);
    if (code == Z_ERRNO) {
        return cadre_fail_errno(
            CADRE_ERR_IO, error, "cannot read '%s'", file->path);
    }
    if (code == Z_MEM_ERROR) {
        return cadre_fail(CADRE_ERR_NO_MEMORY, "zlib has no memory");
    }
    if (done < nbytes && (code == Z_OK || code == Z_BUF_ERROR)) {
        return cadre_idx_corrupt(file, "is cut: bytes missing at its end: %lld",
            (long long)(nbytes - done));
    }
    if (code == Z_BUF_ERROR) {
        return cadre_idx_corrupt(file, "is cut: its checksum is missing");
    }
    if (code != Z_OK && code != Z_STREAM_END) {
        return cadre_idx_corrupt(file, "is damaged: its gzip data are broken");
    }
    return CADRE_OK;
}

static cadre_status read_all(cadre_idx_file *file, uint8_t *at, int64_t nbytes)
{
    enum { PART = 1 << 20 }; // gzread() counts in int
    int64_t done = 0;
    int got = 1;
    while (done < nbytes && got > 0) {
        int64_t left = nbytes - done;
        got = gzread(
            file->stream, at + done, (unsigned)(left < PART ? left : PART));
        done += got > 0 ? got : 0;
    }
    return check_read(file, errno, done, nbytes);
}

// The data end here.  The end of a gzipped file holds its checksum, which is
// compared on the way.
static cadre_status read_end(cadre_idx_file *file)
{
    uint8_t more;
    if (gzread(file->stream, &more, 1) > 0) {
        return cadre_idx_corrupt(
            file, "goes on behind the last element that its header announces");
    }
    return check_read(file, errno, 0, 0);
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
    CADRE_TRY(read_all(file, head, 4 + 4 * n_dims));

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

void cadre_idx_close(cadre_idx_file *file)
{
    if (file->stream != NULL) {
        (void)gzclose_r(file->stream); // read errors have been seen
    }
    cadre_free(file->path);
    *file = (cadre_idx_file){0};
}
