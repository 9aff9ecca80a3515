// SPDX-License-Identifier: Apache-2.0
//
// The one who connects, until both sides have proved that they belong to the
// job (proof.h).  It never sleeps.
//
// Threads: one at a time.

#ifndef CADRE_RENDEZVOUS_APPLICANT_H
#define CADRE_RENDEZVOUS_APPLICANT_H

#include "rendezvous/proof.h"

typedef struct cadre_applicant {
    const cadre_credentials *credentials; // borrowed
    int socket;                           // borrowed, connected
    uint8_t hello[CADRE_HELLO_BYTES];
    uint8_t reply[CADRE_REPLY_BYTES];
    size_t heard; // of the reply
    bool admitted;
    uint64_t generation; // that the other side gave; once admitted
} cadre_applicant;

/**
 * Says hello; hello.proof is set here.
 *
 * Errors: as below, and CADRE_ERR_INVALID_ARG, if a secret is missing
 */
cadre_status cadre_applicant_begin(cadre_applicant *a,
    const cadre_credentials *credentials, const cadre_hello *hello, int socket);

/**
 * Takes what there is to read; a->admitted turns true when all is said.  What
 * comes after that is left in the socket.
 *
 * Errors: what is wrong with the other side, as what it is said to do
 *         CADRE_ERR_DESYNC     it does not speak this protocol, or cannot prove
 *         CADRE_ERR_PEER_LOST  it ended the connection
 *         CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_applicant_go_on(cadre_applicant *a);

#endif // CADRE_RENDEZVOUS_APPLICANT_H
