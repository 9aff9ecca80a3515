// SPDX-License-Identifier: Apache-2.0

#include "parallel/record.h"

#include "base/alloc.h"
#include "base/clock.h"
#include <stdatomic.h>

struct cadre_record {
    atomic_size_t n_noted; // more than capacity: the rest is not kept
    size_t capacity;
    size_t n_ended; // of the step that was ended last
    cadre_event events[];
};

cadre_status cadre_record_create(size_t n_events, cadre_record **out)
{
    size_t capacity =
        n_events < CADRE_RECORD_MOST ? n_events : (size_t)CADRE_RECORD_MOST;
    cadre_record *r =
        cadre_alloc_flex(sizeof(*r), capacity, sizeof(r->events[0]));
    if (r == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    r->capacity = capacity;
    *out = r;
    return CADRE_OK;
}

void cadre_record_destroy(cadre_record *record)
{
    cadre_free(record);
}

void cadre_record_begin(cadre_record *record)
{
    if (record != NULL) {
        record->n_ended = 0;
        atomic_store_explicit(&record->n_noted, 0, memory_order_relaxed);
    }
}

void cadre_record_note(cadre_record *record, cadre_event event)
{
    if (record == NULL) {
        return;
    }
    event.ns = cadre_now_ns();
    // Relaxed: a step ends after the locks of its leaves, which order this
    // store before the reading.
    size_t i =
        atomic_fetch_add_explicit(&record->n_noted, 1, memory_order_relaxed);
    if (i < record->capacity) {
        record->events[i] = event;
    }
}

// By insertion: events are almost in order, and equal times keep theirs.
void cadre_record_end(cadre_record *record)
{
    if (record == NULL) {
        return;
    }
    size_t n = atomic_load_explicit(&record->n_noted, memory_order_relaxed);
    n = n < record->capacity ? n : record->capacity;
    for (size_t i = 1; i < n; i++) {
        cadre_event event = record->events[i];
        size_t at = i;
        for (; at > 0 && record->events[at - 1].ns > event.ns; at--) {
            record->events[at] = record->events[at - 1];
        }
        record->events[at] = event;
    }
    record->n_ended = n;
}

int cadre_record_read(
    const cadre_record *record, cadre_event *events, int capacity)
{
    if (record == NULL) {
        return 0;
    }
    int n = (int)record->n_ended;
    for (int i = 0; i < n && i < capacity; i++) {
        events[i] = record->events[i];
    }
    return n;
}
