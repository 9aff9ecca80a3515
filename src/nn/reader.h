// SPDX-License-Identifier: Apache-2.0
//
// A reader: a text goes through a net forward, some tokens at a time, and what
// attention knows of those before is kept.  So a further token costs what a token
// costs, not the whole text again.
//
// Scores are those of cadre_net_scores() but for rounding: a product of few rows
// may add up in another order (docs/numerics.md section 8).
//
// Memory:  all of it at creation: the channels of q, k and v of each token of a
//          whole text, and little else.
// Threads: one at a time.

#ifndef CADRE_NN_READER_H
#define CADRE_NN_READER_H

#include "nn/net.h"

typedef struct cadre_net_reader cadre_net_reader;

/**
 * Makes a reader at the beginning of a text; net is borrowed for its life.
 *
 * Errors: CADRE_ERR_INVALID_ARG  the net reads no text, or its tokens see those
 *                                behind them, or it uses bf16
 *         CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_net_reader_create(
    const cadre_net *net, cadre_net_reader **out);
void cadre_net_reader_destroy(cadre_net_reader *reader); // NULL is allowed

/** Goes back to the beginning of a text. */
void cadre_net_reader_restart(cadre_net_reader *reader);

/** Tokens of the text that were read. */
int64_t cadre_net_reader_place(const cadre_net_reader *reader);

/**
 * Reads the next n_tokens of the text, at least one; *scores points at those of
 * all classes behind the last of them, until the next call.
 *
 * Errors: CADRE_ERR_INVALID_ARG  the text would be longer than those of the net
 *         CADRE_ERR_INTERNAL     the compute library failed
 */
cadre_status cadre_net_reader_read(cadre_net_reader *reader,
    const float *const *params, const float *tokens, int64_t n_tokens,
    const float **scores);

#endif // CADRE_NN_READER_H
