// SPDX-License-Identifier: Apache-2.0
//
// The proof of membership: what two ends of a new connection say to each other
// before anything else, as docs/wire-protocol.md has it byte by byte.
//
// Who connects says hello; who listens replies, and proves first; who connects
// proves in turn.  Each proof covers all that was said, with a label for its
// direction and random numbers of both sides, so none can be used again, turned
// around, or meant for another.  All three have a fixed size.
//
// Threads: any.

#ifndef CADRE_RENDEZVOUS_PROOF_H
#define CADRE_RENDEZVOUS_PROOF_H

#include "base/clock.h"
#include "base/secret.h"
#include "rendezvous/place.h"

/** How the ranks of a job know one another; all of them must say the same. */
typedef enum cadre_proof {
    CADRE_PROOF_USER = 1,   // no secret: one user's processes on one host
    CADRE_PROOF_SECRET = 2, // whoever knows the job's secret
    CADRE_PROOF_NONE = 3,   // anybody
} cadre_proof;

/** What a rank proves with. */
typedef struct cadre_credentials {
    cadre_proof proof;
    cadre_key *key; // without a secret the one that everybody has
} cadre_credentials;

/**
 * Reads the secret that the place names, if it names one.
 *
 * Errors: CADRE_ERR_INVALID_ARG  the text names the variable
 *         CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_credentials_load(
    const cadre_place *place, cadre_deadline deadline, cadre_credentials *out);

/** Wipes them.  Allowed twice, and for what is all zero. */
void cadre_credentials_drop(cadre_credentials *credentials);

enum {
    CADRE_JOB_ID_BYTES = 16,
    CADRE_NONCE_BYTES = 32,
    CADRE_HELLO_BYTES = 80,
    CADRE_REPLY_BYTES = 80,
    CADRE_HUB = -1, // as the one who listens
};

/** Which connection this is to be. */
typedef struct cadre_hello {
    cadre_proof proof;
    int from; // the rank that connects
    int to;   // the rank that listens, or CADRE_HUB
    // Of the job; both are zero to the hub, which gives them out.
    uint64_t generation;
    uint8_t job_id[CADRE_JOB_ID_BYTES];
} cadre_hello;

/** True while the first bytes, used of them, may be those of a hello. */
bool cadre_hello_begins(const uint8_t *data, size_t used);

bool cadre_hello_decode(
    const uint8_t hello[CADRE_HELLO_BYTES], cadre_hello *out);

/** Says hello, as the one who connects. */
cadre_status cadre_proof_greet(
    const cadre_hello *hello, uint8_t out[CADRE_HELLO_BYTES]);

/** Replies and proves, as the one who listens. */
cadre_status cadre_proof_reply(const cadre_credentials *credentials,
    const uint8_t hello[CADRE_HELLO_BYTES], uint64_t generation,
    uint8_t reply[CADRE_REPLY_BYTES]);

/** True while the first bytes, used of them, may be those of a reply. */
bool cadre_reply_begins(const uint8_t *data, size_t used);

/** The reply is proved; *generation is the job's. */
bool cadre_proof_check_reply(const cadre_credentials *credentials,
    const uint8_t hello[CADRE_HELLO_BYTES],
    const uint8_t reply[CADRE_REPLY_BYTES], uint64_t *generation);

/** Proves, as the one who connects. */
cadre_status cadre_proof_finish(const cadre_credentials *credentials,
    const uint8_t hello[CADRE_HELLO_BYTES],
    const uint8_t reply[CADRE_REPLY_BYTES], uint8_t mac[CADRE_MAC_BYTES]);

/** The one who connects has proved. */
bool cadre_proof_check_finish(const cadre_credentials *credentials,
    const uint8_t hello[CADRE_HELLO_BYTES],
    const uint8_t reply[CADRE_REPLY_BYTES], const uint8_t mac[CADRE_MAC_BYTES]);

/**
 * Whether the socket's peer is this user's process on this host; of TCP always
 * true where that is not what proves.  To be asked once the peer has spoken.
 */
bool cadre_proof_check_peer(const cadre_credentials *credentials, int socket);

#endif // CADRE_RENDEZVOUS_PROOF_H
