// SPDX-License-Identifier: Apache-2.0
//
// The loss at a net's end: -log softmax(z)[label] of each sample.
//
// Threads: any.

#ifndef CADRE_NN_SOFTMAX_CROSS_ENTROPY_H
#define CADRE_NN_SOFTMAX_CROSS_ENTROPY_H

#include "nn/matrix.h"

/**
 * Each sample's loss, from its scores z and its label; and dz, the gradient of
 * the *sum* of the losses: softmax(z) with 1 taken from the label's element.
 * dz does not overlap z.
 */
void cadre_softmax_cross_entropy(
    cadre_matrix_view z, const int32_t *labels, float *losses, cadre_matrix dz);

/** The class of the highest score of each sample; the first of equal ones. */
void cadre_highest_class(cadre_matrix_view z, int32_t *classes);

#endif // CADRE_NN_SOFTMAX_CROSS_ENTROPY_H
