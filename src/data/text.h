// SPDX-License-Identifier: Apache-2.0
//
// Text as bytes: a file, or, without a path, the King James Bible as Debian's
// package bible-kjv prints it.  With a tokenizer, or from a file of tokens, it is
// tokens (token_text.h).
//
// The first 95 of 100 bytes are for training, the others for the test.  Sample
// i of a split is the context bytes from place i * context on, each with the
// byte that follows it as its label: in an epoch each byte is predicted once,
// but for those at the end that fill no sample.

#ifndef CADRE_DATA_TEXT_H
#define CADRE_DATA_TEXT_H

#include "data/dataset.h"

extern const cadre_dataset_ops cadre_text;

/** Reads a text as a whole; *bytes is given to cadre_free(). */
cadre_status cadre_text_read(const char *path, uint8_t **bytes, size_t *nbytes);

/**
 * Where a split begins, of count bytes or tokens, and how many it has.
 *
 * Errors: CADRE_ERR_INVALID_ARG  too few for one sample; says what of
 */
cadre_status cadre_text_cut(int64_t count, const char *what,
    const cadre_dataset_options *options, int64_t *first, int64_t *n);

#endif // CADRE_DATA_TEXT_H
