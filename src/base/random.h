// SPDX-License-Identifier: Apache-2.0
//
// Counter-based random numbers: a value is a function of a key and a position,
// so there is no state to save and no rank to know.
//
// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy
// as 1, 2, 3", SC 2011.
//
// Threads: any.

#ifndef CADRE_BASE_RANDOM_H
#define CADRE_BASE_RANDOM_H

#include "cadre/status.h"
#include <stddef.h>
#include <stdint.h>

/** What a stream of numbers is for; part of the key, so streams never meet. */
typedef enum cadre_stream {
    CADRE_STREAM_INITIAL = 1, // initial parameters: (seed, parameter, element)
    CADRE_STREAM_ORDER = 2,   // order of samples: (seed, epoch, position)
    CADRE_STREAM_DROPOUT = 3, // a key: (seed, layer, step); with that for seed,
                              // dropped elements: (key, row, element)
    CADRE_STREAM_GENERATE = 4, // text that is written: (seed, 0, place)
    CADRE_STREAM_AUGMENT = 6,  // parts of pictures: (seed, epoch, sample and
                               // number of the draw)
    CADRE_STREAM_MASK = 7,     // gaps in texts: (seed, epoch, sample and place)
} cadre_stream;

/** Four words for (seed, stream, a, b): a and b are what the stream says. */
void cadre_random_words(uint64_t seed, cadre_stream stream, uint32_t a,
    uint64_t b, uint32_t words[4]);

/** A float in [0, 1): 24 bits of one word. */
static inline float cadre_random_unit(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

/**
 * Fills data with nbytes from the operating system's generator.
 *
 * Errors: CADRE_ERR_IO
 */
cadre_status cadre_random_secret(void *data, size_t nbytes);

#endif // CADRE_BASE_RANDOM_H
