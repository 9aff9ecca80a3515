// SPDX-License-Identifier: Apache-2.0
//
// The messages between ranks and the hub, as docs/wire-protocol.md has them byte
// by byte.
//
// Whatever is read is checked: lengths, ranges, texts.  A decoder that returns
// false has written nothing that may be used.

#ifndef CADRE_RENDEZVOUS_MESSAGE_H
#define CADRE_RENDEZVOUS_MESSAGE_H

#include "base/bytes.h"
#include "rendezvous/hub.h"
#include "rendezvous/proof.h"

typedef enum cadre_message_type {
    CADRE_MESSAGE_JOIN = 1,    // rank to hub, the first
    CADRE_MESSAGE_ALIVE = 2,   // rank to hub; and back, if rank 0 runs the hub
    CADRE_MESSAGE_REPORT = 3,  // rank to hub
    CADRE_MESSAGE_GOODBYE = 4, // both ways: needs the other no more
    CADRE_MESSAGE_WELCOME = 5, // hub to rank: all have joined
    CADRE_MESSAGE_PEER = 6,    // hub to rank, with a connected socket
    CADRE_MESSAGE_VERDICT = 7, // hub to rank
} cadre_message_type;

enum {
    CADRE_MESSAGE_HEADER_BYTES = 12, // magic and version, type, payload bytes
    CADRE_JOIN_BYTES = 12 + 6 * 4 + CADRE_HOST_BYTES + CADRE_MACHINE_BYTES +
                       2 * CADRE_ADDRESS_BYTES,
    // The longest but for a welcome: a verdict.
    CADRE_SMALL_MESSAGE_BYTES = 12 + 2 * 4 + 1023,
    CADRE_WELCOME_HEAD_BYTES = 12 + CADRE_JOB_ID_BYTES + 8 + 3 * 4,
};

/** Between signs of life of who may be silent for timeout_ms. */
enum { CADRE_MOST_PACE_MS = 500 };
int cadre_pace_ms(int timeout_ms);

typedef struct cadre_message {
    cadre_message_type type;
    cadre_reader payload;
} cadre_message;

/**
 * Looks for a message at the front of a buffer.  *nbytes is its whole length:
 * 0 if the header is not complete yet, more than `used` if the payload is not.
 * False if this is no message of ours.
 */
bool cadre_message_peek(
    const uint8_t *data, size_t used, cadre_message *out, size_t *nbytes);

/** A message without payload: ALIVE or GOODBYE. */
void cadre_encode_plain(cadre_writer *w, cadre_message_type type);

void cadre_encode_join(cadre_writer *w, const cadre_hub_join *join);
bool cadre_decode_join(cadre_message *m, cadre_hub_join *out);

/** REPORT and VERDICT, which look alike. */
void cadre_encode_verdict(cadre_writer *w, cadre_message_type type,
    cadre_status status, int rank, const char *text);
bool cadre_decode_verdict(cadre_message *m, cadre_verdict *out);

void cadre_encode_peer(cadre_writer *w, int rank);
bool cadre_decode_peer(cadre_message *m, int *rank);

typedef struct cadre_welcome {
    uint8_t job_id[CADRE_JOB_ID_BYTES];
    uint64_t generation;
    int timeout_ms;  // of this job
    cadre_link link; // that was chosen: tcp or shm
    int n_addresses; // one per rank, or none
} cadre_welcome;

/** The head; n_addresses texts of CADRE_ADDRESS_BYTES follow. */
void cadre_encode_welcome(cadre_writer *w, const cadre_welcome *welcome);
bool cadre_decode_welcome(cadre_message *m, cadre_welcome *out);
void cadre_encode_address(
    cadre_writer *w, const char address[CADRE_ADDRESS_BYTES]);
bool cadre_decode_address(cadre_message *m, char address[CADRE_ADDRESS_BYTES]);

#endif // CADRE_RENDEZVOUS_MESSAGE_H
