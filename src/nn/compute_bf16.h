// SPDX-License-Identifier: Apache-2.0
//
// Products of bf16 factors, as the compute library does them; what they come to
// is f32, added up in f32.
//
// Where the library cannot multiply bf16 on this processor it gets the factors
// as f32, which is the same but for how the sum is rounded.
//
// A cadre_bf16_product is made for one shape, so that everything the library
// wants to decide and to generate is done before the first step.  It is
// computed by the calling thread alone; its bits are a function of values and
// shapes, for one instruction set.
//
// Threads: one at a time per object; different ones at the same time.

#ifndef CADRE_NN_COMPUTE_BF16_H
#define CADRE_NN_COMPUTE_BF16_H

#include "cadre/status.h"
#include "nn/narrow_matrix.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct cadre_bf16_product cadre_bf16_product;

/** A factor, as it lies in memory or transposed. */
typedef struct cadre_bf16_factor {
    cadre_narrow_view matrix;
    bool transposed;
} cadre_bf16_factor;

/**
 * For products c = a b of such matrices, or c = c + a b if it adds; their data
 * does not matter yet.
 *
 * Errors: CADRE_ERR_NO_MEMORY
 *         CADRE_ERR_INTERNAL   the library failed
 */
cadre_status cadre_bf16_product_create(cadre_bf16_factor a, cadre_bf16_factor b,
    cadre_matrix c, bool adds, cadre_bf16_product **out);
void cadre_bf16_product_destroy(cadre_bf16_product *product); // NULL is allowed

/** Floats that the call below wants as scratch. */
size_t cadre_bf16_product_scratch(const cadre_bf16_product *product);

/**
 * c = a b, whatever c held before, or c = c + a b.  It overlaps neither factor.
 */
cadre_status cadre_bf16_product_compute(cadre_bf16_product *product,
    const uint16_t *a, const uint16_t *b, float *c, float *scratch);

/**
 * The same for products c = a b + bias, each element of which is rounded to bf16;
 * bias is a row, and NULL below if there is none.
 */
cadre_status cadre_bf16_product_create_rounded(cadre_bf16_factor a,
    cadre_bf16_factor b, bool has_bias, cadre_narrow_matrix c,
    cadre_bf16_product **out);
cadre_status cadre_bf16_product_compute_rounded(cadre_bf16_product *product,
    const uint16_t *a, const uint16_t *b, const float *bias, uint16_t *c,
    float *scratch);

#endif // CADRE_NN_COMPUTE_BF16_H
