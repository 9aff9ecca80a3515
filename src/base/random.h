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

/**
 * Four words for (seed, stream, a, b): a and b are what the stream says.
 *
 * Written so that a loop over many b is vectorised (kernel/draw.h): 32 bits in
 * lanes of 64, where a product has room.
 */
static inline void cadre_random_words(uint64_t seed, cadre_stream stream,
    uint32_t a, uint64_t b, uint32_t words[4])
{
    // The constants of the paper, section 4.3.
    const uint64_t multiplier0 = 0xD2511F53;
    const uint64_t multiplier1 = 0xCD9E8D57;
    const uint32_t weyl0 = 0x9E3779B9;
    const uint32_t weyl1 = 0xBB67AE85;
    enum { ROUNDS = 10 };

    uint32_t key0 = (uint32_t)seed;
    uint32_t key1 = (uint32_t)(seed >> 32);
    uint64_t c0 = (uint32_t)b;
    uint64_t c1 = b >> 32;
    uint64_t c2 = a;
    uint64_t c3 = (uint32_t)stream;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p0 = multiplier0 * c0;
        uint64_t p1 = multiplier1 * c2;
        c0 = (p1 >> 32) ^ c1 ^ key0;
        c2 = (p0 >> 32) ^ c3 ^ key1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        key0 += weyl0;
        key1 += weyl1;
    }
    words[0] = (uint32_t)c0;
    words[1] = (uint32_t)c1;
    words[2] = (uint32_t)c2;
    words[3] = (uint32_t)c3;
}

/** A float in [0, 1): 24 bits of one word. */
static inline float cadre_random_unit(uint32_t word)
{
    // Signed integers are what every register converts.
    return (float)(int32_t)(word >> 8) * 0x1p-24f;
}

/**
 * Fills data with nbytes from the operating system's generator.
 *
 * Errors: CADRE_ERR_IO
 */
cadre_status cadre_random_secret(void *data, size_t nbytes);

#endif // CADRE_BASE_RANDOM_H
