// SPDX-License-Identifier: Apache-2.0

#define _GNU_SOURCE // mkostemp, which makes its descriptor private in one call

#include "base/unnamed_file.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static const char *find_folder(void)
{
    const char *wanted = getenv("TMPDIR");
    return wanted == NULL || wanted[0] == '\0' ? "/tmp" : wanted;
}

static cadre_status refuse(int error, const char *folder, int64_t nbytes)
{
    return cadre_fail_errno(CADRE_ERR_IO, error,
        "no file of %" PRId64 " bytes can be made in '%s'%s", nbytes, folder,
        error == EMFILE || error == ENFILE
            ? ""
            : "; set TMPDIR to a folder that has room");
}

// The system would end a process that makes a file longer than its limit, so
// that is asked before.
static cadre_status check_limit(const char *folder, int64_t nbytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY && (uint64_t)nbytes > limit.rlim_cur) {
        return cadre_fail(CADRE_ERR_IO,
            "no file of %" PRId64 " bytes can be made in '%s': that is more "
            "than the limit on the size of files allows; raise it (ulimit -f)",
            nbytes, folder);
    }
    return CADRE_OK;
}

static cadre_status open_unnamed(const char *folder, int64_t nbytes, int *fd)
{
    char *path = cadre_path_join(folder, "cadre-XXXXXX");
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = CADRE_OK;
    *fd = mkostemp(path, O_CLOEXEC); // mode 0600
    if (*fd < 0) {
        status = refuse(errno, folder, nbytes);
    } else {
        (void)unlink(path);
    }
    cadre_free(path);
    return status;
}

cadre_status cadre_unnamed_file_open(int64_t nbytes, int *fd)
{
    const char *folder = find_folder();
    int made;
    CADRE_TRY(check_limit(folder, nbytes));
    CADRE_TRY(open_unnamed(folder, nbytes, &made));
    int error;
    do {
        error = posix_fallocate(made, 0, (off_t)nbytes);
    } while (error == EINTR);
    if (error != 0) {
        close(made);
        return refuse(error, folder, nbytes);
    }
    *fd = made;
    return CADRE_OK;
}
