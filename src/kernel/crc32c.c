// SPDX-License-Identifier: Apache-2.0
//
// x86: the instruction takes eight bytes at a time and three cycles, but a new
// one can begin in each; so long runs are cut into three that go side by side.

#include "kernel/crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { TABLE_ENTRIES = 256 };

static const uint32_t polynomial = 0x82f63b78; // its bits in reverse

static uint32_t table[TABLE_ENTRIES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    for (uint32_t i = 0; i < TABLE_ENTRIES; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ ((crc & 1) != 0 ? polynomial : 0);
        }
        table[i] = crc;
    }
}

uint32_t cadre_crc32c_plain(uint32_t crc, const void *data, size_t nbytes)
{
    const uint8_t *at = data;
    pthread_once(&once, make_table);
    crc = ~crc;
    for (size_t i = 0; i < nbytes; i++) {
        crc = crc >> 8 ^ table[(crc ^ at[i]) & 0xff];
    }
    return ~crc;
}

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define WITH_INSTRUCTION __attribute__((target("sse4.2,pclmul")))

// Long runs are taken in blocks of three stripes, word by word in turn.
enum {
    LINE_WORDS = 8,
    STRIPE_WORDS = 128,
    STRIPES = 3,
    BLOCK_BYTES = STRIPES * STRIPE_WORDS * 8,
    AHEAD_BYTES = 2 * BLOCK_BYTES,
};

// A checksum moves over n bytes that follow by a product with x^8n.  These are
// x^(8n - 33) for one and for two stripes, bits in reverse: the product of two
// reversed numbers of 32 bits has one x too many, and the instruction that takes
// the remainder puts in 32.
static const uint32_t over_one_stripe = 0x170076fa;
static const uint32_t over_two_stripes = 0xa51b6135;

static inline uint64_t word_at(const uint8_t *at, size_t i)
{
    uint64_t word;
    memcpy(&word, at + i * sizeof(word), sizeof(word));
    return word;
}

WITH_INSTRUCTION static inline uint64_t move_over(uint64_t crc, uint32_t factor)
{
    __m128i product = _mm_clmulepi64_si128(
        _mm_cvtsi32_si128((int)crc), _mm_cvtsi32_si128((int)factor), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

// Three streams that each go on for a kilobyte are more than the processor
// foresees, so it is told what is read soon.
WITH_INSTRUCTION static uint64_t take_block(
    uint64_t crc, const uint8_t *at, const uint8_t *soon)
{
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t line = 0; line < STRIPE_WORDS; line += LINE_WORDS) {
        for (size_t i = 0; i < STRIPES; i++) {
            _mm_prefetch(
                soon + (line * STRIPES + i * LINE_WORDS) * 8, _MM_HINT_T0);
        }
        for (size_t i = line; i < line + LINE_WORDS; i++) {
            crc = _mm_crc32_u64(crc, word_at(at, i));
            second = _mm_crc32_u64(second, word_at(at, STRIPE_WORDS + i));
            third =
                _mm_crc32_u64(third, word_at(at, (size_t)2 * STRIPE_WORDS + i));
        }
    }
    return move_over(crc, over_two_stripes) ^
           move_over(second, over_one_stripe) ^ third;
}

WITH_INSTRUCTION static uint32_t with_instruction(
    uint32_t crc, const uint8_t *at, size_t nbytes)
{
    uint64_t wide = ~crc;
    while (nbytes >= BLOCK_BYTES) {
        bool more = nbytes >= AHEAD_BYTES + BLOCK_BYTES;
        wide = take_block(wide, at, more ? at + AHEAD_BYTES : at);
        at += BLOCK_BYTES;
        nbytes -= BLOCK_BYTES;
    }
    while (nbytes >= sizeof(uint64_t)) {
        wide = _mm_crc32_u64(wide, word_at(at, 0));
        at += sizeof(uint64_t);
        nbytes -= sizeof(uint64_t);
    }
    uint32_t narrow = (uint32_t)wide;
    for (size_t i = 0; i < nbytes; i++) {
        narrow = _mm_crc32_u8(narrow, at[i]);
    }
    return ~narrow;
}

uint32_t cadre_crc32c(uint32_t crc, const void *data, size_t nbytes)
{
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul")
               ? with_instruction(crc, data, nbytes)
               : cadre_crc32c_plain(crc, data, nbytes);
}

#else

uint32_t cadre_crc32c(uint32_t crc, const void *data, size_t nbytes)
{
    return cadre_crc32c_plain(crc, data, nbytes);
}

#endif
