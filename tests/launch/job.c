// SPDX-License-Identifier: Apache-2.0

#include "job.h"

#include "base/clock.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_MS = 60000 };

static int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    int n = 0;
    while (readdir(folder) != NULL) {
        n++;
    }
    closedir(folder);
    return n;
}

void job_init(job *j, int n_ranks, const char *const *arguments)
{
    memset(j, 0, sizeof(*j));
    snprintf(j->folder, sizeof(j->folder), "/tmp/cadre-job-XXXXXX");
    assert_non_null(mkdtemp(j->folder));
    snprintf(j->pids, sizeof(j->pids), "pids=%s/pid", j->folder);
    int n = 0;
    j->words[n++] = RANK_PROGRAM;
    j->words[n++] = j->pids;
    for (; *arguments != NULL; arguments++) {
        assert_true(n < JOB_MOST_WORDS - 1);
        j->words[n++] = *arguments;
    }
    j->options = (cadre_launch_options){.n_ranks = n_ranks, .argv = j->words};
}

static void redirect(job *j, int stream, const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", j->folder, name);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    j->kept[stream - 1] = fcntl(stream, F_DUPFD_CLOEXEC, 10);
    assert_int_equal(dup2(file, stream), stream);
    close(file);
}

static void restore(const job *j, int stream)
{
    assert_int_equal(dup2(j->kept[stream - 1], stream), stream);
    close(j->kept[stream - 1]);
}

static void run(void *ctx)
{
    job *j = ctx;
    j->status = cadre_launch(&j->options, &j->result);
    j->ended_ns = cadre_now_ns();
    snprintf(j->text, sizeof(j->text), "%s", cadre_error_text());
}

void job_start(job *j)
{
    j->descriptors = count_descriptors();
    fflush(NULL);
    redirect(j, STDOUT_FILENO, "output");
    redirect(j, STDERR_FILENO, "errors");
    CHECK_OK(cadre_thread_start(&j->thread, "launcher", run, j));
}

pid_t job_pid(const job *j, int rank)
{
    char path[160];
    snprintf(path, sizeof(path), "%s.%d", j->pids + strlen("pids="), rank);
    cadre_deadline deadline = cadre_deadline_in_ms(LIMIT_MS);
    while (cadre_now_ns() < deadline) {
        FILE *file = fopen(path, "r");
        char text[32] = "";
        if (file != NULL) {
            bool whole = fgets(text, sizeof(text), file) != NULL &&
                         strchr(text, '\n') != NULL;
            fclose(file);
            if (whole) {
                return (pid_t)strtol(text, NULL, 10);
            }
        }
        cadre_sleep_ns(1000000);
    }
    fail_msg("rank %d does not get under way", rank);
    return 0;
}

static void read_file(const job *j, const char *name, char *text, size_t nbytes)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", j->folder, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, nbytes - 1, file)] = '\0';
    fclose(file);
}

static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        char name[512];
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.') {
            struct stat found;
            assert_int_equal(lstat(name, &found), 0);
            if (S_ISDIR(found.st_mode)) {
                remove_folder(name);
            } else {
                unlink(name);
            }
        }
    }
    closedir(folder);
    rmdir(path);
}

void job_wait(job *j)
{
    cadre_thread_join(&j->thread);
    restore(j, STDOUT_FILENO);
    restore(j, STDERR_FILENO);
    read_file(j, "output", j->output, sizeof(j->output));
    read_file(j, "errors", j->errors, sizeof(j->errors));

    // No descriptor is left, and no process.
    assert_int_equal(count_descriptors(), j->descriptors);
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    remove_folder(j->folder);
}

void job_run(job *j)
{
    job_start(j);
    job_wait(j);
}

int count_lines(const char *text, const char *words)
{
    int n = 0;
    while (*text != '\0') {
        char line[2048];
        int nbytes = (int)strcspn(text, "\n");
        snprintf(line, sizeof(line), "%.*s", nbytes, text);
        n += strstr(line, words) != NULL;
        text += nbytes + (text[nbytes] == '\n' ? 1 : 0);
    }
    return n;
}
