// SPDX-License-Identifier: Apache-2.0
//
// Model files in the safetensors format: eight bytes of header length, a JSON
// header with each tensor's type, shape and byte range and a map of strings as
// metadata, then the tensors without holes.  All tensors here are F32.
//
// Nothing in a file is trusted: lengths are checked against the file before
// anything is allocated or read.
//
// Threads: any, for different files.

#ifndef CADRE_STATE_SAFETENSORS_H
#define CADRE_STATE_SAFETENSORS_H

#include "cadre/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct cadre_tensor {
    const char *name;
    const int64_t *shape;
    int n_dims;
    size_t count;
    float *values; // only read by write
} cadre_tensor;

/**
 * Writes n tensors, in this order, and one metadata entry.  The file is written
 * aside and renamed.
 *
 * Errors: CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_safetensors_write(const char *path,
    const cadre_tensor *tensors, int n, const char *key, const char *value);

/**
 * Reads n tensors by name into their values; each must be there with this shape.
 *
 * Errors: CADRE_ERR_NOT_FOUND  there is no such file
 *         CADRE_ERR_CORRUPT    damaged, or a tensor is missing or different;
 *                              values may have been written
 *         CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_safetensors_read(
    const char *path, const cadre_tensor *tensors, int n);

#endif // CADRE_STATE_SAFETENSORS_H
