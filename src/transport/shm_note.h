// SPDX-License-Identifier: Apache-2.0
//
// What ranks that share memory tell each other on their sockets: which segments
// there are, with the descriptor of each, and which are gone.  Bytes of frames
// never go there.  docs/shared-memory.md has the notes byte by byte.
//
// Threads: one at a time.

#ifndef CADRE_TRANSPORT_SHM_NOTE_H
#define CADRE_TRANSPORT_SHM_NOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum cadre_note_kind {
    CADRE_NOTE_HOME = 1,  // with the descriptor of the sender's home
    CADRE_NOTE_ARENA = 2, // with the descriptor of an arena
    CADRE_NOTE_FREED = 3, // an arena is no more
} cadre_note_kind;

enum { CADRE_NOTE_BYTES = 40 };

typedef struct cadre_note {
    cadre_note_kind kind;
    uint64_t generation;
    uint64_t arena; // from 1; 0 of a home
    uint64_t nbytes;
} cadre_note;

typedef enum cadre_note_result {
    CADRE_NOTE_DONE,
    CADRE_NOTE_LATER, // the socket takes, or has, nothing more now
    CADRE_NOTE_GONE,  // the peer has closed its end
    CADRE_NOTE_GARBAGE,
} cadre_note_result;

/** A note that is being received. */
typedef struct cadre_note_reader {
    uint8_t bytes[CADRE_NOTE_BYTES];
    size_t used;
    int fd; // that came along; -1: none
} cadre_note_reader;

/** Sends a note; fd goes along, or is -1.  Never blocks. */
cadre_note_result cadre_note_send(int socket, const cadre_note *note, int fd);

/** The next note; *fd is the caller's to close, or -1.  Never blocks. */
cadre_note_result cadre_note_receive(
    int socket, cadre_note_reader *reader, cadre_note *note, int *fd);

/** Closes what came along with a note that never became complete. */
void cadre_note_forget(cadre_note_reader *reader);

#endif // CADRE_TRANSPORT_SHM_NOTE_H
