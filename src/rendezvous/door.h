// SPDX-License-Identifier: Apache-2.0
//
// A listening socket, and those who came through it and have not said who they
// are.  Anybody can connect; nobody gets more than a slot of fixed size, and
// that for three seconds.
//
// Memory:  64 slots, made with the door; a visitor costs no allocation.
// Threads: one at a time.

#ifndef CADRE_RENDEZVOUS_DOOR_H
#define CADRE_RENDEZVOUS_DOOR_H

#include "rendezvous/message.h"

typedef struct cadre_door cadre_door;

/**
 * Opens a door behind a listening socket, which it takes, also on an error.
 *
 * expected is the message that a visitor begins with: JOIN or HELLO.  name is
 * for log lines.
 */
cadre_status cadre_door_open(int listener, cadre_message_type expected,
    const char *name, cadre_door **out);
void cadre_door_close(cadre_door *door); // NULL is allowed

/** Readable when cadre_door_next() has something to do. */
int cadre_door_fd(const cadre_door *door);

/**
 * The next visitor who has said what was expected: his socket, now the
 * caller's, and the message, valid until the next call.  Never sleeps; false if
 * there is nobody.  To be called once in a while also when nobody knocks, so
 * that those who are silent are sent away.
 */
bool cadre_door_next(cadre_door *door, int *socket, cadre_message *out);

/** Closes a socket and says why in the log, which is not to be flooded. */
void cadre_door_turn_away(cadre_door *door, int socket, const char *why);

#endif // CADRE_RENDEZVOUS_DOOR_H
