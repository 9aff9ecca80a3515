// SPDX-License-Identifier: Apache-2.0
//
// Little-endian fields in byte buffers.  Everything that is written to a wire
// or a file goes through these, field by field: no struct is ever sent as it
// lies in memory.  Readers check what remains before they read.

#ifndef CADRE_BASE_BYTES_H
#define CADRE_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline void cadre_store_u32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

static inline void cadre_store_u64(uint8_t *at, uint64_t value)
{
    for (int i = 0; i < 8; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

static inline uint32_t cadre_load_u32(const uint8_t *at)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        value |= (uint32_t)at[i] << (8 * i);
    }
    return value;
}

static inline uint64_t cadre_load_u64(const uint8_t *at)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

/** Writes into a buffer of fixed size; ok turns false on overflow and stays. */
typedef struct cadre_writer {
    uint8_t *data;
    size_t used;
    size_t capacity;
    bool ok;
} cadre_writer;

static inline uint8_t *cadre_writer_reserve(cadre_writer *w, size_t nbytes)
{
    if (!w->ok || nbytes > w->capacity - w->used) {
        w->ok = false;
        return NULL;
    }
    uint8_t *at = w->data + w->used;
    w->used += nbytes;
    return at;
}

static inline void cadre_write_u32(cadre_writer *w, uint32_t value)
{
    uint8_t *at = cadre_writer_reserve(w, 4);
    if (at != NULL) {
        cadre_store_u32(at, value);
    }
}

static inline void cadre_write_u64(cadre_writer *w, uint64_t value)
{
    uint8_t *at = cadre_writer_reserve(w, 8);
    if (at != NULL) {
        cadre_store_u64(at, value);
    }
}

static inline void cadre_write_bytes(
    cadre_writer *w, const void *data, size_t nbytes)
{
    uint8_t *at = cadre_writer_reserve(w, nbytes);
    if (at != NULL && nbytes > 0) {
        memcpy(at, data, nbytes);
    }
}

/** Reads from a buffer of fixed size; ok turns false past its end and stays. */
typedef struct cadre_reader {
    const uint8_t *data;
    size_t used;
    size_t nbytes;
    bool ok;
} cadre_reader;

static inline const uint8_t *cadre_reader_take(cadre_reader *r, size_t nbytes)
{
    if (!r->ok || nbytes > r->nbytes - r->used) {
        r->ok = false;
        return NULL;
    }
    const uint8_t *at = r->data + r->used;
    r->used += nbytes;
    return at;
}

/** 0 past the end. */
static inline uint32_t cadre_read_u32(cadre_reader *r)
{
    const uint8_t *at = cadre_reader_take(r, 4);
    return at == NULL ? 0 : cadre_load_u32(at);
}

/** 0 past the end. */
static inline uint64_t cadre_read_u64(cadre_reader *r)
{
    const uint8_t *at = cadre_reader_take(r, 8);
    return at == NULL ? 0 : cadre_load_u64(at);
}

#endif // CADRE_BASE_BYTES_H
