// SPDX-License-Identifier: Apache-2.0
//
// Fashion-MNIST (and whatever has its files): 28 x 28 grey images in 10
// classes, in the idx format, gzipped or not.
//
//     images:  magic 0x00000803, count, rows, columns (big-endian, 32 bits
//              each), then the pixels, a byte each
//     labels:  magic 0x00000801, count, then the labels, a byte each
//
// Pixels are read as bytes when a sample is, from where they lie (idx_file.h),
// and normalised with the mean and the deviation of the training set.

#ifndef CADRE_DATA_FASHION_H
#define CADRE_DATA_FASHION_H

#include "data/dataset.h"

extern const cadre_dataset_ops cadre_fashion;

#endif // CADRE_DATA_FASHION_H
