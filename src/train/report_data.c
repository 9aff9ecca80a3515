// SPDX-License-Identifier: Apache-2.0

#include "train/report_data.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 4096 };

static const char *const column_names[CADRE_N_COLUMNS] = {
    [CADRE_COLUMN_STEP] = "step",
    [CADRE_COLUMN_LOSS] = "loss",
    [CADRE_COLUMN_RATE] = "samples_per_second",
    [CADRE_COLUMN_STEP_MS] = "step_ms",
    [CADRE_COLUMN_FASTEST_MS] = "step_ms_min",
    [CADRE_COLUMN_SLOWEST_MS] = "step_ms_max",
    [CADRE_COLUMN_EVAL_LOSS] = "eval_loss",
    [CADRE_COLUMN_EVAL_ACCURACY] = "eval_accuracy",
    [CADRE_COLUMN_EVAL_BITS] = "eval_bits_per_byte",
};

// --- whole files

// A file's content, with a NUL behind it; NULL in *text if it is not there.
static cadre_status read_file(
    const char *folder, const char *name, char **text, size_t *nbytes)
{
    *text = NULL;
    char *path = cadre_path_join(folder, name);
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    int fd;
    cadre_status status = cadre_regular_file_open(path, &fd);
    off_t size = status == CADRE_OK ? lseek(fd, 0, SEEK_END) : 0;
    if (status == CADRE_OK) {
        status = CADRE_ERR_NO_MEMORY;
        *text = cadre_alloc((size_t)(size > 0 ? size : 0) + 1);
    }
    if (*text != NULL) {
        // A file that grows meanwhile is read as far as it was there.
        ssize_t n = pread(fd, *text, (size_t)(size > 0 ? size : 0), 0);
        status = n >= 0 ? CADRE_OK
                        : cadre_fail_errno(
                              CADRE_ERR_IO, errno, "cannot read '%s'", path);
        *nbytes = n >= 0 ? (size_t)n : 0;
        (*text)[*nbytes] = '\0';
        close(fd);
    } else if (status == CADRE_ERR_NO_MEMORY) {
        close(fd);
    }
    cadre_free(path);
    if (status != CADRE_OK) {
        cadre_free(*text);
        *text = NULL;
    }
    return status;
}

static cadre_status damaged(
    const char *folder, const char *name, int line, const char *why)
{
    return cadre_fail(CADRE_ERR_CORRUPT, "'%s/%s' is damaged in line %d: %s",
        folder, name, line, why);
}

cadre_status cadre_report_json(
    const char *folder, const char *name, json_t **out)
{
    *out = NULL;
    char *text;
    size_t nbytes;
    cadre_status status = read_file(folder, name, &text, &nbytes);
    if (status != CADRE_OK) {
        return status == CADRE_ERR_NOT_FOUND ? CADRE_OK : status;
    }
    json_error_t error;
    json_t *json = json_loadb(text, nbytes, 0, &error);
    cadre_free(text);
    if (json == NULL) {
        return damaged(
            folder, name, error.line > 0 ? error.line : 1, error.text);
    }
    if (!json_is_object(json)) {
        json_decref(json);
        return damaged(folder, name, 1, "an object is wanted");
    }
    *out = json;
    return CADRE_OK;
}

// --- metrics.jsonl

