// SPDX-License-Identifier: Apache-2.0

#define _GNU_SOURCE // memfd_create

#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

_Noreturn void fuzz_failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}

uint8_t fuzz_byte(fuzz_input *in)
{
    size_t one = 1;
    const uint8_t *byte = fuzz_bytes(in, &one);
    return one == 1 ? *byte : 0;
}

const uint8_t *fuzz_bytes(fuzz_input *in, size_t *nbytes)
{
    const uint8_t *bytes = in->data;
    *nbytes = *nbytes < in->left ? *nbytes : in->left;
    in->data += *nbytes;
    in->left -= *nbytes;
    return bytes;
}

bool fuzz_patch(fuzz_input *in, uint8_t *bytes, size_t nbytes)
{
    enum { MOST = 512 };
    uint8_t before[MOST];
    FUZZ_CHECK(nbytes <= MOST);
    memcpy(before, bytes, nbytes);
    for (int n = fuzz_byte(in) % 8; n > 0; n--) {
        size_t at = fuzz_byte(in) % nbytes;
        bytes[at] ^= fuzz_byte(in);
    }
    return memcmp(before, bytes, nbytes) != 0;
}

const char *fuzz_file(const uint8_t *data, size_t nbytes)
{
    static int fd = -1; // for all inputs of this program
    static char path[32];
    if (fd < 0) {
        fd = memfd_create("input", MFD_CLOEXEC);
        FUZZ_CHECK(fd >= 0);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    FUZZ_CHECK(ftruncate(fd, 0) == 0);
    FUZZ_CHECK(pwrite(fd, data, nbytes, 0) == (ssize_t)nbytes);
    return path;
}

void fuzz_connection(int ends[2])
{
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
}
