// SPDX-License-Identifier: Apache-2.0
//
// A folder of JPEG and PNG images by class, as ImageNet has them (image_list.h),
// shown as squares of one size: augmented for training, the middle for the test
// (augment.h), and normalised with the mean and the deviation of ImageNet's
// colours.  Files are read and decoded when a sample is.
//
// A damaged image is refused by name, or skipped: its place is taken by the next
// one of the list that is sound, which depends on the files alone and so is the
// same on every rank.
//
// Memory:  a thread that reads has buffers, which are lent to it and kept.

#ifndef CADRE_DATA_IMAGES_H
#define CADRE_DATA_IMAGES_H

#include "data/dataset.h"

extern const cadre_dataset_ops cadre_images;

#endif // CADRE_DATA_IMAGES_H
