// SPDX-License-Identifier: Apache-2.0
//
// Matrices of bf16 numbers, which are kept and multiplied; all else is computed
// in f32 (nn/matrix.h).
//
// Memory:  views; they own nothing.
// Threads: any.

#ifndef CADRE_NN_NARROW_MATRIX_H
#define CADRE_NN_NARROW_MATRIX_H

#include "nn/matrix.h"
#include <stddef.h>

typedef struct cadre_narrow_matrix {
    uint16_t *data;
    int64_t rows;
    int64_t columns;
    int64_t stride; // elements from row to row, at least columns
} cadre_narrow_matrix;

/** The same, to be read only. */
typedef struct cadre_narrow_view {
    const uint16_t *data;
    int64_t rows;
    int64_t columns;
    int64_t stride;
} cadre_narrow_view;

static inline cadre_narrow_view cadre_narrow_read(cadre_narrow_matrix m)
{
    return (cadre_narrow_view){m.data, m.rows, m.columns, m.stride};
}

/** Floats of memory, in whole cache lines, that count numbers take. */
static inline size_t cadre_narrow_floats(size_t count)
{
    enum { LINE = 32 }; // numbers
    return (count + LINE - 1) / LINE * (LINE / 2);
}

/** Rounds to nearest, ties to even. */
void cadre_matrix_narrow(cadre_matrix_view from, cadre_narrow_matrix to);

/** The same, and rounds what was copied. */
void cadre_matrix_round(cadre_matrix from, cadre_narrow_matrix to);

void cadre_matrix_widen(cadre_narrow_view from, cadre_matrix to);

#endif // CADRE_NN_NARROW_MATRIX_H
