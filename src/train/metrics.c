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

static cadre_status open_stream(cadre_metrics *m, const char *how)
{
    m->stream = fopen(m->path, how);
    return m->stream != NULL ? CADRE_OK
                             : cadre_fail_errno(CADRE_ERR_IO, errno,
                                   "cannot write '%s'", m->path);
}

static cadre_status open_as(
    const char *folder, const char *how, cadre_metrics **out)
{
    CADRE_TRY(cadre_make_folders(folder));
    cadre_metrics *m = cadre_alloc(sizeof(*m));
    if (m == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    m->path = cadre_path_join(folder, "metrics.jsonl");
    cadre_status status =
        m->path == NULL ? CADRE_ERR_NO_MEMORY : open_stream(m, how);
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

// What a line has of an evaluation, and of the parameters; 0, or -1.
static int set_eval(json_t *line, const cadre_eval_result *eval)
{
    bool is_text = isnan(eval->accuracy);
    double of_kind = is_text ? eval->bits_per_byte : eval->accuracy;
    return json_object_set_new(line, "eval_loss", cadre_json_real(eval->loss)) |
           json_object_set_new(line,
               is_text ? "eval_bits_per_byte" : "eval_accuracy",
               cadre_json_real(of_kind));
}

static int set_hash(json_t *line, uint64_t hash)
{
    return json_object_set_new(line, "params_hash", cadre_json_hash(hash));
}

// How lines are copied.
typedef struct copy {
    int64_t n_steps; // that count
    FILE *to;
    const cadre_eval_result *eval; // for the last of them; NULL: none
    bool lacks_eval;               // it has a line without one
    int failed;                    // for want of memory: not 0
} copy;

// What fails to be written is seen again, and reported, by commit.
static void copy_line(
    copy *c, const char *text, size_t nbytes, json_t *line, bool last)
{
    if (!last || c->eval == NULL) {
        (void)fwrite(text, 1, nbytes, c->to);
        c->lacks_eval = last && json_object_get(line, "eval_loss") == NULL;
        return;
    }
    c->failed |= set_eval(line, c->eval);
    c->failed |= set_hash(line, c->eval->params_hash);
    (void)json_dumpf(line, c->to, JSON_COMPACT);
    (void)fputc('\n', c->to);
}

// Copies the whole lines of steps that count, in their order.
static void copy_lines(copy *c, const char *text, size_t nbytes)
{
    int64_t before = 0;
    const char *end;
    while (nbytes > 0 && (end = memchr(text, '\n', nbytes)) != NULL) {
        size_t line_bytes = (size_t)(end - text) + 1;
        json_t *line = json_loadb(text, line_bytes, 0, NULL);
        const json_t *number = json_object_get(line, "step");
        int64_t step = json_is_integer(number) ? json_integer_value(number) : 0;
        if (step > before && step <= c->n_steps) {
            copy_line(c, text, line_bytes, line, step == c->n_steps);
            before = step;
        }
        json_decref(line);
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

static cadre_status rewrite(const char *path, copy *c)
{
    char *text;
    size_t nbytes;
    CADRE_TRY(read_all(path, &text, &nbytes));
    cadre_new_file file;
    cadre_status status = cadre_new_file_open(path, &file);
    if (status == CADRE_OK) {
        c->to = file.stream;
        copy_lines(c, text, nbytes);
        status =
            c->failed == 0 ? cadre_new_file_commit(&file) : CADRE_ERR_NO_MEMORY;
        cadre_new_file_discard(&file);
    }
    cadre_free(text);
    return status;
}

cadre_status cadre_metrics_resume(
    const char *folder, int64_t n_steps, bool *lacks_eval, cadre_metrics **out)
{
    char *path = cadre_path_join(folder, "metrics.jsonl");
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    copy c = {.n_steps = n_steps};
    cadre_status status = rewrite(path, &c);
    *lacks_eval = c.lacks_eval;
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
        failed |= set_eval(o, line->eval);
    }
    if (line->params_hash != NULL) {
        failed |= set_hash(o, *line->params_hash);
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

cadre_status cadre_metrics_amend(
    cadre_metrics *metrics, int64_t step, const cadre_eval_result *eval)
{
    copy c = {.n_steps = step, .eval = eval};
    CADRE_TRY(rewrite(metrics->path, &c));
    fclose(metrics->stream); // of the file before
    return open_stream(metrics, "ae");
}
