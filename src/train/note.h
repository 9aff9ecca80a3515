// SPDX-License-Identifier: Apache-2.0
//
// What a run keeps in its checkpoints beside the engine's state: its identity,
// where it stands in the data, and what its summary says of the steps so far.
// JSON, so that people can read it too.
//
// Threads: any.

#ifndef CADRE_TRAIN_NOTE_H
#define CADRE_TRAIN_NOTE_H

#include "data/deal.h"
#include "train/tally.h"

typedef struct cadre_note {
    uint64_t identity;
    char *identity_text;    // as cadre_identity_text() makes it
    int64_t identity_since; // the step after which this identity began
    int64_t total_steps;    // of the schedule; 0: it needs none
    cadre_batch next;       // the cursor: what the next step takes
    int64_t n_skipped;
    double losses[CADRE_TALLY_LOSSES]; // of the last steps; NaN: skipped
    int n_losses;
} cadre_note;

/** In new memory, for cadre_free(); NULL without memory. */
char *cadre_note_write(const cadre_note *note);

/**
 * *out is set on success only; its identity_text is for cadre_free().
 *
 * Errors: CADRE_ERR_CORRUPT  text is NULL or no such note
 *         CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_note_read(const char *text, cadre_note *out);

#endif // CADRE_TRAIN_NOTE_H
