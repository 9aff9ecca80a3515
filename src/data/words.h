// SPDX-License-Identifier: Apache-2.0
//
// Text cut into words as GPT-2 does before it looks for tokens, by this rule,
// whose first alternative that fits is taken:
//
//     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+
//     |\s+(?!\S)|\s+
//
// No byte is lost.  A byte that is no part of UTF-8 counts as a sign.
//
// Threads: any.

#ifndef CADRE_DATA_WORDS_H
#define CADRE_DATA_WORDS_H

#include <stddef.h>
#include <stdint.h>

/** Bytes of the first word of a text that is not empty. */
size_t cadre_word_bytes(const uint8_t *text, size_t nbytes);

#endif // CADRE_DATA_WORDS_H
