// SPDX-License-Identifier: Apache-2.0

#include "train/trace_lanes.h"

#include "base/alloc.h"
#include <inttypes.h>

// Numbers of lanes, as viewers sort them.
enum { STEP_LANE = 0, LEAF_LANE = 1, CHUNK_LANE = 100001 };

// What is open on one lane: a leaf or a chunk's exchange.
typedef struct span {
    bool open;
    int32_t key; // leaf; or number of the exchange
    int64_t since_ns;
    int64_t started_ns; // of a chunk; or 0
} span;

// One rank's step while it is written.
typedef struct view {
    cadre_trace_lanes *lanes;
    int rank;
    int64_t step;
    span *leaves;
    int n_leaves; // lanes used so far
    span *chunks;
    int n_chunks;
    int64_t computed_ns; // when the last leaf ended
    int64_t control_ns;
} view;

cadre_status cadre_trace_lanes_begin(cadre_trace_lanes *lanes, FILE *stream,
    const cadre_model *model, int n_ranks)
{
    *lanes = (cadre_trace_lanes){
        .stream = stream, .model = model, .n_ranks = n_ranks};
    lanes->n_leaf_lanes =
        cadre_alloc_array((size_t)n_ranks, sizeof(*lanes->n_leaf_lanes));
    lanes->n_chunk_lanes =
        cadre_alloc_array((size_t)n_ranks, sizeof(*lanes->n_chunk_lanes));
    if (lanes->n_leaf_lanes == NULL || lanes->n_chunk_lanes == NULL) {
        cadre_trace_lanes_fini(lanes);
        return CADRE_ERR_NO_MEMORY;
    }
    fprintf(stream, "{\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [");
    return CADRE_OK;
}

void cadre_trace_lanes_fini(cadre_trace_lanes *lanes)
{
    cadre_free(lanes->n_leaf_lanes);
    cadre_free(lanes->n_chunk_lanes);
    *lanes = (cadre_trace_lanes){0};
}

// --- entries

// Microseconds with three digits, without a locale's comma.
static void put_us(FILE *stream, int64_t ns)
{
    ns = ns > 0 ? ns : 0;
    fprintf(stream, "%" PRId64 ".%03d", ns / 1000, (int)(ns % 1000));
}

static void begin_entry(
    cadre_trace_lanes *lanes, const char *phase, int rank, int lane, int64_t ns)
{
    fprintf(lanes->stream,
        "%s\n{\"ph\": \"%s\", \"pid\": %d, \"tid\": %d, \"ts\": ",
        lanes->comma ? "," : "", phase, rank, lane);
    put_us(lanes->stream, ns - lanes->base_ns);
    lanes->comma = true;
}

static void begin_slice(const view *v, int lane, const char *category,
    int64_t since_ns, int64_t until_ns)
{
    begin_entry(v->lanes, "X", v->rank, lane, since_ns);
    fprintf(v->lanes->stream, ", \"dur\": ");
    put_us(v->lanes->stream, until_ns - since_ns);
    fprintf(v->lanes->stream, ", \"cat\": \"%s\", \"name\": ", category);
}

static void put_plain_slice(
    const view *v, const char *name, int64_t since_ns, int64_t until_ns)
{
    begin_slice(v, STEP_LANE, name, since_ns, until_ns);
    fprintf(v->lanes->stream, "\"%s\", \"args\": {\"step\": %" PRId64 "}}",
        name, v->step);
}

// Names of parameters are UTF-8 without control characters.
static void put_string(FILE *stream, const char *text)
{
    fputc('"', stream);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            fputc('\\', stream);
        }
        fputc(*text, stream);
    }
    fputc('"', stream);
}

// --- spans

// The lowest lane that is free; there are as many as events.
static int take_lane(span *spans, int *n, const span *what)
{
    int lane = 0;
    while (lane < *n && spans[lane].open) {
        lane++;
    }
    *n = lane < *n ? *n : lane + 1;
    spans[lane] = *what;
    return lane;
}

static int find_lane(const span *spans, int n, int32_t key)
{
    for (int i = 0; i < n; i++) {
        if (spans[i].open && spans[i].key == key) {
            return i;
        }
    }
    return -1;
}

static void open_span(span *spans, int *n, int32_t key, int64_t ns)
{
    const span what = {.open = true, .key = key, .since_ns = ns};
    (void)take_lane(spans, n, &what);
}

static void end_leaf(view *v, const cadre_event *e)
{
    int lane = find_lane(v->leaves, v->n_leaves, e->leaf);
    v->computed_ns = e->ns;
    if (lane < 0) {
        return;
    }
    v->leaves[lane].open = false;
    begin_slice(v, LEAF_LANE + lane, "leaf", v->leaves[lane].since_ns, e->ns);
    fprintf(v->lanes->stream,
        "\"leaf %d\", \"args\": {\"step\": %" PRId64 ", \"leaf\": %d}}",
        (int)e->leaf, v->step, (int)e->leaf);
}

static void mark_grad(view *v, const cadre_event *e)
{
    int lane = find_lane(v->leaves, v->n_leaves, e->leaf);
    const char *name = cadre_model_param_name(v->lanes->model, e->index);
    if (lane < 0 || name == NULL) {
        return;
    }
    FILE *stream = v->lanes->stream;
    begin_entry(v->lanes, "i", v->rank, LEAF_LANE + lane, e->ns);
    fprintf(stream, ", \"s\": \"t\", \"cat\": \"grad\", \"name\": ");
    put_string(stream, name);
    fprintf(stream,
        ", \"args\": {\"step\": %" PRId64 ", \"leaf\": %d, \"parameter\": %d}}",
        v->step, (int)e->leaf, (int)e->index);
}

