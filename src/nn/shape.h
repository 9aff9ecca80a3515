// SPDX-License-Identifier: Apache-2.0
//
// What a sample is between two layers, and how it lies in memory.
//
// A text lies as a row of channels for each of its tokens, one after another.
//
// An image lies as (channels / block, height, width, block): with a block of 1
// that is plain (C, H, W); with the compute library's block, as many channels
// side by side as a vector register has room for.  What the last block has too
// much of is zero.
//
// Threads: any.

#ifndef CADRE_NN_SHAPE_H
#define CADRE_NN_SHAPE_H

#include "cadre/net.h"
#include "nn/matrix.h"

/** Rows of a matrix that a sample takes. */
static inline int64_t cadre_shape_rows(cadre_shape s)
{
    return s.tokens > 0 ? s.tokens : 1;
}

/** Elements of a row. */
static inline int64_t cadre_shape_elements(cadre_shape s)
{
    return s.channels * s.height * s.width;
}

/** Blocks of channels, the last of them perhaps not full. */
static inline int64_t cadre_shape_blocks(cadre_shape s)
{
    return (s.channels + s.block - 1) / s.block;
}

/** Floats that a row takes. */
static inline int64_t cadre_shape_columns(cadre_shape s)
{
    return cadre_shape_blocks(s) * s.height * s.width * s.block;
}

/** Floats from row to row.  Images lie close together. */
static inline int64_t cadre_shape_stride(cadre_shape s)
{
    bool row = s.height * s.width * s.block == 1;
    return row ? cadre_matrix_stride(s.channels) : cadre_shape_columns(s);
}

#endif // CADRE_NN_SHAPE_H
