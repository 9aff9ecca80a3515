// SPDX-License-Identifier: Apache-2.0
//
// Pictures in another size, by a triangle as wide as a pixel of the smaller one
// (bilinear, antialiased): what Pillow's BILINEAR does, and with the same bits.
// Weights are whole numbers of 2^-22; a picture is scaled from left to right,
// rounded to bytes, then from top to bottom.
//
// Memory:  a resampler keeps what it needs from picture to picture.
// Threads: any, for different resamplers.

#ifndef CADRE_DATA_RESAMPLE_H
#define CADRE_DATA_RESAMPLE_H

#include "data/picture.h"
#include <stdbool.h>

/** A part of a picture, in pixels. */
typedef struct cadre_area {
    int x;
    int y;
    int width;
    int height;
} cadre_area;

/**
 * What is wanted: area, scaled to width x height; of that the square of side
 * pixels at (x, y).
 */
typedef struct cadre_view {
    cadre_area area;
    int width;
    int height;
    int x;
    int y;
    int side;
    bool mirrored; // left and right change places at the end
} cadre_view;

typedef struct cadre_resampler {
    void *memory;
    size_t room; // bytes
} cadre_resampler;

/**
 * Makes a view of a picture: *pixels is (side, side, 3), and valid until the
 * next call.  The resampler begins as {0} and ends with cadre_resampler_fini().
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_resample(cadre_resampler *resampler,
    const cadre_picture *picture, const cadre_view *view,
    const uint8_t **pixels);
void cadre_resampler_fini(cadre_resampler *resampler);

#endif // CADRE_DATA_RESAMPLE_H
