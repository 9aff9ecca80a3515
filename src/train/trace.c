// SPDX-License-Identifier: Apache-2.0

#include "train/trace.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "parallel/record.h"
#include "train/event_bytes.h"
#include "train/trace_lanes.h"
#include <inttypes.h>
#include <string.h>

struct cadre_trace {
    cadre_trace_options o;
    int n_ranks;
    bool has_file; // rank 0
    cadre_new_file file;
    cadre_trace_lanes lanes; // what is written into the file
    bool compared;           // the clocks
    int64_t *shifts;         // per rank: its clock is so much ahead
};

// All events of a step, of all ranks.
typedef struct gathered {
    int64_t *n_events; // per rank
    size_t *counts;    // per rank: 1, then bytes
    uint8_t *bytes;
    cadre_event *mine;
    cadre_event *events; // rank after rank
} gathered;

static void release(gathered *g)
{
    cadre_free(g->n_events);
    cadre_free(g->counts);
    cadre_free(g->bytes);
    cadre_free(g->mine);
    cadre_free(g->events);
}

cadre_status cadre_trace_create(
    const cadre_trace_options *options, cadre_trace **out)
{
    cadre_trace *t = cadre_alloc(sizeof(*t));
    if (t == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    t->o = *options;
    t->n_ranks = cadre_world_size(options->world);
    t->shifts = cadre_alloc_array((size_t)t->n_ranks, sizeof(*t->shifts));
    char *path = cadre_path_join(options->folder, "trace.json");
    cadre_status status =
        t->shifts != NULL && path != NULL ? CADRE_OK : CADRE_ERR_NO_MEMORY;
    if (status == CADRE_OK && cadre_rank(options->world) == 0) {
        status = cadre_new_file_open(path, &t->file);
        t->has_file = status == CADRE_OK;
    }
    if (t->has_file) {
        status = cadre_trace_lanes_begin(
            &t->lanes, t->file.stream, options->model, t->n_ranks);
    }
    cadre_free(path);
    if (status != CADRE_OK) {
        cadre_trace_destroy(t);
        return status;
    }
    *out = t;
    return CADRE_OK;
}

void cadre_trace_destroy(cadre_trace *trace)
{
    if (trace == NULL) {
        return;
    }
    if (trace->has_file) {
        cadre_new_file_discard(&trace->file);
    }
    cadre_trace_lanes_fini(&trace->lanes);
    cadre_free(trace->shifts);
    cadre_free(trace);
}

// This rank's events as bytes, into the gathered ones.
static cadre_status gather_bytes(cadre_trace *t, gathered *g, size_t n_mine)
{
    size_t total = 0;
    for (int r = 0; r < t->n_ranks; r++) {
        if (g->n_events[r] < 0 || g->n_events[r] > CADRE_RECORD_MOST) {
            return cadre_fail(CADRE_ERR_CORRUPT,
                "trace: rank %d tells of %" PRId64 " events in a step", r,
                g->n_events[r]);
        }
        g->counts[r] = (size_t)g->n_events[r] * CADRE_EVENT_BYTES;
        total += g->counts[r];
    }
    g->bytes = cadre_alloc(total);
    uint8_t *mine = cadre_alloc_array(n_mine, CADRE_EVENT_BYTES);
    cadre_status status = CADRE_ERR_NO_MEMORY;
    if (g->bytes != NULL && mine != NULL) {
        for (size_t i = 0; i < n_mine; i++) {
            cadre_event_store(&g->mine[i], mine + i * CADRE_EVENT_BYTES);
        }
        status = cadre_allgather(
            t->o.world, mine, g->bytes, g->counts, CADRE_U8, NULL);
    }
    cadre_free(mine);
    return status;
}

static cadre_status gather(cadre_trace *t, gathered *g)
{
    size_t n_ranks = (size_t)t->n_ranks;
    int n_mine = cadre_engine_events(t->o.engine, NULL, 0);
    g->n_events = cadre_alloc_array(n_ranks, sizeof(*g->n_events));
    g->counts = cadre_alloc_array(n_ranks, sizeof(*g->counts));
    g->mine = cadre_alloc_array((size_t)n_mine, sizeof(*g->mine));
    if (g->n_events == NULL || g->counts == NULL || g->mine == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_engine_events(t->o.engine, g->mine, n_mine);
    for (size_t r = 0; r < n_ranks; r++) {
        g->counts[r] = 1;
    }
    const int64_t n = n_mine;
    CADRE_TRY(cadre_allgather(
        t->o.world, &n, g->n_events, g->counts, CADRE_I64, NULL));
    return gather_bytes(t, g, (size_t)n_mine);
}

static cadre_status load_events(const cadre_trace *t, gathered *g)
{
    size_t total = 0;
    for (int r = 0; r < t->n_ranks; r++) {
        total += (size_t)g->n_events[r];
    }
    g->events = cadre_alloc_array(total, sizeof(*g->events));
    if (g->events == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < total; i++) {
        if (!cadre_event_load(
                g->bytes + i * CADRE_EVENT_BYTES, &g->events[i])) {
            return cadre_fail(
                CADRE_ERR_CORRUPT, "trace: what a rank sent is no event");
        }
    }
    return CADRE_OK;
}

static int64_t control_ns(const cadre_event *events, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == CADRE_EVENT_CONTROL) {
            return events[i].ns;
        }
    }
    return 0;
}

