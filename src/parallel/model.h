// SPDX-License-Identifier: Apache-2.0
//
// The inside of a model, for the engine.

#ifndef CADRE_PARALLEL_MODEL_H
#define CADRE_PARALLEL_MODEL_H

#include "cadre/model.h"
#include "state/layout.h"
#include "state/plane.h"

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
 * Writes a plane over the layout to a safetensors file, without the segments
 * that no optimizer updates; or, with plane NULL, the values of all; as
 * cadre_model_save().
 */
cadre_status cadre_model_write_plane(
    const cadre_model *model, float *plane, const char *path);

/** Reads what cadre_model_write_plane() wrote, as cadre_model_load(). */
cadre_status cadre_model_read_plane(
    const cadre_model *model, float *plane, const char *path);

/** The sum of a segment's piece hashes. */
uint64_t cadre_model_segment_hash(const cadre_model *model, int segment);

#endif // CADRE_PARALLEL_MODEL_H
