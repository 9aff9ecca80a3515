// SPDX-License-Identifier: Apache-2.0
//
// Text with gaps, as BERT learns it: of each sample 15 of 100 tokens, rounded and
// at least one, are chosen; of those, 80 of 100 are replaced by a number of their
// own (the mask, one above the text's tokens), 10 by a random token, and 10 stay.
// The labels of the chosen ones are what they were; others have none.
//
// What is chosen is a function of (seed, epoch, sample, place in it), and of
// nothing that knows which rank reads it.

#ifndef CADRE_DATA_MASKED_H
#define CADRE_DATA_MASKED_H

#include "data/dataset.h"

/** Tokens that are chosen in a sample of so many. */
static inline int64_t cadre_masked_count(int64_t tokens)
{
    int64_t count = (15 * tokens + 50) / 100;
    return count > 0 ? count : 1;
}

/**
 * Masks a sample of n_tokens with n_numbers tokens to choose from; the mask is
 * n_numbers.  labels gets one for each, CADRE_DATA_NO_LABEL where none is.
 */
void cadre_mask(uint64_t seed, cadre_place place, int64_t n_numbers,
    int64_t n_tokens, float *x, int32_t *labels);

extern const cadre_dataset_ops cadre_masked_text;

#endif // CADRE_DATA_MASKED_H