// On one clock, the control exchange of a step ends on all ranks within the
// step.  If it seems not to, the clocks are different ones.
static int64_t clock_shift(
    const cadre_event *events, size_t n, int64_t wanted_ns, int64_t span_ns)
{
    int64_t difference = control_ns(events, n) - wanted_ns;
    bool same = difference <= span_ns && difference >= -span_ns;
    return same ? 0 : difference;
}

// In the first traced step: by how much each rank's clock is ahead of rank 0's,
// and when the first of them began.
static void compare_clocks(cadre_trace *t, const gathered *g)
{
    const cadre_event *events = g->events;
    size_t n = (size_t)g->n_events[0];
    int64_t wanted_ns = control_ns(events, n);
    int64_t span_ns = n > 0 ? events[n - 1].ns - events[0].ns : 0;
    int64_t base_ns = INT64_MAX;
    for (int r = 0; r < t->n_ranks; r++) {
        n = (size_t)g->n_events[r];
        t->shifts[r] = clock_shift(events, n, wanted_ns, span_ns);
        if (n > 0 && events[0].ns - t->shifts[r] < base_ns) {
            base_ns = events[0].ns - t->shifts[r];
        }
        events += n;
    }
    t->lanes.base_ns = base_ns;
    t->compared = true;
}

static cadre_status write_step(cadre_trace *t, gathered *g, int64_t step)
{
    CADRE_TRY(load_events(t, g));
    if (!t->compared) {
        compare_clocks(t, g);
    }
    cadre_event *events = g->events;
    for (int r = 0; r < t->n_ranks; r++) {
        size_t n = (size_t)g->n_events[r];
        for (size_t i = 0; i < n; i++) {
            events[i].ns -= t->shifts[r];
        }
        CADRE_TRY(cadre_trace_lanes_write(&t->lanes, r, step, events, n));
        events += n;
    }
    return CADRE_OK;
}

cadre_status cadre_trace_add(cadre_trace *trace, int64_t step)
{
    if (step < trace->o.first_step ||
        step - trace->o.first_step >= trace->o.n_steps) {
        return CADRE_OK;
    }
    gathered g = {0};
    cadre_status status = gather(trace, &g);
    if (status == CADRE_OK && trace->has_file) {
        status = write_step(trace, &g, step);
    }
    release(&g);
    return status;
}

cadre_status cadre_trace_finish(cadre_trace *trace)
{
    if (!trace->has_file) {
        return CADRE_OK;
    }
    cadre_trace_lanes_end(&trace->lanes);
    trace->has_file = false;
    return cadre_new_file_commit(&trace->file);
}
