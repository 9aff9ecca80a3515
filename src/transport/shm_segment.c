// SPDX-License-Identifier: Apache-2.0
//
// Linux: memfd_create, seals, fallocate.

#define _GNU_SOURCE // memfd_create, F_ADD_SEALS

#include "transport/shm_segment.h"

#include "base/check.h"
#include "base/fail.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
    BYTES_PER_BLOCK = 512, // of st_blocks
};

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

size_t cadre_segment_bytes(size_t nbytes)
{
    size_t page = page_bytes();
    if (nbytes == 0) {
        return page;
    }
    return nbytes > SIZE_MAX / 2 ? 0 : (nbytes + page - 1) / page * page;
}

// The number behind a name at the beginning of a line, or 0.
static uint64_t number_of(const char *line, const char *name)
{
    size_t n = strlen(name);
    return strncmp(line, name, n) == 0 ? strtoull(line + n, NULL, 10) : 0;
}

// What the system could still give; no limit if it does not say.
static uint64_t available_bytes(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    if (file == NULL) {
        return UINT64_MAX;
    }
    uint64_t kib = 0;
    char line[128];
    while (fgets(line, sizeof(line), file) != NULL) {
        kib += number_of(line, "MemAvailable:") + number_of(line, "SwapFree:");
    }
    (void)fclose(file);
    return kib == 0 ? UINT64_MAX : kib * 1024;
}

// The system would give pages until it has none for anybody, and end a process
// that makes a file longer than its limit; so both are asked before.
static cadre_status check_room(size_t nbytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY && nbytes > limit.rlim_cur) {
        return cadre_fail(CADRE_ERR_NO_MEMORY,
            "%zu bytes of shared memory are more than the limit on the size "
            "of files allows: raise it (ulimit -f)",
            nbytes);
    }
    uint64_t available = available_bytes();
    if (nbytes > available) {
        return cadre_fail(CADRE_ERR_NO_MEMORY,
            "%zu bytes of shared memory are wanted, but the system has "
            "%" PRIu64 " left",
            nbytes, available);
    }
    return CADRE_OK;
}

static int allocate_pages(int fd, size_t nbytes)
{
    int result;
    do {
        result = fallocate(fd, 0, 0, (off_t)nbytes);
    } while (result != 0 && errno == EINTR);
    return result;
}

static void *map(int fd, size_t nbytes, void *at, int more_flags)
{
    int flags = MAP_SHARED | (at == NULL ? 0 : MAP_FIXED) | more_flags;
    return mmap(at, nbytes, PROT_READ | PROT_WRITE, flags, fd, 0);
}

static cadre_status fill_segment(int fd, size_t nbytes, void **memory)
{
    if (allocate_pages(fd, nbytes) != 0) {
        return cadre_fail_errno(CADRE_ERR_NO_MEMORY, errno,
            "%zu bytes of shared memory are not to be had", nbytes);
    }
    if (fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        return cadre_fail_errno(
            CADRE_ERR_IO, errno, "shared memory cannot be sealed");
    }
    // Who makes it will use all of it, whoever maps it a part.
    void *mapped = map(fd, nbytes, NULL, MAP_POPULATE);
    if (mapped == MAP_FAILED) {
        return cadre_fail_errno(CADRE_ERR_NO_MEMORY, errno,
            "%zu bytes of shared memory cannot be mapped", nbytes);
    }
    *memory = mapped;
    return CADRE_OK;
}

cadre_status cadre_segment_create(size_t nbytes, int *fd, void **memory)
{
    CADRE_ASSERT(nbytes > 0 && nbytes % page_bytes() == 0);
    CADRE_TRY(check_room(nbytes));
    int made = memfd_create("cadre", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0) {
        return cadre_fail_errno(
            CADRE_ERR_IO, errno, "no shared memory can be made");
    }
    cadre_status status = fill_segment(made, nbytes, memory);
    if (status != CADRE_OK) {
        close(made);
        return status;
    }
    *fd = made;
    return CADRE_OK;
}

static cadre_status check_segment(int fd, size_t nbytes)
{
    int seals = fcntl(fd, F_GET_SEALS); // fails for other kinds of files
    struct stat about;
    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &about) != 0) {
        return cadre_fail(
            CADRE_ERR_CORRUPT, "a descriptor is of no sealed shared memory");
    }
    if (nbytes == 0 || nbytes % page_bytes() != 0 || about.st_size < 0 ||
        (uint64_t)about.st_size != nbytes) {
        return cadre_fail(CADRE_ERR_CORRUPT,
            "shared memory has %jd bytes where %zu were announced",
            (intmax_t)about.st_size, nbytes);
    }
    if ((uint64_t)about.st_blocks < nbytes / BYTES_PER_BLOCK) {
        return cadre_fail(CADRE_ERR_CORRUPT, "shared memory has pages missing");
    }
    return CADRE_OK;
}

cadre_status cadre_segment_map(int fd, size_t nbytes, void **memory)
{
    cadre_status status = check_segment(fd, nbytes);
    if (status == CADRE_OK) {
        void *mapped = map(fd, nbytes, *memory, 0);
        if (mapped == MAP_FAILED) {
            status = cadre_fail_errno(CADRE_ERR_NO_MEMORY, errno,
                "%zu bytes of a peer's shared memory cannot be mapped", nbytes);
        } else {
            *memory = mapped;
        }
    }
    close(fd);
    return status;
}

cadre_status cadre_segment_reserve(size_t nbytes, void **memory)
{
    void *place = mmap(NULL, nbytes, PROT_READ,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) {
        return cadre_fail_errno(CADRE_ERR_NO_MEMORY, errno,
            "no place for %zu bytes of shared memory", nbytes);
    }
    *memory = place;
    return CADRE_OK;
}

void cadre_segment_unmap(void *memory, size_t nbytes)
{
    if (memory != NULL) {
        (void)munmap(memory, nbytes);
    }
}
