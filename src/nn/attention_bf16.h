// SPDX-License-Identifier: Apache-2.0
//
// Attention (nn/attention.c) whose products have factors of bf16: q, k, v and dy
// as they are kept, and p and ds, which are rounded when their rows are complete.
// Scores, their softmax and all sums are f32.
//
// The library multiplies matrices without gaps between their rows by up to a
// third faster here, so a head's rows are copied together first.
//
// Threads: one at a time per object; different ones at the same time.

#ifndef CADRE_NN_ATTENTION_BF16_H
#define CADRE_NN_ATTENTION_BF16_H

#include "nn/attention.h"

typedef struct cadre_attention_bf16 cadre_attention_bf16;

/** Errors: CADRE_ERR_NO_MEMORY, CADRE_ERR_INTERNAL */
cadre_status cadre_attention_bf16_create(
    const cadre_layer_plan *plan, cadre_attention_bf16 **out);
void cadre_attention_bf16_destroy(cadre_attention_bf16 *a); // NULL is allowed

/** Floats that the calls below want as scratch. */
size_t cadre_attention_bf16_scratch(const cadre_attention_bf16 *a);

/** y, or call->narrow_y; rows, (samples, heads, T), gets what backward makes p of. */
cadre_status cadre_attention_bf16_forward(const cadre_attention_bf16 *a,
    const cadre_layer_call *call, cadre_softmax_row *rows, cadre_matrix y);

/** dx, or call->narrow_dx, of the same rows. */
cadre_status cadre_attention_bf16_input_gradient(const cadre_attention_bf16 *a,
    const cadre_layer_call *call, cadre_softmax_row *rows, cadre_matrix dx);

#endif // CADRE_NN_ATTENTION_BF16_H
