// SPDX-License-Identifier: Apache-2.0
//
// The loss at a net's end: of each sample, with p = softmax(z) of its scores,
//
//     -(1 - a) log p[label] - a mean(log p)
//
// a being the label smoothing: the part of a label that all classes share.
//
// Threads: any.

#ifndef CADRE_NN_SOFTMAX_CROSS_ENTROPY_H
#define CADRE_NN_SOFTMAX_CROSS_ENTROPY_H

#include "nn/matrix.h"

/**
 * Each sample's loss, from its scores z, its label and the smoothing; and dz, the
 * gradient of the *sum* of the losses.  dz may be z, so that scores of many
 * classes lie in memory once; else it does not overlap z.  A sample with
 * CADRE_NO_LABEL has loss and gradient 0.
 */
void cadre_softmax_cross_entropy(cadre_matrix_view z, const int32_t *labels,
    float smoothing, float *losses, cadre_matrix dz);

/** The class of the highest score of each sample; the first of equal ones. */
void cadre_highest_class(cadre_matrix_view z, int32_t *classes);

#endif // CADRE_NN_SOFTMAX_CROSS_ENTROPY_H
