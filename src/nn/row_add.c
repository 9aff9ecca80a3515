// SPDX-License-Identifier: Apache-2.0

#include "nn/row_add.h"

#include "kernel/bits.h"
#include "kernel/vector.h"

CADRE_VECTOR_BODY void add_body(
    float *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}
CADRE_VECTOR(add, (float *restrict to, const float *restrict from, int64_t n),
    (to, from, n));

void cadre_row_add(float *restrict to, const float *restrict from, int64_t n)
{
    add[cadre_isa_in_use()](to, from, n);
}

CADRE_VECTOR_BODY void add_bf16_body(
    float *restrict to, const uint16_t *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] += cadre_f32_of_bf16(from[i]);
    }
}
CADRE_VECTOR(add_bf16,
    (float *restrict to, const uint16_t *restrict from, int64_t n),
    (to, from, n));

void cadre_row_add_bf16(
    float *restrict to, const uint16_t *restrict from, int64_t n)
{
    add_bf16[cadre_isa_in_use()](to, from, n);
}
