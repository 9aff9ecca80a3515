// SPDX-License-Identifier: Apache-2.0
//
// What part of a picture a sample shows: pure functions, so that it depends on
// no rank and no thread.
//
// For training: a random part of 8 to 100 % of the picture's pixels, 3:4 to 4:3
// wide, scaled to the sample's square, and mirrored every other time (Szegedy et
// al., "Going Deeper with Convolutions", CVPR 2015, and what torchvision calls
// RandomResizedCrop).  It is drawn with (seed, epoch, sample).  For evaluation:
// the shorter side is scaled to 8/7 of the sample's and the middle is cut out.
//
// Threads: any.

#ifndef CADRE_DATA_AUGMENT_H
#define CADRE_DATA_AUGMENT_H

#include "data/resample.h"
#include <stdint.h>

cadre_view cadre_augment_random(int width, int height, int side, uint64_t seed,
    int64_t epoch, int64_t sample);

cadre_view cadre_augment_centre(int width, int height, int side);

#endif // CADRE_DATA_AUGMENT_H
