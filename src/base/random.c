// SPDX-License-Identifier: Apache-2.0

#define _DEFAULT_SOURCE // getentropy

#include "base/random.h"

#include "base/fail.h"
#include <errno.h>
#include <unistd.h>

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
