// SPDX-License-Identifier: Apache-2.0
//
// XXH64 (Yann Collet's xxHash, 64-bit): for identity and integrity, never for
// secrets.
//
// Threads: any.

#ifndef CADRE_BASE_HASH_H
#define CADRE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t cadre_hash(const void *data, size_t nbytes, uint64_t seed);

#endif // CADRE_BASE_HASH_H