static double number(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static size_t count_lines(const char *text, size_t nbytes)
{
    size_t n = 0;
    for (size_t i = 0; i < nbytes; i++) {
        n += text[i] == '\n';
    }
    return n;
}

static cadre_status make_columns(cadre_report_data *d, size_t n_lines)
{
    d->capacity = n_lines;
    for (int c = 0; c < CADRE_N_COLUMNS; c++) {
        d->columns[c] = cadre_alloc_array(n_lines, sizeof(double));
        if (d->columns[c] == NULL) {
            return CADRE_ERR_NO_MEMORY;
        }
    }
    return CADRE_OK;
}

// The first line that tells of ranks says how many there are.
static cadre_status make_ranks(cadre_report_data *d, size_t n_ranks)
{
    size_t n = n_ranks * d->capacity;
    d->rank_step_ms = cadre_alloc_array(n, sizeof(double));
    d->rank_busy_ms = cadre_alloc_array(n, sizeof(double));
    if (d->rank_step_ms == NULL || d->rank_busy_ms == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        d->rank_step_ms[i] = (double)NAN;
        d->rank_busy_ms[i] = (double)NAN;
    }
    d->n_ranks = (int)n_ranks;
    return CADRE_OK;
}

static cadre_status take_ranks(
    cadre_report_data *d, const json_t *line, size_t at)
{
    const json_t *step_ms = json_object_get(line, "rank_step_ms");
    const json_t *busy_ms = json_object_get(line, "rank_busy_ms");
    size_t n = json_array_size(busy_ms);
    if (d->n_ranks == 0 && n > 0 && n <= MOST_RANKS) {
        CADRE_TRY(make_ranks(d, n));
    }
    for (size_t r = 0; r < n && r < (size_t)d->n_ranks; r++) {
        size_t i = r * d->capacity + at;
        d->rank_step_ms[i] = number(json_array_get(step_ms, r));
        d->rank_busy_ms[i] = number(json_array_get(busy_ms, r));
    }
    return CADRE_OK;
}

static cadre_status take_line(cadre_report_data *d, const json_t *line)
{
    // Lines without a loss tell of something else.
    if (json_object_get(line, "loss") == NULL) {
        return CADRE_OK;
    }
    // A run that went on from a checkpoint has made some steps twice.
    double step = number(json_object_get(line, "step"));
    while (d->n_lines > 0 &&
           d->columns[CADRE_COLUMN_STEP][d->n_lines - 1] >= step) {
        d->n_lines--;
    }
    size_t at = d->n_lines++;
    for (int c = 0; c < CADRE_N_COLUMNS; c++) {
        d->columns[c][at] = number(json_object_get(line, column_names[c]));
    }
    return take_ranks(d, line, at);
}

// Why a line is not one of ours, or NULL.
static const char *find_fault(const json_t *line, const json_error_t *error)
{
    if (line == NULL) {
        return error->text;
    }
    if (!json_is_object(line)) {
        return "an object is wanted";
    }
    if (json_object_get(line, "loss") == NULL) {
        return NULL;
    }
    const json_t *step = json_object_get(line, "step");
    bool sound = json_is_integer(step) && json_integer_value(step) >= 1;
    return sound ? NULL : "its step is no number of a step";
}

static cadre_status take_lines(
    cadre_report_data *d, const char *folder, const char *text, size_t nbytes)
{
    const char *at = text;
    for (int number_of_line = 1;; number_of_line++) {
        const char *end = memchr(at, '\n', nbytes - (size_t)(at - text));
        if (end == NULL) {
            return CADRE_OK;
        }
        json_error_t error;
        json_t *line = json_loadb(at, (size_t)(end - at), 0, &error);
        const char *fault = find_fault(line, &error);
        cadre_status status = fault == NULL ? take_line(d, line)
                                            : damaged(folder, "metrics.jsonl",
                                                  number_of_line, fault);
        json_decref(line);
        CADRE_TRY(status);
        at = end + 1;
    }
}

static cadre_status read_metrics(const char *folder, cadre_report_data *d)
{
    char *text;
    size_t nbytes;
    cadre_status status = read_file(folder, "metrics.jsonl", &text, &nbytes);
    if (status == CADRE_ERR_NOT_FOUND) {
        return cadre_fail(CADRE_ERR_NOT_FOUND,
            "'%s' is no run: there is no metrics.jsonl in it", folder);
    }
    CADRE_TRY(status);
    status = make_columns(d, count_lines(text, nbytes));
    if (status == CADRE_OK) {
        status = take_lines(d, folder, text, nbytes);
    }
    cadre_free(text);
    return status;
}

cadre_status cadre_report_data_read(const char *folder, cadre_report_data *out)
{
    cadre_report_data d = {0};
    cadre_status status = read_metrics(folder, &d);
    if (status == CADRE_OK) {
        status = cadre_report_json(folder, "summary.json", &d.summary);
    }
    if (status != CADRE_OK) {
        cadre_report_data_fini(&d);
        return status;
    }
    *out = d;
    return CADRE_OK;
}

void cadre_report_data_fini(cadre_report_data *data)
{
    for (int c = 0; c < CADRE_N_COLUMNS; c++) {
        cadre_free(data->columns[c]);
    }
    cadre_free(data->rank_step_ms);
    cadre_free(data->rank_busy_ms);
    json_decref(data->summary);
    *data = (cadre_report_data){0};
}
