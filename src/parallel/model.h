// SPDX-License-Identifier: Apache-2.0
//
// The inside of a model, for the engine.

#ifndef CADRE_PARALLEL_MODEL_H
#define CADRE_PARALLEL_MODEL_H

#include "cadre/model.h"
#include "state/layout.h"
#include "state/plane.h"
#include "state/safetensors.h"

struct cadre_model {
    cadre_group *group; // borrowed
    cadre_layout layout;
    float **own_values; // per segment: the caller's memory, or NULL
    int own_capacity;
    bool sealed;
    bool has_engine;
    cadre_plane params;
    const float *grads; // the summed gradients' plane while they may be seen
};

/** The values of a segment: in the plane, or the caller's memory. */
float *cadre_model_values(const cadre_model *model, int segment);

/**
 * The trainable segments of a plane over the layout as tensors of a file, or,
 * with plane NULL, the values of all: *n of them, for cadre_free().  NULL
 * without memory.
 */
cadre_tensor *cadre_model_tensors(
    const cadre_model *model, float *plane, int *n);

/** The sum of a segment's piece hashes. */
uint64_t cadre_model_segment_hash(const cadre_model *model, int segment);

#endif // CADRE_PARALLEL_MODEL_H
