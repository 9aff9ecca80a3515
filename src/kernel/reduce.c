// SPDX-License-Identifier: Apache-2.0

#include "kernel/reduce.h"

#include "base/check.h"
#include "kernel/vector.h"
#include <stdbool.h>
#include <stdint.h>

// Integers are added as unsigned, where wrapping is defined.
#define SUM_INTO(name, type)                                           \
    CADRE_VECTOR static void name(                                     \
        type *restrict left, const type *restrict right, size_t count) \
    {                                                                  \
        for (size_t i = 0; i < count; i++) {                           \
            left[i] = (type)(left[i] + right[i]);                      \
        }                                                              \
    }

SUM_INTO(sum_f32, float)
SUM_INTO(sum_f64, double)
SUM_INTO(sum_i64, uint64_t)
SUM_INTO(sum_u8, uint8_t)

void cadre_reduce_sum(
    cadre_dtype dtype, void *left, const void *right, size_t count)
{
    switch (dtype) {
    case CADRE_F32:
        sum_f32(left, right, count);
        return;
    case CADRE_F64:
        sum_f64(left, right, count);
        return;
    case CADRE_I64:
        sum_i64(left, right, count);
        return;
    case CADRE_U8:
        sum_u8(left, right, count);
        return;
    }
    CADRE_ASSERT(false && "a type that is no type");
}
