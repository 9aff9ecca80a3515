// SPDX-License-Identifier: Apache-2.0
//
// Checks of this host: cores, memory, limits.  Linux says most of it in files.

#define _GNU_SOURCE
#include "doctor.h"

#include "launched.h"
#include "number.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    MIB = 1 << 20,
    FEW_DESCRIPTORS = 1024, // a rank of 500 on one host needs that many
    FEW_PROCESSES = 512,
};

// Copies the first line of a small file.  False if there is none.
static bool read_line(const char *path, char *line, size_t nbytes)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    bool read = fgets(line, (int)nbytes, file) != NULL;
    fclose(file);
    if (read) {
        line[strcspn(line, "\n")] = '\0';
    }
    return read;
}

// The text after "NAME<blanks>: " in a file of such lines.
static bool read_field(
    const char *path, const char *name, char *value, size_t nbytes)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    char line[DOCTOR_TEXT_BYTES];
    bool found = false;
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        const char *colon = strchr(line, ':');
        size_t length = strlen(name);
        found = colon != NULL && strncmp(line, name, length) == 0 &&
                strspn(line + length, " \t") == (size_t)(colon - line) - length;
        if (found) {
            const char *text = colon + 1 + strspn(colon + 1, " \t");
            snprintf(value, nbytes, "%.*s", (int)strcspn(text, "\n"), text);
        }
    }
    fclose(file);
    return found;
}

static uint64_t field_kib(const char *name)
{
    char text[64];
    const char *at = text;
    uint64_t kib = 0;
    if (!read_field("/proc/meminfo", name, text, sizeof(text)) ||
        !count_take(&at, &kib)) {
        return 0;
    }
    return kib;
}

// Cores' worth of time that the control group grants; 0: no limit.
static double quota_cores(void)
{
    char line[64];
    const char *at = line;
    uint64_t quota;
    uint64_t period;
    if (!read_line("/sys/fs/cgroup/cpu.max", line, sizeof(line)) ||
        !count_take(&at, &quota) || !count_take(&at, &period) || period == 0) {
        return 0;
    }
    return (double)quota / (double)period;
}

void doctor_cores(doctor_finding *f)
{
    char model[128] = "processor of unknown model";
    (void)read_field("/proc/cpuinfo", "model name", model, sizeof(model));
    int usable = core_count();
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    double quota = quota_cores();
    snprintf(f->found, sizeof(f->found), "%s, %d of %ld cores usable", model,
        usable, online);
    if (quota > 0 && quota < usable) {
        f->state = DOCTOR_WARN;
        snprintf(f->fix, sizeof(f->fix),
            "the control group grants %.1f cores' time: start no more than "
            "%.0f ranks x threads, or raise its cpu.max",
            quota, quota < 1 ? 1 : quota);
    } else if (usable < online) {
        f->state = DOCTOR_WARN;
        snprintf(f->fix, sizeof(f->fix),
            "this process is bound to some cores (taskset, mpirun --bind-to or "
            "a cpuset): start it without, or with `mpirun --bind-to none`");
    }
}

void doctor_instructions(doctor_finding *f)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") != 0;
    bool avx512 = __builtin_cpu_supports("avx512f") != 0;
    bool bf16 = __builtin_cpu_supports("avx512bf16") != 0;
    snprintf(f->found, sizeof(f->found),
        "AVX2 %s, AVX-512 %s, bf16 products %s", avx2 ? "yes" : "no",
        avx512 ? "yes" : "no", bf16 ? "yes" : "no");
    if (!avx2) {
        f->state = DOCTOR_WARN;
        snprintf(f->fix, sizeof(f->fix),
            "sums and updates run in plain code, several times slower; on a "
            "virtual machine ask for a newer processor model");
    }
#else
    f->state = DOCTOR_SKIP;
    snprintf(f->found, sizeof(f->found),
        "not an x86-64: kernels are what the compiler makes of plain code");
#endif
}

