// SPDX-License-Identifier: Apache-2.0
//
// The formula for inputs that tools/make_nn_references.py computes as well.

#ifndef CADRE_TESTS_NN_FORMULA_H
#define CADRE_TESTS_NN_FORMULA_H

#include <stddef.h>
#include <stdint.h>

enum {
    FORMULA_X = 1,
    FORMULA_WEIGHT = 2,
    FORMULA_BIAS = 3,
    FORMULA_DY = 4,
    FORMULA_LABEL = 5,
    FORMULA_PARAM = 16, // and on, a tag for each of a net
};

static inline uint32_t formula_word(uint32_t tag, size_t i)
{
    uint32_t h = (uint32_t)i * 2654435761u ^ tag * 0x9E3779B9u;
    h ^= h >> 16;
    h *= 0x7FEB352Du;
    h ^= h >> 15;
    h *= 0x846CA68Bu;
    return h ^ h >> 16;
}

/** Uniform in [-scale, scale). */
static inline float formula_value(uint32_t tag, size_t i, float scale)
{
    float unit = (float)(formula_word(tag, i) >> 8);
    return ((unit + 0.5f) * 0x1p-23f - 1.0f) * scale;
}

static inline void formula_fill(
    uint32_t tag, size_t count, float scale, float *values)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = formula_value(tag, i, scale);
    }
}

static inline void formula_labels(size_t count, int n_classes, int32_t *labels)
{
    for (size_t i = 0; i < count; i++) {
        labels[i] =
            (int32_t)(formula_word(FORMULA_LABEL, i) % (uint32_t)n_classes);
    }
}

#endif // CADRE_TESTS_NN_FORMULA_H
