// SPDX-License-Identifier: Apache-2.0
//
// Random numbers of many counters at once (base/random.h): the ten rounds of one
// wait for each other, those of others need not.
//
// Threads: any.

#ifndef CADRE_KERNEL_DRAW_H
#define CADRE_KERNEL_DRAW_H

#include "base/random.h"
#include <stddef.h>

/**
 * What cadre_random_words() gives for each of count counters b: word w of
 * counter i is words[w * count + i].  Fastest where count is a multiple of 16.
 */
void cadre_draw(uint64_t seed, cadre_stream stream, uint32_t a,
    const uint64_t *b, size_t count, uint32_t *words);

#endif // CADRE_KERNEL_DRAW_H
