// SPDX-License-Identifier: Apache-2.0
//
// x86: the instruction takes eight bytes at a time.

#include "kernel/crc32c.h"

#include <pthread.h>
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

#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t with_instruction(
    uint32_t crc, const uint8_t *at, size_t nbytes)
{
    uint64_t wide = ~crc;
    while (nbytes >= sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, at, sizeof(word));
        wide = _mm_crc32_u64(wide, word);
        at += sizeof(word);
        nbytes -= sizeof(word);
    }
    uint32_t narrow = (uint32_t)wide;
    for (size_t i = 0; i < nbytes; i++) {
        narrow = _mm_crc32_u8(narrow, at[i]);
    }
    return ~narrow;
}

uint32_t cadre_crc32c(uint32_t crc, const void *data, size_t nbytes)
{
    return __builtin_cpu_supports("sse4.2")
               ? with_instruction(crc, data, nbytes)
               : cadre_crc32c_plain(crc, data, nbytes);
}

#else

uint32_t cadre_crc32c(uint32_t crc, const void *data, size_t nbytes)
{
    return cadre_crc32c_plain(crc, data, nbytes);
}

#endif
