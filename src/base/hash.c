// SPDX-License-Identifier: Apache-2.0

#include "base/hash.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wundef"
#define XXH_INLINE_ALL // the header alone: nothing to link
#include <xxhash.h>
#pragma GCC diagnostic pop

uint64_t cadre_hash(const void *data, size_t nbytes, uint64_t seed)
{
    return XXH64(data == NULL ? "" : data, nbytes, seed);
}
