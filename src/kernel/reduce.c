// SPDX-License-Identifier: Apache-2.0
//
// One loop per type and operation, made by a macro from the operation on two
// elements; a table says which is which.

#include "kernel/reduce.h"

#include "base/check.h"
#include "kernel/bits.h"
#include "kernel/vector.h"
#include <stdint.h>

// --- the smaller and the larger of two numbers ---
//
// Numbers are compared as integers that have the same order and in which -0 is
// below +0; a NaN comes before all others.  So the result does not depend on
// the order in which many are compared.

CADRE_VECTOR_BODY int32_t order_of_f32(float value)
{
    uint32_t bits = cadre_bits_of_f32(value);
    uint32_t negative = 0 - (bits >> 31); // all ones, or zero
    return (int32_t)(bits ^ (negative >> 1));
}

CADRE_VECTOR_BODY int64_t order_of_f64(double value)
{
    uint64_t bits = cadre_bits_of_f64(value);
    uint64_t negative = 0 - (bits >> 63);
    return (int64_t)(bits ^ (negative >> 1));
}

CADRE_VECTOR_BODY bool is_nan_f32(float value)
{
    return (cadre_bits_of_f32(value) << 1) > 0xff000000;
}

CADRE_VECTOR_BODY bool is_nan_f64(double value)
{
    return (cadre_bits_of_f64(value) << 1) > 0xffe0000000000000;
}

// Choices between numbers that are there already, which need no branches.
#define DEFINE_CHOICE(name, type, float_type, is_before)                   \
    CADRE_VECTOR_BODY float_type name##_##type(float_type a, float_type b) \
    {                                                                      \
        float_type chosen =                                                \
            order_of_##type(a) is_before order_of_##type(b) ? a : b;       \
        chosen = is_nan_##type(b) ? b : chosen;                            \
        return is_nan_##type(a) ? a : chosen;                              \
    }

DEFINE_CHOICE(smaller, f32, float, <)
DEFINE_CHOICE(larger, f32, float, >)
DEFINE_CHOICE(smaller, f64, double, <)
DEFINE_CHOICE(larger, f64, double, >)

// --- loops ---

enum { LINE_BYTES = 64 };

// An element of a result, which may lie at any address.
#define ANYWHERE(type)                          \
    struct __attribute__((packed, may_alias)) { \
        type value;                             \
    }

// All of a line is read before any of it is written, so that the result may go
// to where it comes from.
#define DEFINE_LOOP(name, type, result)                                      \
    CADRE_VECTOR_BODY void name##_body(const type *left, const type *right,  \
        size_t count, void *const *to, int n_to)                             \
    {                                                                        \
        enum { OF_LINE = LINE_BYTES / sizeof(type) };                        \
        type line[OF_LINE];                                                  \
        size_t i = 0;                                                        \
        for (; i + OF_LINE <= count; i += OF_LINE) {                         \
            for (size_t j = 0; j < OF_LINE; j++) {                           \
                type a = left[i + j];                                        \
                type b = right[i + j];                                       \
                line[j] = (type)(result);                                    \
            }                                                                \
            for (int k = 0; k < n_to; k++) {                                 \
                ANYWHERE(type) *out = to[k];                                 \
                for (size_t j = 0; j < OF_LINE; j++) {                       \
                    out[i + j].value = line[j];                              \
                }                                                            \
            }                                                                \
        }                                                                    \
        for (; i < count; i++) {                                             \
            type a = left[i];                                                \
            type b = right[i];                                               \
            line[0] = (type)(result);                                        \
            for (int k = 0; k < n_to; k++) {                                 \
                ANYWHERE(type) *out = to[k];                                 \
                out[i].value = line[0];                                      \
            }                                                                \
        }                                                                    \
    }                                                                        \
    CADRE_VECTOR(name,                                                       \
        (const void *left, const void *right, size_t count, void *const *to, \
            int n_to),                                                       \
        (left, right, count, to, n_to))

DEFINE_LOOP(sum_f32, float, a + b);
DEFINE_LOOP(min_f32, float, smaller_f32(a, b));
DEFINE_LOOP(max_f32, float, larger_f32(a, b));
DEFINE_LOOP(product_f32, float, (a * b));

