// SPDX-License-Identifier: Apache-2.0

#include "train/metrics.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "train/values.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct cadre_metrics {
    FILE *stream;
    char *path;
};

static cadre_status open_as(
    const char *folder, const char *how, cadre_metrics **out)
{
    CADRE_TRY(cadre_make_folders(folder));
    cadre_metrics *m = cadre_alloc(sizeof(*m));
    if (m == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = CADRE_ERR_NO_MEMORY;
    m->path = cadre_path_join(folder, "metrics.jsonl");
    if (m->path != NULL) {
        m->stream = fopen(m->path, how);
        status = m->stream != NULL ? CADRE_OK
                                   : cadre_fail_errno(CADRE_ERR_IO, errno,
                                         "cannot write '%s'", m->path);
    }
    if (status != CADRE_OK) {
        cadre_metrics_close(m);
        return status;
    }
    *out = m;
    return CADRE_OK;
}

// A new file, and not what lies there: that may be a pipe which nobody reads.
cadre_status cadre_metrics_open(const char *folder, cadre_metrics **out)
{
    char *path = cadre_path_join(folder, "metrics.jsonl");
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    (void)unlink(path);
    cadre_free(path);
    return open_as(folder, "we", out);
}

// The step of a line, or -1 if it is none.
static int64_t step_of(const char *line, size_t nbytes)
{
    json_t *object = json_loadb(line, nbytes, 0, NULL);
    const json_t *step = json_object_get(object, "step");
    int64_t number = json_is_integer(step) ? json_integer_value(step) : -1;
    json_decref(object);
    return number;
}

// Copies the whole lines of steps up to n_steps, in their order.
static void copy_lines(
    const char *text, size_t nbytes, int64_t n_steps, FILE *to)
{
    int64_t before = 0;
    const char *end;
    while (nbytes > 0 && (end = memchr(text, '\n', nbytes)) != NULL) {
        size_t line_bytes = (size_t)(end - text) + 1;
        int64_t step = step_of(text, line_bytes);
        if (step > before && step <= n_steps) {
            // What fails here is seen again, and reported, by commit.
            (void)fwrite(text, 1, line_bytes, to);
            before = step;
        }
        text += line_bytes;
        nbytes -= line_bytes;
    }
}

static cadre_status read_from(
    int fd, const char *path, char **text, size_t *nbytes)
{
    struct stat about;
    if (fstat(fd, &about) != 0) {
        return cadre_fail_errno(CADRE_ERR_IO, errno, "cannot read '%s'", path);
    }
    *nbytes = (size_t)about.st_size;
    *text = cadre_alloc(*nbytes);
    if (*text == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    for (size_t used = 0; used < *nbytes;) {
        ssize_t n = read(fd, *text + used, *nbytes - used);
        if (n <= 0) {
            int error = n == 0 ? EIO : errno;
            cadre_free(*text);
            *text = NULL;
            return cadre_fail_errno(
                CADRE_ERR_IO, error, "cannot read '%s'", path);
        }
        used += (size_t)n;
    }
    return CADRE_OK;
}

// The file's bytes, for cadre_free(); a file that is not there has none.
static cadre_status read_all(const char *path, char **text, size_t *nbytes)
{
    *text = NULL;
    *nbytes = 0;
    int fd;
    cadre_status status = cadre_regular_file_open(path, &fd);
    if (status != CADRE_OK) {
        return status == CADRE_ERR_NOT_FOUND ? CADRE_OK : status;
    }
    status = read_from(fd, path, text, nbytes);
    close(fd);
    return status;
}

static cadre_status cut(const char *path, int64_t n_steps)
{
    char *text;
    size_t nbytes;
    CADRE_TRY(read_all(path, &text, &nbytes));
    cadre_new_file file;
    cadre_status status = cadre_new_file_open(path, &file);
    if (status == CADRE_OK) {
        copy_lines(text, nbytes, n_steps, file.stream);
        status = cadre_new_file_commit(&file);
    }
    cadre_free(text);
    return status;
}

cadre_status cadre_metrics_resume(
    const char *folder, int64_t n_steps, cadre_metrics **out)
{
    char *path = cadre_path_join(folder, "metrics.jsonl");
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = cut(path, n_steps);
    cadre_free(path);
    return status != CADRE_OK ? status : open_as(folder, "ae", out);
}

void cadre_metrics_close(cadre_metrics *metrics)
{
    if (metrics == NULL) {
        return;
    }
    if (metrics->stream != NULL) {
        fclose(metrics->stream);
    }
    cadre_free(metrics->path);
    cadre_free(metrics);
}

// To a microsecond, which is finer than these times are alike.
static json_t *make_ms(double ms)
{
    return cadre_json_real(round(ms * 1000) / 1000);
}

static json_t *make_ms_list(const double *ms, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        if (json_array_append_new(list, make_ms(ms[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *make_ranks(const cadre_watch_facts *f)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:i, s:I, s:i}", "step_ms_min",
        make_ms(f->fastest_ms), "step_ms_max", make_ms(f->slowest_ms),
        "rank_step_ms", make_ms_list(f->step_ms, f->n_ranks), "rank_busy_ms",
        make_ms_list(f->busy_ms, f->n_ranks), "slowest_rank", f->slowest_rank,
        "peak_rss_bytes", (json_int_t)f->rss_bytes, "peak_rss_rank",
        f->rss_rank);
}

static json_t *make_line(const cadre_metrics_line *line)
{
    const cadre_step_report *r = line->report;
    json_t *o = json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I}",
        "step", (json_int_t)r->step, "loss", cadre_json_real(r->loss), "lr",
        cadre_json_real(r->lr), "grad_norm", cadre_json_real(r->grad_norm),
        "samples_per_second", cadre_json_real(line->samples_per_second),
        "tokens_per_second", cadre_json_real(line->tokens_per_second),
        "step_ms", cadre_json_real(line->step_ms), "exposed_ms",
        cadre_json_real(r->exposed_ms), "hidden_ms",
        cadre_json_real(r->hidden_ms), "bytes_sent", (json_int_t)r->bytes_sent);
    json_t *ranks = make_ranks(line->ranks);
    int failed = json_object_update(o, ranks);
    json_decref(ranks);
    if (line->eval != NULL) {
        failed |= json_object_set_new(
            o, "eval_loss", cadre_json_real(line->eval->loss));
        bool is_text = !isnan(line->tokens_per_second);
        failed |= json_object_set_new(o,
            is_text ? "eval_bits_per_byte" : "eval_accuracy",
            cadre_json_real(
                is_text ? line->eval->bits_per_byte : line->eval->accuracy));
    }
    if (line->params_hash != NULL) {
        failed |= json_object_set_new(
            o, "params_hash", cadre_json_hash(*line->params_hash));
    }
    if (line->new_identity != NULL) {
        failed |= json_object_set_new(
            o, "identity", cadre_json_hash(line->new_identity->hash));
        failed |= json_object_set_new(
            o, "leaves", json_integer(line->new_identity->leaves));
    }
    if (failed != 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}

cadre_status cadre_metrics_write(
    cadre_metrics *metrics, const cadre_metrics_line *line)
{
    json_t *object = make_line(line);
    if (object == NULL) {
        return cadre_fail(CADRE_ERR_NO_MEMORY, "out of memory for a line of %s",
            metrics->path);
    }
    bool written = json_dumpf(object, metrics->stream, JSON_COMPACT) == 0 &&
                   fputc('\n', metrics->stream) != EOF &&
                   fflush(metrics->stream) == 0;
    int error = errno;
    json_decref(object);
    return written ? CADRE_OK
                   : cadre_fail_errno(CADRE_ERR_IO, error, "cannot write '%s'",
                         metrics->path);
}
