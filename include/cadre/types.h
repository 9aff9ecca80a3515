// SPDX-License-Identifier: Apache-2.0
//
// Element types and reduce operations of the collectives.

#ifndef CADRE_TYPES_H
#define CADRE_TYPES_H

#include "cadre/status.h"
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cadre_dtype {
    CADRE_F32 = 0, // IEEE binary32
    CADRE_F64 = 1, // IEEE binary64
    CADRE_I64 = 2, // two's complement; sums wrap
    CADRE_U8 = 3,  // sums wrap
} cadre_dtype;

typedef enum cadre_reduce_op {
    CADRE_SUM = 0,
} cadre_reduce_op;

/** Bytes of one element; 0 for a value that is no cadre_dtype.  Any thread. */
CADRE_API size_t cadre_dtype_bytes(cadre_dtype dtype);

/** "f32", "f64", "i64", "u8"; "?" for anything else.  Any thread. */
CADRE_API const char *cadre_dtype_name(cadre_dtype dtype);

#ifdef __cplusplus
}
#endif

#endif // CADRE_TYPES_H
