// SPDX-License-Identifier: Apache-2.0
//
// One end of a connection that carries messages: it reads whole ones and keeps
// what the socket would not take yet.
//
// Memory:  what arrives is kept in a buffer of fixed size, given at the start;
//          a longer message is garbage.
// Threads: one at a time.

#ifndef CADRE_RENDEZVOUS_MAILBOX_H
#define CADRE_RENDEZVOUS_MAILBOX_H

#include "rendezvous/message.h"

enum { CADRE_OUTBOX_BYTES = 2 * CADRE_SMALL_MESSAGE_BYTES };

typedef struct cadre_mailbox {
    int socket; // -1: closed

    uint8_t *in;
    size_t in_capacity;
    size_t in_used;
    size_t in_taken; // of the message that was last handed out
    int passed;      // a descriptor that came and was not taken yet; or -1

    const uint8_t *lent; // goes out before the rest
    size_t lent_bytes;
    uint8_t out[CADRE_OUTBOX_BYTES];
    size_t out_used;
} cadre_mailbox;

/** Takes the socket.  in is borrowed until close. */
void cadre_mailbox_open(
    cadre_mailbox *box, int socket, uint8_t *in, size_t in_capacity);

/** Allowed when it is closed already. */
void cadre_mailbox_close(cadre_mailbox *box);

typedef enum cadre_mail {
    CADRE_MAIL_NONE,    // nothing complete is there
    CADRE_MAIL_MESSAGE, // *out, valid until the next call
    CADRE_MAIL_ENDED,   // the peer is gone
    CADRE_MAIL_GARBAGE, // this is no peer of ours
} cadre_mail;

/** The next message.  Never sleeps. */
cadre_mail cadre_mailbox_receive(cadre_mailbox *box, cadre_message *out);

/** The descriptor that came with the message; the caller's now.  Or -1. */
int cadre_mailbox_take_passed(cadre_mailbox *box);

/** A writer for one message; give it to cadre_mailbox_post(). */
cadre_writer cadre_mailbox_writer(cadre_mailbox *box);

/** Posts what was written, if there was room for all of it, and flushes. */
bool cadre_mailbox_post(cadre_mailbox *box, const cadre_writer *w);

/** Posts bytes that stay where they are until they are sent; box is idle. */
void cadre_mailbox_lend(cadre_mailbox *box, const uint8_t *data, size_t nbytes);

/** Sends what the socket takes.  Errors show when receiving. */
void cadre_mailbox_flush(cadre_mailbox *box);

/** Something waits to be sent. */
bool cadre_mailbox_has_unsent(const cadre_mailbox *box);

#endif // CADRE_RENDEZVOUS_MAILBOX_H
