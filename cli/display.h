// SPDX-License-Identifier: Apache-2.0
//
// What a person sees of a run while it goes on, on standard error: one line
// redrawn on a terminal, a line per logged step elsewhere.

#ifndef CADRE_CLI_DISPLAY_H
#define CADRE_CLI_DISPLAY_H

#include <cadre/train.h>

typedef struct display {
    bool quiet;
    bool terminal; // standard error is one
    int64_t log_every;

    int64_t n_seen; // steps
    // Fading means.
    double mean_ms;      // per step
    double mean_rate;    // samples per second
    double mean_exposed; // fraction of a step
    int64_t drawn_ms;    // when the line was last drawn
    bool line_open;      // the cursor stands behind it
} display;

/** A cadre_train_hooks.progress; ctx is the display. */
void display_progress(const cadre_train_progress *progress, void *ctx);

/** Ends the line that is redrawn, so that others can write below it. */
void display_close(display *d);

#endif // CADRE_CLI_DISPLAY_H
