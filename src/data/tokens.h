// SPDX-License-Identifier: Apache-2.0
//
// Tokens of a text, packed as they lie in a file (docs/token-files.md), so that
// a file is used where it is mapped.
//
// Memory:  one block, allocated or mapped; ranks of a host share a mapped one.
// Threads: any; finished tokens are immutable.

#ifndef CADRE_DATA_TOKENS_H
#define CADRE_DATA_TOKENS_H

#include "cadre/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cadre_tokens {
    uint8_t *block; // the file's bytes
    size_t block_bytes;
    bool mapped;
    const uint8_t *data; // little-endian, of width bytes each
    int width;           // 2 or 4
    int64_t count;
    int32_t vocabulary; // all tokens are below: checked when they are read
    int64_t text_bytes; // what they stand for
    uint64_t hash;      // of data
    uint64_t source;    // hash of the text and the tokenizer they are from
} cadre_tokens;

/** What is known about tokens that are packed. */
typedef struct cadre_tokens_facts {
    int32_t vocabulary;
    int64_t text_bytes;
    uint64_t source;
} cadre_tokens_facts;

/** Packs tokens; give *out to cadre_tokens_fini(). */
cadre_status cadre_tokens_pack(const int32_t *tokens, size_t count,
    const cadre_tokens_facts *facts, cadre_tokens *out);

/**
 * Whether a file could be written there.
 *
 * Errors: CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_tokens_try(const char *path);

/** Writes them aside and renames; ranks may do so at the same time. */
cadre_status cadre_tokens_save(const cadre_tokens *tokens, const char *path);

/**
 * Maps a file.  Give *out to cadre_tokens_fini().  The file must not become
 * shorter meanwhile.
 *
 * Errors: CADRE_ERR_NOT_FOUND  it is not there
 *         CADRE_ERR_CORRUPT    its header and its length do not fit
 *         CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_tokens_map(const char *path, cadre_tokens *out);
void cadre_tokens_fini(cadre_tokens *tokens);

/** True if a file begins as those of tokens do. */
bool cadre_tokens_are_in(const char *path);

static inline uint32_t cadre_token_at(const cadre_tokens *t, int64_t i)
{
    const uint8_t *at = t->data + i * t->width;
    uint32_t low = at[0] | (uint32_t)at[1] << 8;
    return t->width == 2 ? low
                         : low | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

#endif // CADRE_DATA_TOKENS_H
