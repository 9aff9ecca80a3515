// SPDX-License-Identifier: Apache-2.0

#include "free_memory.h"

#include "number.h"

#include <stdio.h>
#include <string.h>

// The number behind a name in a file of lines; UINT64_MAX if it is not there.
static uint64_t number_in(const char *path, const char *name)
{
    uint64_t number = UINT64_MAX;
    char line[128];
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return number;
    }
    size_t nbytes = strlen(name);
    while (number == UINT64_MAX && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, name, nbytes) == 0) {
            const char *at = line + nbytes + strspn(line + nbytes, " \t");
            (void)count_take(&at, &number); // or it stays as it was
        }
    }
    fclose(file);
    return number;
}

uint64_t free_memory(void)
{
    uint64_t kib = number_in("/proc/meminfo", "MemAvailable:");
    uint64_t host = kib == UINT64_MAX ? UINT64_MAX : kib * 1024;
    uint64_t limit = number_in("/sys/fs/cgroup/memory.max", "");
    uint64_t used = number_in("/sys/fs/cgroup/memory.current", "");
    if (limit == UINT64_MAX || used == UINT64_MAX) {
        return host; // "max", or no control group
    }
    uint64_t group = limit > used ? limit - used : 0;
    return group < host ? group : host;
}
