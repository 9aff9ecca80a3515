// SPDX-License-Identifier: Apache-2.0
//
// How a kernel gets wide registers: it is a plain loop, marked CADRE_VECTOR,
// which the compiler vectorises once for every machine and once for AVX2; the
// loader takes the one that fits.  Both do the same IEEE operations in the same
// order (contraction is off), so they give the same bits.
//
// Marked functions are static, and their names are unique in the library: clang
// makes a global symbol of what chooses between the two.

#ifndef CADRE_KERNEL_VECTOR_H
#define CADRE_KERNEL_VECTOR_H

// The resolver runs before a sanitizer is ready, so there is one version then.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(CADRE_SANITIZED)
#define CADRE_VECTOR __attribute__((target_clones("avx2", "default")))
#else
#define CADRE_VECTOR
#endif

#endif // CADRE_KERNEL_VECTOR_H
