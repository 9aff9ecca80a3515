// SPDX-License-Identifier: Apache-2.0

#define _XOPEN_SOURCE 700 // realpath

#include "path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool path_settle(char path[CADRE_PATH_BYTES])
{
    char settled[2 * CADRE_PATH_BYTES];
    char *real = realpath(path, NULL);
    if (real != NULL) {
        snprintf(settled, sizeof(settled), "%s", real);
        free(real);
    } else if (path[0] == '/') {
        return true;
    } else {
        char here[CADRE_PATH_BYTES];
        if (getcwd(here, sizeof(here)) == NULL) {
            return false;
        }
        snprintf(settled, sizeof(settled), "%s/%s", here, path);
    }
    if (strlen(settled) >= CADRE_PATH_BYTES) {
        return false;
    }
    memcpy(path, settled, strlen(settled) + 1);
    return true;
}

FILE *path_open_regular(const char *path, char reason[PATH_REASON_BYTES])
{
    // Opening a pipe would wait for its writer.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat found;
    if (fd < 0 || fstat(fd, &found) != 0) {
        int error = errno;
        (void)strerror_r(error, reason, PATH_REASON_BYTES);
        if (fd >= 0) {
            close(fd);
        }
        errno = error;
        return NULL;
    }
    FILE *stream = S_ISREG(found.st_mode) ? fdopen(fd, "r") : NULL;
    if (stream == NULL) {
        snprintf(reason, PATH_REASON_BYTES, "%s",
            S_ISDIR(found.st_mode)   ? "it is a directory"
            : S_ISREG(found.st_mode) ? "out of memory"
                                     : "it is no regular file");
        close(fd);
        errno = 0;
    }
    return stream;
}
