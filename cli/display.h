// SPDX-License-Identifier: Apache-2.0
//
// What a person sees of a run while it goes on, on standard error: three lines
// redrawn on a terminal, a line per logged step elsewhere.

#ifndef CADRE_CLI_DISPLAY_H
#define CADRE_CLI_DISPLAY_H

#include <cadre/train.h>

enum { DISPLAY_WINDOW = 128 };

/** The last values of something, to tell by how much a new one surprises. */
typedef struct surprise {
    double values[DISPLAY_WINDOW]; // a ring
    int64_t n;
} surprise;

typedef struct display {
    const cadre_train_config *config;
    bool quiet;
    bool live; // as screen_is_live()

    int64_t began_ms;
    int64_t drawn_ms;
    int64_t n_seen; // steps
    // Fading means.
    double mean_ms;      // per step
    double mean_rate;    // samples per second
    double mean_exposed; // fraction of a step
    double mean_hidden;  // fraction of communication; NaN without any
    surprise loss;
    surprise norm;
    double loss_z; // of the last step, in standard deviations; or NaN
    double norm_z;
} display;

void display_init(display *d, const cadre_train_config *config, bool quiet);

/** A cadre_train_hooks.progress; ctx is the display. */
void display_progress(const cadre_train_progress *progress, void *ctx);

/** Ends the display, so that others can write below it. */
void display_close(const display *d);

#endif // CADRE_CLI_DISPLAY_H
