// SPDX-License-Identifier: Apache-2.0
//
// The sum that most layers need somewhere: of a bias, of gradients row by row,
// of what goes past layers.
//
// Threads: any.

#ifndef CADRE_NN_ROW_ADD_H
#define CADRE_NN_ROW_ADD_H

#include <stdint.h>

/** to = to + from, n elements; the two do not overlap. */
void cadre_row_add(float *restrict to, const float *restrict from, int64_t n);
void cadre_row_add_bf16(
    float *restrict to, const uint16_t *restrict from, int64_t n);

#endif // CADRE_NN_ROW_ADD_H
