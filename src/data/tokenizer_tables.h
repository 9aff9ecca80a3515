// SPDX-License-Identifier: Apache-2.0
//
// What a tokenizer is inside, for the two files that are one.

#ifndef CADRE_DATA_TOKENIZER_TABLES_H
#define CADRE_DATA_TOKENIZER_TABLES_H

#include "data/tokenizer.h"

/** Two tokens that may become one; the lower rank goes first. */
typedef struct cadre_merge {
    uint64_t pair; // left, then right, of 32 bits
    int32_t rank;  // 0: an empty place of the table; else from 1
    int32_t joined;
} cadre_merge;

struct cadre_tokenizer {
    int32_t n_tokens;
    uint8_t *bytes; // of all tokens, back to back
    size_t *begins; // (n_tokens + 1): where each begins
    int32_t of_byte[256];
    cadre_merge *merges; // by a hash of the pair, the next place if taken
    size_t mask;         // places less 1; half of them are empty
    uint64_t hash;
};

static inline uint64_t cadre_pair(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/** The place of a pair, or the empty one where it would be. */
static inline cadre_merge *cadre_merge_place(
    const cadre_tokenizer *t, uint64_t pair)
{
    // The golden ratio's bits spread neighbours: Knuth, TAOCP 3, section 6.4.
    size_t at = (size_t)(pair * UINT64_C(0x9e3779b97f4a7c15) >> 32) & t->mask;
    while (t->merges[at].rank != 0 && t->merges[at].pair != pair) {
        at = (at + 1) & t->mask;
    }
    return &t->merges[at];
}

#endif // CADRE_DATA_TOKENIZER_TABLES_H
