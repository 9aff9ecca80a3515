// SPDX-License-Identifier: Apache-2.0

#include "bench_pattern.h"

#include <string.h>

// A number for the i-th place: squares modulo a prime keep places that are some
// fixed distance apart from looking alike.
static int64_t mix(int i)
{
    return (int64_t)i * i % PATTERN_PERIOD;
}

// A factor of 3 from one rank in n, and signs from all: nothing overflows.
static int64_t factor_of(const pattern_kind *kind, int rank, int i)
{
    if (mix(i) % kind->n_ranks == rank) {
        return 3;
    }
    return (mix(i) + rank) % 2 == 0 ? 1 : -1;
}

static int64_t element_of(const pattern_kind *kind, int rank, int i)
{
    if (!kind->reduced) {
        return (3 * (int64_t)rank + mix(i)) % 127;
    }
    if (kind->op == CADRE_PRODUCT) {
        return factor_of(kind, rank, i);
    }
    int64_t lowest = kind->dtype == CADRE_U8 ? 0 : -3;
    return lowest + (3 * (int64_t)rank + mix(i)) % 7;
}

static int64_t combine(cadre_reduce_op op, int64_t a, int64_t b)
{
    switch (op) {
    case CADRE_SUM:
    case CADRE_MEAN:
        return a + b;
    case CADRE_PRODUCT:
        return a * b;
    case CADRE_MIN:
        return a < b ? a : b;
    case CADRE_MAX:
        return a > b ? a : b;
    }
    return 0;
}

// The upper half of the bits, to nearest, ties to even.
static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    bits += 0x7fff + ((bits >> 16) & 1);
    return (uint16_t)(bits >> 16);
}

// Likewise.  What patterns hold is 0 or a normal number of binary16: from
// 1 / 4096, a mean over the most ranks, to 3 * 4096.
static uint16_t to_f16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t size = bits & 0x7fffffff;
    if (size == 0) {
        return (uint16_t)sign;
    }
    size -= (uint32_t)(127 - 15) << 23;
    size += 0xfff + ((size >> 13) & 1);
    return (uint16_t)(sign | size >> 13);
}

// Writes value / divisor as an element.  Integers wrap and are not divided.
static void encode(
    cadre_dtype dtype, int64_t value, int divisor, uint8_t *element)
{
    double f64 = (double)value / divisor;
    float f32 = (float)value / (float)divisor;
    int32_t i32 = (int32_t)value;
    uint16_t half = dtype == CADRE_BF16 ? to_bf16(f32) : to_f16(f32);
    uint8_t byte = (uint8_t)value;
    switch (dtype) {
    case CADRE_F32:
        memcpy(element, &f32, sizeof(f32));
        break;
    case CADRE_F64:
        memcpy(element, &f64, sizeof(f64));
        break;
    case CADRE_I64:
        memcpy(element, &value, sizeof(value));
        break;
    case CADRE_I32:
        memcpy(element, &i32, sizeof(i32));
        break;
    case CADRE_I8:
    case CADRE_U8:
        memcpy(element, &byte, sizeof(byte));
        break;
    case CADRE_BF16:
    case CADRE_F16:
        memcpy(element, &half, sizeof(half));
        break;
    }
}

static void put(
    pattern *p, const pattern_kind *kind, int i, int64_t value, int divisor)
{
    size_t at = (size_t)i * p->element_bytes;
    encode(kind->dtype, value, divisor, p->bytes + at);
    memcpy(p->bytes + PATTERN_PERIOD * p->element_bytes + at, p->bytes + at,
        p->element_bytes);
}

pattern pattern_of_rank(const pattern_kind *kind, int rank)
{
    pattern p = {.element_bytes = cadre_dtype_bytes(kind->dtype)};
    for (int i = 0; i < PATTERN_PERIOD; i++) {
        put(&p, kind, i, element_of(kind, rank, i), 1);
    }
    return p;
}

pattern pattern_of_result(const pattern_kind *kind)
{
    pattern p = {.element_bytes = cadre_dtype_bytes(kind->dtype)};
    int divisor = kind->op == CADRE_MEAN ? kind->n_ranks : 1;
    for (int i = 0; i < PATTERN_PERIOD; i++) {
        int64_t value = element_of(kind, 0, i);
        for (int r = 1; r < kind->n_ranks; r++) {
            value = combine(kind->op, value, element_of(kind, r, i));
        }
        put(&p, kind, i, value, divisor);
    }
    return p;
}

// Elements of the next run, at most a period.
static size_t run_length(size_t left)
{
    return left < PATTERN_PERIOD ? left : PATTERN_PERIOD;
}

void pattern_write(const pattern *p, size_t first, size_t count, void *elements)
{
    const uint8_t *from = p->bytes + first % PATTERN_PERIOD * p->element_bytes;
    uint8_t *to = elements;
    while (count > 0) {
        size_t n = run_length(count);
        memcpy(to, from, n * p->element_bytes);
        to += n * p->element_bytes;
        count -= n;
    }
}

static size_t count_wrong(
    const uint8_t *expected, const uint8_t *found, size_t n, size_t nbytes)
{
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        wrong += memcmp(expected + i * nbytes, found + i * nbytes, nbytes) != 0;
    }
    return wrong;
}

size_t pattern_count_wrong(
    const pattern *p, size_t first, size_t count, const void *elements)
{
    const uint8_t *expected =
        p->bytes + first % PATTERN_PERIOD * p->element_bytes;
    const uint8_t *found = elements;
    size_t wrong = 0;
    while (count > 0) {
        size_t n = run_length(count);
        if (memcmp(expected, found, n * p->element_bytes) != 0) {
            wrong += count_wrong(expected, found, n, p->element_bytes);
        }
        found += n * p->element_bytes;
        count -= n;
    }
    return wrong;
}
