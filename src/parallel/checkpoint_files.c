// SPDX-License-Identifier: Apache-2.0

#include "parallel/checkpoint_files.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "kernel/crc32c.h"
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 20 };

char *cadre_checkpoint_plane_path(const char *folder, const char *plane)
{
    char name[CADRE_PLANE_NAME + 16];
    snprintf(name, sizeof(name), "%s.safetensors", plane);
    return cadre_path_join(folder, name);
}

static cadre_status checksum_stream(
    FILE *stream, const char *path, int64_t *nbytes, uint32_t *crc)
{
    char *buffer = cadre_alloc(READ_BYTES);
    if (buffer == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    *nbytes = 0;
    *crc = 0;
    size_t n;
    while ((n = fread(buffer, 1, READ_BYTES, stream)) > 0) {
        *crc = cadre_crc32c(*crc, buffer, n);
        *nbytes += (int64_t)n;
    }
    cadre_status status =
        ferror(stream) == 0
            ? CADRE_OK
            : cadre_fail_errno(CADRE_ERR_IO, errno, "cannot read '%s'", path);
    cadre_free(buffer);
    return status;
}

cadre_status cadre_checkpoint_checksum(
    const char *path, int64_t *nbytes, uint32_t *crc)
{
    int fd;
    CADRE_TRY(cadre_regular_file_open(path, &fd));
    FILE *stream = fdopen(fd, "r");
    if (stream == NULL) {
        int error = errno;
        close(fd);
        return cadre_fail_errno(CADRE_ERR_IO, error, "cannot read '%s'", path);
    }
    cadre_status status = checksum_stream(stream, path, nbytes, crc);
    fclose(stream);
    return status;
}

static cadre_status verify_file(
    const char *folder, const cadre_manifest_file *file)
{
    char *path = cadre_checkpoint_plane_path(folder, file->plane);
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    int64_t nbytes;
    uint32_t crc;
    cadre_status status = cadre_checkpoint_checksum(path, &nbytes, &crc);
    if (status == CADRE_ERR_NOT_FOUND) {
        status = cadre_fail(CADRE_ERR_CORRUPT, "'%s' is missing", path);
    } else if (status == CADRE_OK &&
               (nbytes != file->nbytes || crc != file->crc32c)) {
        status = cadre_fail(CADRE_ERR_CORRUPT,
            "'%s' does not match its checksum: it is damaged", path);
    }
    cadre_free(path);
    return status;
}

static cadre_status read_manifest(const char *folder, cadre_manifest *out)
{
    char *path = cadre_path_join(folder, CADRE_MANIFEST_NAME);
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = cadre_manifest_read(path, out);
    cadre_free(path);
    return status;
}

// The manifest of a checkpoint whose files are all as it says.
cadre_status cadre_checkpoint_verify(const char *folder, cadre_manifest *out)
{
    cadre_manifest m;
    CADRE_TRY(read_manifest(folder, &m));
    cadre_status status = CADRE_OK;
    for (int i = 0; i < m.n_files && status == CADRE_OK; i++) {
        status = verify_file(folder, &m.files[i]);
    }
    if (status != CADRE_OK) {
        cadre_manifest_release(&m);
        return status;
    }
    *out = m;
    return CADRE_OK;
}

cadre_status cadre_checkpoint_inspect(
    const char *dir, cadre_checkpoint_info *out)
{
    if (dir == NULL || out == NULL) {
        return cadre_fail(
            CADRE_ERR_INVALID_ARG, "checkpoint: dir or out is NULL");
    }
    cadre_manifest m;
    CADRE_TRY(cadre_checkpoint_verify(dir, &m));
    *out = (cadre_checkpoint_info){
        .step = m.step,
        .leaves = m.leaves,
        .world_size = m.world_size,
        .note = m.note,
    };
    return CADRE_OK;
}

void cadre_checkpoint_info_release(cadre_checkpoint_info *info)
{
    if (info != NULL) {
        cadre_free(info->note);
        info->note = NULL;
    }
}
