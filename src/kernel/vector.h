// SPDX-License-Identifier: Apache-2.0
//
// How a kernel gets wide registers: it is a plain loop, which the compiler
// vectorises once for every machine, once for AVX2 and once for AVX-512.  Which
// of these variants runs is found out once, from the processor.
//
//     CADRE_VECTOR_BODY void scale_body(float *x, float by, size_t count)
//     {
//         ...                               // the loop
//     }
//     CADRE_VECTOR(scale, (float *x, float by, size_t count), (x, by, count));
//
//     scale[cadre_isa_in_use()](x, 2.0f, n);
//
// All variants do the same IEEE operations in the same order (contraction is
// off), so they give the same bits.  Tests make each of them run.
//
// Threads: any; but cadre_isa_use() only while no kernel runs.

#ifndef CADRE_KERNEL_VECTOR_H
#define CADRE_KERNEL_VECTOR_H

#include <stdbool.h>

/** What kernels are compiled for; each contains the one before. */
typedef enum cadre_isa {
    CADRE_ISA_PLAIN, // what the compiler may assume without being told
    CADRE_ISA_AVX2,
    CADRE_ISA_AVX512, // F, BW, DQ and VL
} cadre_isa;

enum { CADRE_N_ISAS = 3 };

/** "plain", "avx2", "avx512". */
const char *cadre_isa_name(cadre_isa isa);

/** The one that kernels use: the widest that this processor has. */
cadre_isa cadre_isa_in_use(void);

/**
 * Makes kernels use another one, for tests that compare them.  False, and
 * nothing is changed, if this processor does not have it.
 */
bool cadre_isa_use(cadre_isa isa);

#define CADRE_VECTOR_BODY static inline __attribute__((always_inline))

#if defined(__x86_64__)
#define CADRE_TARGET_AVX2 __attribute__((target("avx2")))
#define CADRE_TARGET_AVX512 \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define CADRE_TARGET_AVX2
#define CADRE_TARGET_AVX512
#endif

/**
 * Defines the variants of name##_body, and name as the array of them, by
 * cadre_isa.  params and args are in brackets.
 */
#define CADRE_VECTOR(name, params, args)                 \
    static void name##_plain params                      \
    {                                                    \
        name##_body args;                                \
    }                                                    \
    CADRE_TARGET_AVX2 static void name##_avx2 params     \
    {                                                    \
        name##_body args;                                \
    }                                                    \
    CADRE_TARGET_AVX512 static void name##_avx512 params \
    {                                                    \
        name##_body args;                                \
    }                                                    \
    static void(*const name[CADRE_N_ISAS])               \
        params /* NOLINT(bugprone-macro-parentheses) */  \
        = {name##_plain, name##_avx2, name##_avx512}

#endif // CADRE_KERNEL_VECTOR_H
