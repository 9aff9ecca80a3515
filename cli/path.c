// SPDX-License-Identifier: Apache-2.0

#define _XOPEN_SOURCE 700 // realpath

#include "path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
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

bool path_is_utf8(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    while (*at != '\0') {
        int more = *at < 0x80 ? 0 : *at < 0xe0 ? 1 : *at < 0xf0 ? 2 : 3;
        uint32_t lowest = more == 1 ? 0x80 : more == 2 ? 0x800 : 0x10000;
        uint32_t value = more == 0 ? *at : *at & (0x3fU >> more);
        if ((*at >= 0x80 && *at < 0xc0) || *at >= 0xf8) {
            return false;
        }
        at++;
        for (int i = 0; i < more; i++, at++) {
            if ((*at & 0xc0) != 0x80) {
                return false;
            }
            value = value << 6 | (*at & 0x3fU);
        }
        bool is_half = value >= 0xd800 && value < 0xe000;
        if (more > 0 && (value < lowest || value > 0x10ffff || is_half)) {
            return false;
        }
    }
    return true;
}
