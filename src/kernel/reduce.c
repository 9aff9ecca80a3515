// SPDX-License-Identifier: Apache-2.0

#include "kernel/reduce.h"

#include "base/check.h"
#include "kernel/vector.h"
#include <stdbool.h>
#include <stdint.h>

CADRE_VECTOR_BODY void sum_f32_body(
    float *restrict left, const float *restrict right, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        left[i] = left[i] + right[i];
    }
}
CADRE_VECTOR(sum_f32,
    (float *restrict left, const float *restrict right, size_t count),
    (left, right, count));

CADRE_VECTOR_BODY void sum_f64_body(
    double *restrict left, const double *restrict right, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        left[i] = left[i] + right[i];
    }
}
CADRE_VECTOR(sum_f64,
    (double *restrict left, const double *restrict right, size_t count),
    (left, right, count));

// As unsigned, where wrapping is defined.
CADRE_VECTOR_BODY void sum_i64_body(
    uint64_t *restrict left, const uint64_t *restrict right, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        left[i] = left[i] + right[i];
    }
}
CADRE_VECTOR(sum_i64,
    (uint64_t *restrict left, const uint64_t *restrict right, size_t count),
    (left, right, count));

CADRE_VECTOR_BODY void sum_u8_body(
    uint8_t *restrict left, const uint8_t *restrict right, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        left[i] = (uint8_t)(left[i] + right[i]);
    }
}
CADRE_VECTOR(sum_u8,
    (uint8_t *restrict left, const uint8_t *restrict right, size_t count),
    (left, right, count));

void cadre_reduce_sum(
    cadre_dtype dtype, void *left, const void *right, size_t count)
{
    cadre_isa isa = cadre_isa_in_use();
    switch (dtype) {
    case CADRE_F32:
        sum_f32[isa](left, right, count);
        return;
    case CADRE_F64:
        sum_f64[isa](left, right, count);
        return;
    case CADRE_I64:
        sum_i64[isa](left, right, count);
        return;
    case CADRE_U8:
        sum_u8[isa](left, right, count);
        return;
    }
    CADRE_ASSERT(false && "a type that is no type");
}
