// SPDX-License-Identifier: Apache-2.0
//
// A listening socket, and those who came through it and have not proved that
// they belong to the job.  Anybody can connect; nobody gets more than a slot of
// fixed size, and that for three seconds.  Who does not even begin like a rank
// is sent away without a word; the log gets a line a minute at most.
//
// Memory:  64 slots, made with the door; a visitor costs no allocation.
// Threads: one at a time.

#ifndef CADRE_RENDEZVOUS_DOOR_H
#define CADRE_RENDEZVOUS_DOOR_H

#include "rendezvous/message.h"
#include "rendezvous/proof.h"

typedef struct cadre_door cadre_door;

/** Who is let in. */
typedef struct cadre_door_rules {
    const cadre_credentials *credentials; // borrowed until the door is closed
    int to; // whose door it is: a rank, or CADRE_HUB
    uint64_t generation;
    uint8_t job_id[CADRE_JOB_ID_BYTES]; // that a rank's visitors must name
} cadre_door_rules;

/**
 * Opens a door behind a listening socket, which it takes, also on an error.
 * name is for log lines.
 */
cadre_status cadre_door_open(int listener, const cadre_door_rules *rules,
    const char *name, cadre_door **out);
void cadre_door_close(cadre_door *door); // NULL is allowed

/** Readable when cadre_door_next() has something to do. */
int cadre_door_fd(const cadre_door *door);

/** One who has proved. */
typedef struct cadre_visitor {
    int socket; // the caller's now
    int from;   // which rank it is
    // The hub's visitors have also said this; valid until the next call.
    cadre_message join;
} cadre_visitor;

/**
 * The next visitor who has proved.  Never sleeps; false if there is nobody.  To
 * be called once in a while also when nobody knocks, so that those who are
 * silent are sent away.
 */
bool cadre_door_next(cadre_door *door, cadre_visitor *out);

/** Closes a socket and says why in the log, at most once a minute. */
void cadre_door_turn_away(cadre_door *door, int socket, const char *why);

#endif // CADRE_RENDEZVOUS_DOOR_H
