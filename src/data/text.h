// SPDX-License-Identifier: Apache-2.0
//
// Text as bytes: a file, or, without a path, the King James Bible as Debian's
// package bible-kjv prints it.
//
// The first 95 of 100 bytes are for training, the others for the test.  Sample
// i of a split is the context bytes from place i * context on, each with the
// byte that follows it as its label: in an epoch each byte is predicted once,
// but for those at the end that fill no sample.

#ifndef CADRE_DATA_TEXT_H
#define CADRE_DATA_TEXT_H

#include "data/dataset.h"

extern const cadre_dataset_ops cadre_text;

#endif // CADRE_DATA_TEXT_H
