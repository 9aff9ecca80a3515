// SPDX-License-Identifier: Apache-2.0

#define _DEFAULT_SOURCE // getentropy

#include "base/random.h"

#include "base/fail.h"
#include <errno.h>
#include <unistd.h>

// The constants of the paper, section 4.3.
#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define WEYL_0       0x9E3779B9u
#define WEYL_1       0xBB67AE85u
enum { ROUNDS = 10 };

void cadre_random_words(uint64_t seed, cadre_stream stream, uint32_t a,
    uint64_t b, uint32_t words[4])
{
    uint32_t key0 = (uint32_t)seed;
    uint32_t key1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)b;
    uint32_t c1 = (uint32_t)(b >> 32);
    uint32_t c2 = a;
    uint32_t c3 = (uint32_t)stream;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p0 = (uint64_t)MULTIPLIER_0 * c0;
        uint64_t p1 = (uint64_t)MULTIPLIER_1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ key0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ key1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        key0 += WEYL_0;
        key1 += WEYL_1;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

cadre_status cadre_random_secret(void *data, size_t nbytes)
{
    enum { MOST = 256 }; // getentropy()'s limit for one call
    uint8_t *at = data;
    while (nbytes > 0) {
        size_t part = nbytes < MOST ? nbytes : MOST;
        if (getentropy(at, part) != 0) {
            return cadre_fail_errno(
                CADRE_ERR_IO, errno, "the system's random generator failed");
        }
        at += part;
        nbytes -= part;
    }
    return CADRE_OK;
}
