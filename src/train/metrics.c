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

static json_t *make_line(const cadre_metrics_line *line)
{
    const cadre_step_report *r = line->report;
    json_t *o = json_pack("{s:I, s:o, s:o, s:o, s:o, s:n, s:o, s:o, s:I}",
        "step", (json_int_t)r->step, "loss", cadre_json_real(r->loss), "lr",
        cadre_json_real(r->lr), "grad_norm", cadre_json_real(r->grad_norm),
        "samples_per_second", cadre_json_real(line->samples_per_second),
        "tokens_per_second", "step_ms", cadre_json_real(line->step_ms),
        "exposed_ms", cadre_json_real(r->exposed_ms), "bytes_sent",
        (json_int_t)r->bytes_sent);
    int failed = 0;
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