DEFINE_LOOP(sum_f64, double, a + b);
DEFINE_LOOP(min_f64, double, smaller_f64(a, b));
DEFINE_LOOP(max_f64, double, larger_f64(a, b));
DEFINE_LOOP(product_f64, double, (a * b));

// Sums and products of unsigned numbers wrap, where those of signed ones must
// not; their bits are the same.
DEFINE_LOOP(sum_64, uint64_t, a + b);
DEFINE_LOOP(product_64, uint64_t, (a * b));
DEFINE_LOOP(min_i64, int64_t, a < b ? a : b);
DEFINE_LOOP(max_i64, int64_t, a > b ? a : b);

DEFINE_LOOP(sum_32, uint32_t, a + b);
DEFINE_LOOP(product_32, uint32_t, (a * b));
DEFINE_LOOP(min_i32, int32_t, a < b ? a : b);
DEFINE_LOOP(max_i32, int32_t, a > b ? a : b);

DEFINE_LOOP(sum_8, uint8_t, a + b);
DEFINE_LOOP(product_8, uint8_t, (a * b));
DEFINE_LOOP(min_i8, int8_t, a < b ? a : b);
DEFINE_LOOP(max_i8, int8_t, a > b ? a : b);
DEFINE_LOOP(min_u8, uint8_t, a < b ? a : b);
DEFINE_LOOP(max_u8, uint8_t, a > b ? a : b);

CADRE_VECTOR_BODY void divide_f32_body(float *run, float by, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        run[i] = run[i] / by;
    }
}
CADRE_VECTOR(
    divide_f32, (float *run, float by, size_t count), (run, by, count));

CADRE_VECTOR_BODY void divide_f64_body(double *run, double by, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        run[i] = run[i] / by;
    }
}
CADRE_VECTOR(
    divide_f64, (double *run, double by, size_t count), (run, by, count));

// --- the table ---

typedef void loop(const void *left, const void *right, size_t count,
    void *const *to, int n_to);

enum { N_DTYPES = CADRE_F16 + 1, N_OPS = CADRE_PRODUCT + 1 };

// Each entry is the variants of a loop; NULL is what is not defined.
static loop *const *const loops[N_DTYPES][N_OPS] = {
    // sum, mean, min, max, product
    [CADRE_F32] = {sum_f32, sum_f32, min_f32, max_f32, product_f32},
    [CADRE_F64] = {sum_f64, sum_f64, min_f64, max_f64, product_f64},
    [CADRE_I64] = {sum_64, NULL, min_i64, max_i64, product_64},
    [CADRE_I32] = {sum_32, NULL, min_i32, max_i32, product_32},
    [CADRE_I8] = {sum_8, NULL, min_i8, max_i8, product_8},
    [CADRE_U8] = {sum_8, NULL, min_u8, max_u8, product_8},
};

cadre_dtype cadre_accumulator(cadre_dtype dtype)
{
    return dtype == CADRE_BF16 || dtype == CADRE_F16 ? CADRE_F32 : dtype;
}

bool cadre_reduce_is_defined(cadre_dtype dtype, cadre_reduce_op op)
{
    return (unsigned)dtype < N_DTYPES && (unsigned)op < N_OPS &&
           loops[cadre_accumulator(dtype)][op] != NULL;
}

void cadre_reduce_to(cadre_dtype accumulator, cadre_reduce_op op,
    const void *left, const void *right, size_t count, void *const to[],
    int n_to)
{
    CADRE_ASSERT(cadre_accumulator(accumulator) == accumulator);
    CADRE_ASSERT(cadre_reduce_is_defined(accumulator, op));
    loops[accumulator][op][cadre_isa_in_use()](left, right, count, to, n_to);
}

void cadre_reduce(cadre_dtype accumulator, cadre_reduce_op op, void *left,
    const void *right, size_t count)
{
    cadre_reduce_to(accumulator, op, left, right, count, &left, 1);
}

void cadre_reduce_finish(cadre_dtype accumulator, cadre_reduce_op op, void *run,
    size_t count, int n_ranks)
{
    CADRE_ASSERT(cadre_reduce_is_defined(accumulator, op));
    if (op != CADRE_MEAN) {
        return;
    }
    cadre_isa isa = cadre_isa_in_use();
    if (accumulator == CADRE_F32) {
        divide_f32[isa](run, (float)n_ranks, count);
    } else {
        divide_f64[isa](run, (double)n_ranks, count);
    }
}