static void end_chunk(view *v, const cadre_event *e)
{
    int lane = find_lane(v->chunks, v->n_chunks, e->index);
    if (lane < 0) {
        return;
    }
    span *s = &v->chunks[lane];
    s->open = false;
    FILE *stream = v->lanes->stream;
    const char *what = e->gather ? "gather" : "reduce";
    begin_slice(v, CHUNK_LANE + lane, "chunk", s->since_ns, e->ns);
    fprintf(stream,
        "\"%s %d\", \"args\": {\"step\": %" PRId64 ", \"exchange\": %d, "
        "\"bucket\": %d, \"round\": %d, \"gather\": %s, \"bytes\": %" PRIu64
        "}}",
        what, (int)e->bucket, v->step, (int)e->index, (int)e->bucket,
        (int)e->round, e->gather ? "true" : "false", e->nbytes);
    if (s->started_ns == 0) {
        return;
    }
    begin_slice(v, CHUNK_LANE + lane, "moving", s->started_ns, e->ns);
    fprintf(stream,
        "\"moving\", \"args\": {\"step\": %" PRId64 ", \"exchange\": %d}}",
        v->step, (int)e->index);
}

static void take_event(view *v, const cadre_event *e)
{
    int lane;
    switch (e->kind) {
    case CADRE_EVENT_LEAF_BEGIN:
        open_span(v->leaves, &v->n_leaves, e->leaf, e->ns);
        break;
    case CADRE_EVENT_GRAD_READY:
        mark_grad(v, e);
        break;
    case CADRE_EVENT_LEAF_END:
        end_leaf(v, e);
        break;
    case CADRE_EVENT_POSTED:
        open_span(v->chunks, &v->n_chunks, e->index, e->ns);
        break;
    case CADRE_EVENT_STARTED:
        lane = find_lane(v->chunks, v->n_chunks, e->index);
        if (lane >= 0) {
            v->chunks[lane].started_ns = e->ns;
        }
        break;
    case CADRE_EVENT_FINISHED:
        end_chunk(v, e);
        break;
    case CADRE_EVENT_CONTROL:
        v->control_ns = e->ns;
        put_plain_slice(v, "wait", v->computed_ns, e->ns);
        break;
    case CADRE_EVENT_UPDATE:
        put_plain_slice(v, "update", v->control_ns, e->ns);
        break;
    case CADRE_EVENT_STEP_END:
        break;
    }
}

cadre_status cadre_trace_lanes_write(cadre_trace_lanes *lanes, int rank,
    int64_t step, const cadre_event *events, size_t n)
{
    if (n == 0) {
        return CADRE_OK;
    }
    view v = {
        .lanes = lanes,
        .rank = rank,
        .step = step,
        .leaves = cadre_alloc_array(n, sizeof(span)),
        .chunks = cadre_alloc_array(n, sizeof(span)),
        .computed_ns = events[0].ns,
        .control_ns = events[0].ns,
    };
    if (v.leaves == NULL || v.chunks == NULL) {
        cadre_free(v.leaves);
        cadre_free(v.chunks);
        return CADRE_ERR_NO_MEMORY;
    }
    begin_slice(&v, STEP_LANE, "step", events[0].ns, events[n - 1].ns);
    fprintf(lanes->stream,
        "\"step %" PRId64 "\", \"args\": {\"step\": %" PRId64 "}}", step, step);
    for (size_t i = 0; i < n; i++) {
        take_event(&v, &events[i]);
    }
    if (v.n_leaves > lanes->n_leaf_lanes[rank]) {
        lanes->n_leaf_lanes[rank] = v.n_leaves;
    }
    if (v.n_chunks > lanes->n_chunk_lanes[rank]) {
        lanes->n_chunk_lanes[rank] = v.n_chunks;
    }
    cadre_free(v.leaves);
    cadre_free(v.chunks);
    return CADRE_OK;
}

// --- names

static void name_lane(
    cadre_trace_lanes *lanes, int rank, int lane, const char *what, int number)
{
    begin_entry(lanes, "M", rank, lane, lanes->base_ns);
    fprintf(lanes->stream,
        ", \"name\": \"thread_name\", \"args\": {\"name\": \"%s", what);
    if (number >= 0) {
        fprintf(lanes->stream, " %d", number);
    }
    fprintf(lanes->stream, "\"}}");
    begin_entry(lanes, "M", rank, lane, lanes->base_ns);
    fprintf(lanes->stream,
        ", \"name\": \"thread_sort_index\", \"args\": {\"sort_index\": %d}}",
        lane);
}

static void name_rank(cadre_trace_lanes *lanes, int rank)
{
    begin_entry(lanes, "M", rank, STEP_LANE, lanes->base_ns);
    fprintf(lanes->stream,
        ", \"name\": \"process_name\", \"args\": {\"name\": \"rank %d\", "
        "\"rank\": %d}}",
        rank, rank);
    begin_entry(lanes, "M", rank, STEP_LANE, lanes->base_ns);
    fprintf(lanes->stream,
        ", \"name\": \"process_sort_index\", \"args\": {\"sort_index\": %d}}",
        rank);
    name_lane(lanes, rank, STEP_LANE, "step", -1);
    for (int i = 0; i < lanes->n_leaf_lanes[rank]; i++) {
        name_lane(lanes, rank, LEAF_LANE + i, "compute", i);
    }
    for (int i = 0; i < lanes->n_chunk_lanes[rank]; i++) {
        name_lane(lanes, rank, CHUNK_LANE + i, "in flight", i);
    }
}

void cadre_trace_lanes_end(cadre_trace_lanes *lanes)
{
    for (int r = 0; r < lanes->n_ranks; r++) {
        name_rank(lanes, r);
    }
    fprintf(lanes->stream, "\n]}\n");
}
