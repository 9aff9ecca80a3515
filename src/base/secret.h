// SPDX-License-Identifier: Apache-2.0
//
// A job's secret, and proofs that somebody knows it: HMAC-SHA256 with a key that
// HKDF (RFC 5869) derives from it.  The secret itself is wiped as soon as there
// is a key.
//
// Memory:  a key lies in a page of its own, which no core dump shows, and is
//          wiped before it is given back.
// Threads: any; a key is only read.

#ifndef CADRE_BASE_SECRET_H
#define CADRE_BASE_SECRET_H

#include "base/clock.h"
#include "cadre/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CADRE_SECRET_LEAST_BYTES = 32,
    CADRE_SECRET_MOST_BYTES = 4096,
    CADRE_MAC_BYTES = 32,
};

typedef struct cadre_key cadre_key;

/**
 * Derives a key from nbytes of a secret; of none, the key that everybody has.
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_key_derive(
    const void *secret, size_t nbytes, cadre_key **out);

/** Wipes it.  NULL is allowed. */
void cadre_key_destroy(cadre_key *key);

/**
 * Derives a key from a descriptor's content: a file, a memfd, or a pipe that
 * the writer closes before the deadline.  The descriptor stays open, and is not
 * handed on to programs that are started from then on.
 *
 * Errors: CADRE_ERR_INVALID_ARG  it cannot be read, or holds no secret
 *         CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_key_read_fd(
    int fd, cadre_deadline deadline, cadre_key **out);

/**
 * Derives a key from a file that only its owner, this user, can read.
 *
 * Errors: CADRE_ERR_INVALID_ARG  names the path, and what is wrong with it
 *         CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_key_read_file(const char *path, cadre_key **out);

/**
 * Makes a secret that others are to inherit: 32 random bytes in memory that
 * cannot be written to any more.
 *
 * Errors: CADRE_ERR_IO
 */
cadre_status cadre_secret_make(int *fd);

/**
 * Proves that who sends mac knows the key, and means these bytes.
 *
 * Errors: CADRE_ERR_NO_MEMORY  mac must not be used
 */
cadre_status cadre_key_mac(const cadre_key *key, const void *data,
    size_t nbytes, uint8_t mac[CADRE_MAC_BYTES]);

/** In a time that does not depend on where the two differ. */
bool cadre_mac_equal(
    const uint8_t a[CADRE_MAC_BYTES], const uint8_t b[CADRE_MAC_BYTES]);

#endif // CADRE_BASE_SECRET_H
