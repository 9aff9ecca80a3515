// SPDX-License-Identifier: Apache-2.0
//
// Tests of kernels that run once for each instruction set, and are skipped
// where the processor does not have it.
//
//     static void adds(void **state)
//     {
//         use_isa(state);
//         ...
//     }
//     ...
//     const struct CMUnitTest tests[] = { ON_EVERY_ISA(adds) };

#ifndef CADRE_TESTS_SUPPORT_ISA_H
#define CADRE_TESTS_SUPPORT_ISA_H

#include "support/check.h"

#include "kernel/vector.h"

static cadre_isa isas_of_tests[CADRE_N_ISAS] = {
    CADRE_ISA_PLAIN, CADRE_ISA_AVX2, CADRE_ISA_AVX512};

static inline void use_isa(void **state)
{
    cadre_isa isa = *(const cadre_isa *)*state;
    if (!cadre_isa_use(isa)) {
        print_message("this processor has no %s\n", cadre_isa_name(isa));
        skip();
    }
}

// clang-format off
#define ON_EVERY_ISA(test)                                       \
    {#test " (plain)", test, NULL, NULL, &isas_of_tests[0]},     \
    {#test " (avx2)", test, NULL, NULL, &isas_of_tests[1]},      \
    {#test " (avx512)", test, NULL, NULL, &isas_of_tests[2]}
// clang-format on

#endif // CADRE_TESTS_SUPPORT_ISA_H
