// SPDX-License-Identifier: Apache-2.0
//
// What layers ask of the compute library: products of matrices.  Everything
// that knows which library it is lies in compute_*.c.
//
// A product is computed by the calling thread alone, whatever OpenMP has been
// told, since the bits of some shapes depend on the number of threads
// (docs/numerics.md).  They depend on nothing else but values and shapes.
//
// Threads: any.

#ifndef CADRE_NN_COMPUTE_H
#define CADRE_NN_COMPUTE_H

#include "cadre/status.h"
#include "nn/matrix.h"
#include <stdbool.h>

/** A factor of a product, as it lies in memory or transposed. */
typedef struct cadre_factor {
    cadre_matrix_view matrix;
    bool transposed;
} cadre_factor;

/**
 * c = a b.  What c held before does not matter; it overlaps neither factor.
 *
 * Errors: CADRE_ERR_NO_MEMORY
 *         CADRE_ERR_INTERNAL   the library failed
 */
cadre_status cadre_compute_product(
    cadre_factor a, cadre_factor b, cadre_matrix c);

/** c = c + a b, otherwise as above. */
cadre_status cadre_compute_add_product(
    cadre_factor a, cadre_factor b, cadre_matrix c);

/**
 * Before and after the library computes or makes something: it uses the calling
 * thread alone, and no signal comes in between.  All that calls it does so by
 * itself; around many small products it is done but once.
 */
void cadre_compute_begin(void);
void cadre_compute_end(void);

#endif // CADRE_NN_COMPUTE_H
