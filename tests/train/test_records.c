// SPDX-License-Identifier: Apache-2.0
//
// The records of a run whose disk becomes full under the TensorBoard file.

#include "train/records.h"

#include "base/folder.h"
#include "support/check.h"
#include "support/ranks.h"
#include <cadre/log.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/cadre-records-XXXXXX";
static int n_warnings;

static void count_warnings(
    cadre_log_level level, const char *component, const char *line, void *ctx)
{
    (void)component;
    (void)ctx;
    n_warnings += level == CADRE_LOG_WARN &&
                  strstr(line, "TensorBoard") != NULL &&
                  strstr(line, "No space left") != NULL;
}

// Puts a device that is always full in the place of the open file of events.
static bool fill_disk(void)
{
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    DIR *open_files = opendir("/proc/self/fd");
    bool done = false;
    const struct dirent *e;
    while (
        full >= 0 && open_files != NULL && (e = readdir(open_files)) != NULL) {
        char target[256] = "";
        (void)readlinkat(
            dirfd(open_files), e->d_name, target, sizeof(target) - 1);
        if (strstr(target, folder) != NULL &&
            strstr(target, "tfevents") != NULL) {
            done = dup2(full, (int)strtol(e->d_name, NULL, 10)) >= 0;
        }
    }
    if (open_files != NULL) {
        closedir(open_files);
    }
    close(full);
    return done;
}

static int count_lines(void)
{
    char path[sizeof(folder) + 32];
    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
    FILE *stream = fopen(path, "re");
    int n = 0;
    for (int c; stream != NULL && (c = fgetc(stream)) != EOF;) {
        n += c == '\n';
    }
    if (stream != NULL) {
        fclose(stream);
    }
    return n;
}

static void write_steps(cadre_group *group, void *ctx)
{
    (void)ctx;
    cadre_train_config config = {0};
    snprintf(config.out, sizeof(config.out), "%s", folder);
    cadre_records records = {0};
    RANK_OK(cadre_records_open(&records, group, &config, NULL, NULL));
    RANK_CHECK(fill_disk());
    for (int64_t n = 1; n <= 3; n++) {
        const cadre_step_report report = {.step = n, .loss = 1, .weight = 1};
        const cadre_records_step step = {
            .report = &report, .ns = 1000000, .logged = true};
        RANK_OK(cadre_records_take(&records, &step));
        RANK_OK(cadre_records_write(
            &records, &step, &(const cadre_records_extra){0}));
    }
    cadre_records_finish(&records);
    cadre_records_close(&records);
}

static void a_full_disk_ends_tensorboard_and_not_the_run(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    cadre_log_set_sink(CADRE_LOG_WARN, count_warnings, NULL);
    run_as_threads(LINK_INPROC, 1, 10000, write_steps, NULL);
    cadre_log_set_sink(CADRE_LOG_WARN, NULL, NULL);
    assert_int_equal(n_warnings, 1); // and no more
    assert_int_equal(count_lines(), 3);
    CHECK_OK(cadre_folder_remove(folder));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_disk_ends_tensorboard_and_not_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
