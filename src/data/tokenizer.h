// SPDX-License-Identifier: Apache-2.0
//
// GPT-2's way to cut text into tokens: words (words.h) are bytes, and neighbours
// are joined, those first whose pair comes first in a list, until no pair of the
// list is left (byte pair encoding: Sennrich, Haddow, Birch, ACL 2016; Radford et
// al., 2019).  A tokenizer is a folder with the two files that are handed around
// for GPT-2: vocab.json, from text to number, and merges.txt, the list.
//
// Memory:  all at opening; encoding takes its own.
// Threads: an open tokenizer is immutable; any.

#ifndef CADRE_DATA_TOKENIZER_H
#define CADRE_DATA_TOKENIZER_H

#include "cadre/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct cadre_tokenizer cadre_tokenizer;

/**
 * Opens a folder with vocab.json and merges.txt.
 *
 * Errors: CADRE_ERR_NOT_FOUND  a file is missing
 *         CADRE_ERR_CORRUPT    they do not fit together; says how
 *         CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_tokenizer_open(const char *folder, cadre_tokenizer **out);
void cadre_tokenizer_close(cadre_tokenizer *tokenizer); // NULL is allowed

/** Tokens there are: all are below. */
int32_t cadre_tokenizer_vocabulary(const cadre_tokenizer *tokenizer);

/** A hash of what it does. */
uint64_t cadre_tokenizer_hash(const cadre_tokenizer *tokenizer);

/** The bytes that a token stands for; they belong to the tokenizer. */
const uint8_t *cadre_tokenizer_decode(
    const cadre_tokenizer *tokenizer, int32_t token, size_t *nbytes);

/** Tokens of a text, for cadre_free(); *count of them. */
cadre_status cadre_tokenizer_encode(const cadre_tokenizer *tokenizer,
    const uint8_t *text, size_t nbytes, int32_t **tokens, size_t *count);

#endif // CADRE_DATA_TOKENIZER_H
