// SPDX-License-Identifier: Apache-2.0

#include "data/whole_file.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

cadre_status cadre_whole_file_fill(
    int fd, const char *path, uint8_t *data, size_t nbytes)
{
    for (size_t used = 0; used < nbytes;) {
        ssize_t n = read(fd, data + used, nbytes - used);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return cadre_fail_errno(CADRE_ERR_IO, n == 0 ? EIO : errno,
                "cannot read '%s' to its end", path);
        }
        used += n > 0 ? (size_t)n : 0;
    }
    return CADRE_OK;
}

static cadre_status read_open(
    int fd, const char *path, size_t most, uint8_t **data, size_t *nbytes)
{
    struct stat about;
    if (fstat(fd, &about) != 0) {
        return cadre_fail_errno(CADRE_ERR_IO, errno, "cannot read '%s'", path);
    }
    if (about.st_size < 1 || (uint64_t)about.st_size > most) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "'%s' has %" PRId64 " bytes; 1 to %zu are wanted", path,
            (int64_t)about.st_size, most);
    }
    *nbytes = (size_t)about.st_size;
    *data = cadre_alloc(*nbytes);
    if (*data == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = cadre_whole_file_fill(fd, path, *data, *nbytes);
    if (status != CADRE_OK) {
        cadre_free(*data);
        *data = NULL;
    }
    return status;
}

cadre_status cadre_whole_file_read(
    const char *path, size_t most, uint8_t **data, size_t *nbytes)
{
    int fd;
    CADRE_TRY(cadre_regular_file_open(path, &fd));
    cadre_status status = read_open(fd, path, most, data, nbytes);
    close(fd);
    return status;
}
