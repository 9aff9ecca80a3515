// SPDX-License-Identifier: Apache-2.0
//
// A TensorBoard file of scalars: records in the framing of TFRecord (length,
// checksum, data, checksum), each a protobuf message `Event` (docs/cli.md names
// what is in it).  Two kinds of message are written, so they are put together
// by hand.
//
// Threads: one at a time.

#ifndef CADRE_TRAIN_TENSORBOARD_H
#define CADRE_TRAIN_TENSORBOARD_H

#include "cadre/status.h"
#include <stdint.h>

typedef struct cadre_tensorboard cadre_tensorboard;

/** Removes the files of runs before from a folder: the page shows all it has. */
void cadre_tensorboard_clear(const char *folder);

/**
 * Begins a file in a folder that exists: events.out.tfevents.TIME.HOST.PID.
 *
 * Errors: CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_tensorboard_open(
    const char *folder, cadre_tensorboard **out);
void cadre_tensorboard_close(cadre_tensorboard *file); // NULL is allowed

typedef struct cadre_scalar {
    const char *tag; // at most 63 bytes
    double value;    // rounded to f32
} cadre_scalar;

/**
 * Writes a record with up to 16 scalars of a step, whole when it returns.
 *
 * Errors: CADRE_ERR_IO
 */
cadre_status cadre_tensorboard_write(cadre_tensorboard *file, int64_t step,
    const cadre_scalar *scalars, int n_scalars);

#endif // CADRE_TRAIN_TENSORBOARD_H
