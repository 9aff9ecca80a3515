// SPDX-License-Identifier: Apache-2.0
//
// From words to a configuration: the recipe, file or run to be resumed, over it
// --set's keys, over them --steps, --epochs and --out.  Whatever is wrong is said
// on standard error, in one sentence.

#ifndef CADRE_CLI_TRAIN_CONFIG_H
#define CADRE_CLI_TRAIN_CONFIG_H

#include "options.h"

#include <cadre/train.h>

typedef struct train_wishes {
    int64_t n_ranks; // numbers: 0 where not given
    int64_t threads;
    int64_t steps;
    int64_t epochs;
    const char *out;    // or NULL
    const char *resume; // or NULL
    const char *trace;  // FIRST:COUNT; or NULL
    const char *bind;   // of the ranks that are started; or NULL
    option_list keys;   // KEY=VALUE each
    bool quiet;
    bool json;
    bool list;
    bool print_config;
    bool help;
    bool started; // a rank of a run whose folder is taken
} train_wishes;

/**
 * False when something was wrong, and it has been said.  recipe may be NULL with
 * --resume.  A resumed run's leaves are 0 unless a key gives them: its
 * checkpoint knows.
 */
bool train_config_make(
    const train_wishes *w, const char *recipe, cadre_train_config *config);

/**
 * Fills in the threads of a rank, and the leaves where none are given: one for
 * each thread of each rank.
 */
void train_config_share_out(const train_wishes *w, int n_ranks, int threads,
    cadre_train_config *config);

#endif // CADRE_CLI_TRAIN_CONFIG_H
