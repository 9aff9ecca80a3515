// SPDX-License-Identifier: Apache-2.0
//
// Text as tokens: a text that a tokenizer encodes when it is opened, or a file of
// tokens.  Splits and samples are those of text.h, with tokens for bytes.
//
// Where options name a cache, tokens are written there the first time, and
// mapped from there afterwards.

#ifndef CADRE_DATA_TOKEN_TEXT_H
#define CADRE_DATA_TOKEN_TEXT_H

#include "data/dataset.h"

/**
 * Opens a split of a text that a tokenizer cuts, or of a file of tokens.
 *
 * Errors: those of a tokenizer, of text and of tokens
 *         CADRE_ERR_INVALID_ARG  the cache is of another text or tokenizer
 */
cadre_status cadre_token_text_open(
    const cadre_dataset_options *options, cadre_dataset **out);

#endif // CADRE_DATA_TOKEN_TEXT_H
