// SPDX-License-Identifier: Apache-2.0

#include "train/report_trace.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "train/report_data.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *category;
    cadre_slice_kind kind;
    const char *number; // argument with the leaf or bucket
} kinds[] = {
    {"step", CADRE_SLICE_STEP, NULL},
    {"leaf", CADRE_SLICE_LEAF, "leaf"},
    {"grad", CADRE_SLICE_GRAD, "leaf"},
    {"chunk", CADRE_SLICE_REDUCE, "bucket"},
    {"wait", CADRE_SLICE_WAIT, NULL},
    {"update", CADRE_SLICE_UPDATE, NULL},
};
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]), MOST = 1 << 20 };

static int64_t step_of(const json_t *event)
{
    return json_integer_value(
        json_object_get(json_object_get(event, "args"), "step"));
}

static int small_int(const json_t *value)
{
    json_int_t number = json_integer_value(value);
    return number >= 0 && number < MOST ? (int)number : 0;
}

// False for an event that the report does not show.
static bool take(const json_t *event, cadre_trace_slice *s)
{
    const char *category = json_string_value(json_object_get(event, "cat"));
    const json_t *args = json_object_get(event, "args");
    for (int i = 0; category != NULL && i < N_KINDS; i++) {
        if (strcmp(category, kinds[i].category) != 0) {
            continue;
        }
        double since = json_number_value(json_object_get(event, "ts"));
        double length = json_number_value(json_object_get(event, "dur"));
        bool gather = json_is_true(json_object_get(args, "gather"));
        *s = (cadre_trace_slice){
            .kind = gather ? CADRE_SLICE_GATHER : kinds[i].kind,
            .rank = small_int(json_object_get(event, "pid")),
            .lane = small_int(json_object_get(event, "tid")),
            .since_ms = since / 1000,
            .until_ms = (since + length) / 1000,
            .nbytes = json_number_value(json_object_get(args, "bytes")),
        };
        if (kinds[i].number != NULL) {
            s->number = small_int(json_object_get(args, kinds[i].number));
        }
        return isfinite(s->since_ms) && isfinite(s->until_ms) && length >= 0;
    }
    return false;
}

static int compare(const void *left, const void *right)
{
    const cadre_trace_slice *a = left;
    const cadre_trace_slice *b = right;
    if (a->rank != b->rank) {
        return a->rank < b->rank ? -1 : 1;
    }
    if (a->lane != b->lane) {
        return a->lane < b->lane ? -1 : 1;
    }
    return (a->since_ms > b->since_ms) - (a->since_ms < b->since_ms);
}

static cadre_status take_last_step(
    const json_t *events, cadre_report_trace *out)
{
    size_t n_events = json_array_size(events);
    for (size_t i = 0; i < n_events; i++) {
        int64_t step = step_of(json_array_get(events, i));
        out->step = step > out->step ? step : out->step;
    }
    out->slices = cadre_alloc_array(n_events, sizeof(*out->slices));
    if (out->slices == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    double begin_ms = INFINITY;
    for (size_t i = 0; i < n_events; i++) {
        const json_t *event = json_array_get(events, i);
        cadre_trace_slice *s = &out->slices[out->n_slices];
        if (step_of(event) == out->step && take(event, s)) {
            begin_ms = s->since_ms < begin_ms ? s->since_ms : begin_ms;
            out->n_slices++;
        }
    }
    for (size_t i = 0; i < out->n_slices; i++) {
        out->slices[i].since_ms -= begin_ms;
        out->slices[i].until_ms -= begin_ms;
    }
    qsort(out->slices, out->n_slices, sizeof(*out->slices), compare);
    return CADRE_OK;
}

cadre_status cadre_report_trace_read(
    const char *folder, cadre_report_trace *out)
{
    *out = (cadre_report_trace){0};
    json_t *json;
    CADRE_TRY(cadre_report_json(folder, "trace.json", &json));
    const json_t *events = json_object_get(json, "traceEvents");
    cadre_status status = CADRE_OK;
    if (json != NULL && !json_is_array(events)) {
        status = cadre_fail(CADRE_ERR_CORRUPT,
            "'%s/trace.json' is damaged in line 1: it has no traceEvents",
            folder);
    } else if (json != NULL) {
        status = take_last_step(events, out);
    }
    json_decref(json);
    if (status != CADRE_OK) {
        cadre_report_trace_fini(out);
    }
    return status;
}

void cadre_report_trace_fini(cadre_report_trace *trace)
{
    cadre_free(trace->slices);
    *trace = (cadre_report_trace){0};
}
