// SPDX-License-Identifier: Apache-2.0
//
// An engine's event as bytes, field by field, to be sent to rank 0.

#ifndef CADRE_TRAIN_EVENT_BYTES_H
#define CADRE_TRAIN_EVENT_BYTES_H

#include "base/bytes.h"
#include "cadre/engine.h"

enum { CADRE_EVENT_BYTES = 40 };

static inline void cadre_event_store(
    const cadre_event *event, uint8_t bytes[CADRE_EVENT_BYTES])
{
    cadre_writer w = {.data = bytes, .capacity = CADRE_EVENT_BYTES, .ok = true};
    cadre_write_u64(&w, (uint64_t)event->ns);
    cadre_write_u32(&w, (uint32_t)event->kind);
    cadre_write_u32(&w, (uint32_t)event->leaf);
    cadre_write_u32(&w, (uint32_t)event->index);
    cadre_write_u32(&w, (uint32_t)event->bucket);
    cadre_write_u32(&w, (uint32_t)event->round);
    cadre_write_u32(&w, event->gather ? 1 : 0);
    cadre_write_u64(&w, event->nbytes);
}

/** False if the bytes are no event. */
static inline bool cadre_event_load(
    const uint8_t bytes[CADRE_EVENT_BYTES], cadre_event *event)
{
    cadre_reader r = {.data = bytes, .nbytes = CADRE_EVENT_BYTES, .ok = true};
    event->ns = (int64_t)cadre_read_u64(&r);
    uint32_t kind = cadre_read_u32(&r);
    event->kind = (cadre_event_kind)kind;
    event->leaf = (int32_t)cadre_read_u32(&r);
    event->index = (int32_t)cadre_read_u32(&r);
    event->bucket = (int32_t)cadre_read_u32(&r);
    event->round = (int32_t)cadre_read_u32(&r);
    uint32_t gather = cadre_read_u32(&r);
    event->gather = gather == 1;
    event->nbytes = cadre_read_u64(&r);
    return kind >= CADRE_EVENT_LEAF_BEGIN && kind <= CADRE_EVENT_STEP_END &&
           gather <= 1 && event->ns >= 0 && event->ns < INT64_MAX / 2 &&
           event->leaf >= -1 && event->index >= -1 && event->bucket >= -1 &&
           event->round >= -1;
}

#endif // CADRE_TRAIN_EVENT_BYTES_H
