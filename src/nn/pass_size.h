// SPDX-License-Identifier: Apache-2.0
//
// What passes of one number of samples need, made before the first of them.
//
// Memory:  owns what it points to.
// Threads: one at a time per object; different ones at the same time.

#ifndef CADRE_NN_PASS_SIZE_H
#define CADRE_NN_PASS_SIZE_H

#include "nn/layer.h"
#include "nn/places.h"

typedef struct cadre_pass_size {
    int64_t n_samples;
    cadre_layer_state **states; // of each layer; NULL of those that keep none
    cadre_places *training;     // where all of it lies in the block
    cadre_places *predicting;   // the same, of forward alone
} cadre_pass_size;

/**
 * Fills in one that is all zero.
 *
 * Errors: CADRE_ERR_NO_MEMORY, CADRE_ERR_INTERNAL  nothing is left to release
 */
cadre_status cadre_pass_size_make(
    const cadre_net *net, int64_t n_samples, cadre_pass_size *size);
void cadre_pass_size_release(const cadre_net *net, cadre_pass_size *size);

#endif // CADRE_NN_PASS_SIZE_H
