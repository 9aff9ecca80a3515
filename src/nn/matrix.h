// SPDX-License-Identifier: Apache-2.0
//
// Matrices as layers see them: a row per sample, rows a stride apart.
//
// Memory:  views; they own nothing.
// Threads: any.

#ifndef CADRE_NN_MATRIX_H
#define CADRE_NN_MATRIX_H

#include <stdint.h>
#include <string.h>

typedef struct cadre_matrix {
    float *data;
    int64_t rows;
    int64_t columns;
    int64_t stride; // elements from row to row, at least columns
} cadre_matrix;

/** The same, to be read only. */
typedef struct cadre_matrix_view {
    const float *data;
    int64_t rows;
    int64_t columns;
    int64_t stride;
} cadre_matrix_view;

static inline cadre_matrix_view cadre_matrix_read(cadre_matrix m)
{
    return (cadre_matrix_view){m.data, m.rows, m.columns, m.stride};
}

static inline float *cadre_matrix_row(cadre_matrix m, int64_t row)
{
    return m.data + row * m.stride;
}

static inline const float *cadre_matrix_view_row(
    cadre_matrix_view m, int64_t row)
{
    return m.data + row * m.stride;
}

/** Copies the rows; nothing if the two share their memory. */
static inline void cadre_matrix_copy(cadre_matrix_view from, cadre_matrix to)
{
    for (int64_t n = 0; n < to.rows && from.data != to.data; n++) {
        memcpy(cadre_matrix_row(to, n), cadre_matrix_view_row(from, n),
            (size_t)to.columns * sizeof(*to.data));
    }
}

/**
 * The stride to choose for rows of that many columns: whole cache lines, and
 * never a multiple of 1 KiB, where a column's elements would all fall on the
 * same few sets of the cache.
 */
static inline int64_t cadre_matrix_stride(int64_t columns)
{
    enum { LINE = 16, UNLUCKY = 256 }; // floats
    int64_t stride = (columns + LINE - 1) / LINE * LINE;
    return stride % UNLUCKY == 0 ? stride + LINE : stride;
}

#endif // CADRE_NN_MATRIX_H
