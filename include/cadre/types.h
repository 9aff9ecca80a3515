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

/** Types of elements.  The values are those on the wire, and stay. */
typedef enum cadre_dtype {
    CADRE_F32 = 0, // IEEE binary32
    CADRE_F64 = 1, // IEEE binary64
    CADRE_I64 = 2, // integers are in two's complement
    CADRE_U8 = 3,
    CADRE_I8 = 4,
    CADRE_I32 = 5,
    CADRE_BF16 = 6, // the upper half of a binary32, as uint16_t
    CADRE_F16 = 7,  // IEEE binary16, its bits as uint16_t
} cadre_dtype;

/**
 * What reductions do, along one fixed tree over the ranks (docs/numerics.md).
 * The values are those on the wire, and stay.
 *
 * Floats are rounded once per operation.  Elements of 16 bits are widened to
 * f32, reduced as f32, and rounded once at the very end, to nearest even.
 * Integers wrap.
 */
typedef enum cadre_reduce_op {
    CADRE_SUM = 0,
    CADRE_MEAN = 1,    // the sum, divided once by the number of ranks; of
                       // floats only
    CADRE_MIN = 2,     // NaN if one is; -0 is below +0
    CADRE_MAX = 3,     // likewise
    CADRE_PRODUCT = 4, // along the same tree
} cadre_reduce_op;

/** Bytes of one element; 0 for a value that is no cadre_dtype.  Any thread. */
CADRE_API size_t cadre_dtype_bytes(cadre_dtype dtype);

/** "f32", "bf16", "i64" and so on; "?" for anything else.  Any thread. */
CADRE_API const char *cadre_dtype_name(cadre_dtype dtype);

/** "sum", "mean", "min", "max", "product"; else "?".  Any thread. */
CADRE_API const char *cadre_reduce_op_name(cadre_reduce_op op);

#ifdef __cplusplus
}
#endif

#endif // CADRE_TYPES_H
