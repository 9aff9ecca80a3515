// SPDX-License-Identifier: Apache-2.0
//
// All memory comes from here.  Every block is zeroed, aligned to a cache line
// and given back by cadre_free().
//
// A test can make the n-th allocation fail and can count allocations and their
// bytes, which is how "no allocation in the step loop" is proved, and that what
// is planned is what is allocated.
//
// Threads: any.

#ifndef CADRE_BASE_ALLOC_H
#define CADRE_BASE_ALLOC_H

#include "cadre/status.h"
#include <stddef.h>
#include <stdint.h>

enum { CADRE_CACHE_LINE = 64 };

/**
 * Returns nbytes zeroed bytes, or NULL with the thread's failure text set.
 * nbytes may be 0: the result is then a valid pointer to nothing.
 */
void *cadre_alloc(size_t nbytes);

/** cadre_alloc() of count elements, the product checked for overflow. */
void *cadre_alloc_array(size_t count, size_t element_bytes);

/** A struct of head_bytes followed by count elements (a flexible array). */
void *cadre_alloc_flex(size_t head_bytes, size_t count, size_t element_bytes);

/** A copy of a string; NULL without memory. */
char *cadre_alloc_string(const char *text);

/** Gives a block back.  NULL is allowed. */
void cadre_free(void *block);

/** Allocations since the program began. */
uint64_t cadre_alloc_calls(void);

/** Bytes that the calling thread has asked for since it began. */
uint64_t cadre_alloc_bytes(void);

/** Lets n more allocations pass and fails the one after; -1: none fails. */
void cadre_alloc_fail_after(int64_t n);

#endif // CADRE_BASE_ALLOC_H
