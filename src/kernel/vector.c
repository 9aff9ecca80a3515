// SPDX-License-Identifier: Apache-2.0

#include "kernel/vector.h"

#include <stdatomic.h>

static bool processor_has(cadre_isa isa)
{
#if defined(__x86_64__)
    switch (isa) {
    case CADRE_ISA_PLAIN:
        return true;
    case CADRE_ISA_AVX2:
        return __builtin_cpu_supports("avx2");
    case CADRE_ISA_AVX512:
        return __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    }
    return false;
#else
    return isa == CADRE_ISA_PLAIN;
#endif
}

static cadre_isa widest(void)
{
    cadre_isa isa = CADRE_ISA_AVX512;
    while (!processor_has(isa)) {
        isa--;
    }
    return isa;
}

// An instruction set, or -1 while nobody has asked.  Whoever asks first finds
// what all others would.
static atomic_int in_use = -1;

const char *cadre_isa_name(cadre_isa isa)
{
    static const char *const names[CADRE_N_ISAS] = {"plain", "avx2", "avx512"};
    return names[isa];
}

cadre_isa cadre_isa_in_use(void)
{
    int isa = atomic_load_explicit(&in_use, memory_order_relaxed);
    if (isa < 0) {
        isa = (int)widest();
        atomic_store_explicit(&in_use, isa, memory_order_relaxed);
    }
    return (cadre_isa)isa;
}

bool cadre_isa_use(cadre_isa isa)
{
    if (!processor_has(isa)) {
        return false;
    }
    atomic_store_explicit(&in_use, (int)isa, memory_order_relaxed);
    return true;
}