void doctor_memory(doctor_finding *f)
{
    uint64_t total = field_kib("MemTotal") / 1024;
    uint64_t available = field_kib("MemAvailable") / 1024;
    char limit[64] = "max";
    const char *at = limit;
    (void)read_line("/sys/fs/cgroup/memory.max", limit, sizeof(limit));
    uint64_t limit_bytes = 0;
    bool limited = count_take(&at, &limit_bytes) && limit_bytes / MIB < total;
    snprintf(f->found, sizeof(f->found),
        "%" PRIu64 " MiB, %" PRIu64 " available%s", total, available,
        limited ? "; the control group grants less" : "");
    if (limited) {
        f->state = DOCTOR_WARN;
        snprintf(f->fix, sizeof(f->fix),
            "the control group's memory.max is %" PRIu64
            " MiB: ranks above it are killed; raise it (docker: --memory)",
            limit_bytes / MIB);
    } else if (available < 512) {
        f->state = DOCTOR_WARN;
        snprintf(f->fix, sizeof(f->fix), "end other programs, or add memory");
    }
}

// What transport shm is made of.
void doctor_shared_memory(doctor_finding *f)
{
    int fd = memfd_create("cadre-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int error = fd < 0 ? errno : posix_fallocate(fd, 0, MIB);
    if (error == 0 && fcntl(fd, F_ADD_SEALS,
                          F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        error = errno;
    }
    if (fd >= 0) {
        close(fd);
    }
    if (error == 0) {
        snprintf(f->found, sizeof(f->found),
            "sealed anonymous files work (transport shm)");
        return;
    }
    char reason[128];
    f->state = DOCTOR_WARN;
    snprintf(f->found, sizeof(f->found), "sealed anonymous files: %s",
        strerror_r(error, reason, sizeof(reason)));
    snprintf(f->fix, sizeof(f->fix),
        "ranks of this host will use tcp; a container's seccomp profile may "
        "forbid it, or the kernel is older than 3.17");
}

void doctor_dev_shm(doctor_finding *f)
{
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs) != 0) {
        f->state = DOCTOR_SKIP;
        snprintf(f->found, sizeof(f->found), "none; Cadre does not need it");
        return;
    }
    snprintf(f->found, sizeof(f->found),
        "%" PRIu64 " MiB; Cadre does not use it, MPI and PyTorch do",
        (uint64_t)fs.f_blocks * fs.f_frsize / MIB);
}

void doctor_descriptors(doctor_finding *f)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        f->state = DOCTOR_SKIP;
        snprintf(f->found, sizeof(f->found), "unknown");
        return;
    }
    snprintf(f->found, sizeof(f->found),
        "%" PRIu64 " open files per process, up to %" PRIu64,
        (uint64_t)limit.rlim_cur, (uint64_t)limit.rlim_max);
    if (limit.rlim_cur < FEW_DESCRIPTORS) {
        f->state = DOCTOR_WARN;
        snprintf(f->fix, sizeof(f->fix),
            "a rank holds a connection to every other: `ulimit -n %d` before "
            "large runs",
            FEW_DESCRIPTORS);
    }
}

void doctor_processes(doctor_finding *f)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NPROC, &limit) != 0 ||
        limit.rlim_cur == RLIM_INFINITY) {
        snprintf(f->found, sizeof(f->found), "no limit");
        return;
    }
    snprintf(f->found, sizeof(f->found), "%" PRIu64 " for this user",
        (uint64_t)limit.rlim_cur);
    if (limit.rlim_cur < FEW_PROCESSES) {
        f->state = DOCTOR_WARN;
        snprintf(f->fix, sizeof(f->fix),
            "ranks and their threads count: `ulimit -u %d`", FEW_PROCESSES);
    }
}

void doctor_clock(doctor_finding *f)
{
    char source[64];
    if (!read_line("/sys/devices/system/clocksource/clocksource0/"
                   "current_clocksource",
            source, sizeof(source))) {
        f->state = DOCTOR_SKIP;
        snprintf(f->found, sizeof(f->found), "unknown");
        return;
    }
    snprintf(f->found, sizeof(f->found), "%s", source);
    bool slow = strcmp(source, "hpet") == 0 || strcmp(source, "acpi_pm") == 0;
    if (slow) {
        f->state = DOCTOR_WARN;
        snprintf(f->fix, sizeof(f->fix),
            "reading it takes microseconds, which small collectives notice: "
            "boot with clocksource=tsc if the processor's is stable");
    }
}
