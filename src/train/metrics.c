// SPDX-License-Identifier: Apache-2.0

#include "train/metrics.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "train/values.h"
#include <errno.h>
#include <stdio.h>

struct cadre_metrics {
    FILE *stream;
    char *path;
};

cadre_status cadre_metrics_open(const char *folder, cadre_metrics **out)
{
    CADRE_TRY(cadre_make_folders(folder));
    cadre_metrics *m = cadre_alloc(sizeof(*m));
    if (m == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = CADRE_ERR_NO_MEMORY;
    m->path = cadre_path_join(folder, "metrics.jsonl");
    if (m->path != NULL) {
        m->stream = fopen(m->path, "we");
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
    json_t *o = json_pack("{s:I, s:o, s:o, s:o, s:o, s:n, s:o, s:o, s:o, s:I}",
        "step", (json_int_t)r->step, "loss", cadre_json_real(r->loss), "lr",
        cadre_json_real(r->lr), "grad_norm", cadre_json_real(r->grad_norm),
        "samples_per_second", cadre_json_real(line->samples_per_second),
        "tokens_per_second", "step_ms", cadre_json_real(line->step_ms),
        "exposed_ms", cadre_json_real(r->exposed_ms), "hidden_ms",
        cadre_json_real(r->hidden_ms), "bytes_sent", (json_int_t)r->bytes_sent);
    json_t *ranks = make_ranks(line->ranks);
    int failed = json_object_update(o, ranks);
    json_decref(ranks);
    if (line->eval != NULL) {
        failed |= json_object_set_new(
            o, "eval_loss", cadre_json_real(line->eval->loss));
        failed |= json_object_set_new(
            o, "eval_accuracy", cadre_json_real(line->eval->accuracy));
    }
    if (line->params_hash != NULL) {
        failed |= json_object_set_new(
            o, "params_hash", cadre_json_hash(*line->params_hash));
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
