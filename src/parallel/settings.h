// SPDX-License-Identifier: Apache-2.0
//
// The options of an engine: what they are when nothing is said, what makes no
// sense of them; and those that an update is made with, by name: what all ranks
// must have alike, and what a checkpoint must find again.
//
// Threads: any.

#ifndef CADRE_PARALLEL_SETTINGS_H
#define CADRE_PARALLEL_SETTINGS_H

#include "cadre/engine.h"
#include "parallel/compare.h"

enum { CADRE_UPDATE_SETTINGS = 14, CADRE_MAX_THREADS = 1024 };

/**
 * Fills in defaults, and says what makes no sense, whatever the model and the
 * ranks.
 *
 * Errors: CADRE_ERR_INVALID_ARG
 */
cadre_status cadre_settings_fill_in(cadre_engine_options *o);

/** Optimizer, hyper-parameters and schedule; o has its defaults filled in. */
void cadre_update_settings(const cadre_engine_options *o,
    cadre_setting settings[CADRE_UPDATE_SETTINGS]);

#endif // CADRE_PARALLEL_SETTINGS_H
