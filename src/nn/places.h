// SPDX-License-Identifier: Apache-2.0
//
// Where a pass keeps what it computes: offsets into one block, planned once for
// each number of samples.  What is no longer needed makes room for what comes
// later (nn/lifetimes.h).
//
// In a net of bf16 an activation that backward reads is rounded to bf16 as soon
// as it is complete, so that forward goes on with what backward will read.  It is
// kept in 16 bits, and widened when backward comes there; products take it as it
// is.
//
// Threads: any; a plan is immutable.

#ifndef CADRE_NN_PLACES_H
#define CADRE_NN_PLACES_H

#include "nn/plan.h"

/** Offsets in floats, of what the pass needs; else 0. */
typedef struct cadre_layer_places {
    size_t output[3];       // forward, where it is computed again, backward
    size_t narrow[2];       // the output in bf16, forward and backward
    size_t gradient;        // of the output
    size_t narrow_gradient; // the same in bf16
    size_t past; // of an "add": the gradient that it leaves for later; of a
                 // "residual": that of the way that backward went first
    size_t scratch[2]; // forward, backward
    size_t addend;     // a gradient of a parameter, before it is added
    // Layers whose outputs are computed again before this one's backward; what
    // the first of them reads is widened before, and this layer's output and
    // input after that.
    int again_first;
    int again_count;
    bool widens_before;
    bool widens_output;
    bool widens_input;
    bool rounds[2]; // its output, which is narrowed, is then read in f32 as
                    // well, forward or in backward
} cadre_layer_places;

typedef struct cadre_places {
    size_t count;   // floats that the block needs
    size_t losses;  // of each label, if it trains
    size_t samples; // in bf16
    cadre_layer_places layers[];
} cadre_places;

/**
 * Plans passes of n_samples, for which layers want so many floats of scratch:
 * forward and backward if they train, else forward alone.  Give *out to
 * cadre_free().
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_places_create(const cadre_net *net, int64_t n_samples,
    const size_t *scratch, bool training, cadre_places **out);

#endif // CADRE_NN_PLACES_H
