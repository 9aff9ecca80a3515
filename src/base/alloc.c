// SPDX-License-Identifier: Apache-2.0

#include "base/alloc.h"

#include "base/fail.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_uint_fast64_t calls;
static _Thread_local uint64_t bytes;
static atomic_int_fast64_t failing = -1; // allocations until one fails

static int must_fail(void)
{
    int_fast64_t left = atomic_load_explicit(&failing, memory_order_relaxed);
    if (left < 0) {
        return 0;
    }
    return atomic_fetch_sub_explicit(&failing, 1, memory_order_relaxed) == 0;
}

static void *no_memory(size_t nbytes)
{
    (void)cadre_fail(CADRE_ERR_NO_MEMORY,
        "out of memory: %zu bytes are not to be had", nbytes);
    return NULL;
}

void *cadre_alloc(size_t nbytes)
{
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    if (nbytes > SIZE_MAX - CADRE_CACHE_LINE || must_fail()) {
        return no_memory(nbytes);
    }

    // aligned_alloc() wants a multiple of the alignment, and 0 bytes may be NULL.
    size_t rounded = (nbytes + CADRE_CACHE_LINE - 1) / CADRE_CACHE_LINE;
    rounded = (rounded == 0 ? 1 : rounded) * CADRE_CACHE_LINE;
    void *block = aligned_alloc(CADRE_CACHE_LINE, rounded);
    if (block == NULL) {
        return no_memory(nbytes);
    }
    memset(block, 0, rounded);
    bytes += nbytes;
    return block;
}

void *cadre_alloc_array(size_t count, size_t element_bytes)
{
    return cadre_alloc_flex(0, count, element_bytes);
}

void *cadre_alloc_flex(size_t head_bytes, size_t count, size_t element_bytes)
{
    size_t array_bytes;
    size_t nbytes;
    if (__builtin_mul_overflow(count, element_bytes, &array_bytes) ||
        __builtin_add_overflow(head_bytes, array_bytes, &nbytes)) {
        return no_memory(SIZE_MAX);
    }
    return cadre_alloc(nbytes);
}

char *cadre_alloc_string(const char *text)
{
    size_t nbytes = strlen(text) + 1;
    char *copy = cadre_alloc(nbytes);
    if (copy != NULL) {
        memcpy(copy, text, nbytes);
    }
    return copy;
}

void cadre_free(void *block)
{
    free(block);
}

uint64_t cadre_alloc_calls(void)
{
    return atomic_load_explicit(&calls, memory_order_relaxed);
}

uint64_t cadre_alloc_bytes(void)
{
    return bytes;
}

void cadre_alloc_fail_after(int64_t n)
{
    atomic_store_explicit(&failing, n, memory_order_relaxed);
}
