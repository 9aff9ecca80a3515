// SPDX-License-Identifier: Apache-2.0

#include "run_folder.h"

#include "yaml.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static bool exists(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0;
}

void run_folder_default(const char *recipe, char folder[CADRE_PATH_BYTES])
{
    time_t now = time(NULL);
    struct tm local;
    char stamp[32] = "";
    if (localtime_r(&now, &local) != NULL) {
        strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &local);
    }
    snprintf(folder, CADRE_PATH_BYTES, "runs/%s-%s", recipe, stamp);
    // More than one run may begin within a second.
    for (int i = 2; exists(folder) && i < 1000; i++) {
        snprintf(folder, CADRE_PATH_BYTES, "runs/%s-%s-%d", recipe, stamp, i);
    }
}

bool run_folder_path(
    const char *folder, const char *name, char path[CADRE_PATH_BYTES])
{
    int n = snprintf(path, CADRE_PATH_BYTES, "%s/%s", folder, name);
    return folder[0] != '\0' && n < CADRE_PATH_BYTES;
}

bool run_folder_is_finished(const char *folder)
{
    char path[CADRE_PATH_BYTES];
    return run_folder_path(folder, "summary.json", path) && exists(path);
}

// The folder and those above it.
static bool make_folders(const char *folder)
{
    char path[CADRE_PATH_BYTES];
    snprintf(path, sizeof(path), "%s", folder);
    for (char *at = path; *at != '\0'; at++) {
        if (*at != '/' || at == path) {
            continue;
        }
        *at = '\0';
        (void)mkdir(path, 0777); // the last one below says what is wrong
        *at = '/';
    }
    if (mkdir(path, 0777) == 0) {
        return true;
    }
    struct stat found;
    int error = errno;
    bool there = stat(path, &found) == 0 && S_ISDIR(found.st_mode);
    errno = error;
    return there;
}

// Aside and renamed, so that nobody reads half a configuration.
static bool write_config(const cadre_train_config *config, const char *path)
{
    char aside[CADRE_PATH_BYTES + 8];
    snprintf(aside, sizeof(aside), "%s.part", path);
    // What a process that died has left, or a link that leads elsewhere.
    (void)unlink(aside);
    FILE *stream = fopen(aside, "wxe");
    if (stream == NULL) {
        return false;
    }
    errno = EINVAL; // what remains if a text is no UTF-8
    bool written = yaml_write(config, stream);
    written = fclose(stream) == 0 && written;
    if (written && rename(aside, path) == 0) {
        return true;
    }
    int error = errno;
    unlink(aside);
    errno = error;
    return false;
}

// What could not be done, and the reason in errno.
static bool explain(
    const char *what, const char *path, char problem[RUN_FOLDER_PROBLEM_BYTES])
{
    char reason[128] = "";
    (void)strerror_r(errno, reason, sizeof(reason));
    snprintf(problem, RUN_FOLDER_PROBLEM_BYTES, "cannot %s '%s': %s", what,
        path, reason);
    return false;
}

// The lock is on the folder itself, so no file of it can be left over, and the
// descriptor stays open: with the process it is gone, however that ends.  A
// file system without locks keeps nobody out.
static bool lock(const char *folder, char problem[RUN_FOLDER_PROBLEM_BYTES])
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return explain("open the folder", folder, problem);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(fd);
        snprintf(problem, RUN_FOLDER_PROBLEM_BYTES,
            "another run is writing into '%s': choose another --out", folder);
        return false;
    }
    return true;
}

// Whether a run that has not ended has left something to go on from.
static bool has_checkpoints(const char *folder)
{
    char path[CADRE_PATH_BYTES];
    DIR *checkpoints =
        run_folder_path(folder, "checkpoints", path) ? opendir(path) : NULL;
    if (checkpoints == NULL) {
        return false;
    }
    bool found = false;
    const struct dirent *entry;
    while (!found && (entry = readdir(checkpoints)) != NULL) {
        found = strncmp(entry->d_name, "step-", 5) == 0 &&
                strchr(entry->d_name, '.') == NULL;
    }
    closedir(checkpoints);
    return found;
}

bool run_folder_take(
    const char *folder, bool resume, char problem[RUN_FOLDER_PROBLEM_BYTES])
{
    if (!make_folders(folder)) {
        return explain("make the folder", folder, problem);
    }
    if (!lock(folder, problem)) {
        return false;
    }
    // Asked under the lock: a run that held it may have ended just now.
    if (!resume && run_folder_is_finished(folder)) {
        snprintf(problem, RUN_FOLDER_PROBLEM_BYTES,
            "'%s' holds a finished run: choose another --out or remove it",
            folder);
        return false;
    }
    if (!resume && has_checkpoints(folder)) {
        snprintf(problem, RUN_FOLDER_PROBLEM_BYTES,
            "'%s' holds checkpoints of a run that has not ended: go on with "
            "--resume, choose another --out, or remove it",
            folder);
        return false;
    }
    return true;
}

bool run_folder_write_config(
    const cadre_train_config *config, char problem[RUN_FOLDER_PROBLEM_BYTES])
{
    char path[CADRE_PATH_BYTES];
    if (!run_folder_path(config->out, "config.yaml", path)) {
        snprintf(problem, RUN_FOLDER_PROBLEM_BYTES, "--out is too long");
        return false;
    }
    return write_config(config, path) || explain("write", path, problem);
}

// Whether config.yaml is all that is in the folder.
static bool has_config_alone(const char *folder)
{
    DIR *entries = opendir(folder);
    if (entries == NULL) {
        return false;
    }
    bool config = false;
    bool more = false;
    const struct dirent *entry;
    while ((entry = readdir(entries)) != NULL) {
        if (strcmp(entry->d_name, "config.yaml") == 0) {
            config = true;
        } else if (strcmp(entry->d_name, ".") != 0 &&
                   strcmp(entry->d_name, "..") != 0) {
            more = true;
        }
    }
    closedir(entries);
    return config && !more;
}

void run_folder_give_back(const char *folder)
{
    char path[CADRE_PATH_BYTES];
    if (has_config_alone(folder) &&
        run_folder_path(folder, "config.yaml", path) && unlink(path) == 0) {
        (void)rmdir(folder);
    }
}
