// SPDX-License-Identifier: Apache-2.0
//
// The keys of a configuration, from one table: what --set and YAML files take
// is what config.yaml holds and what the help shows (docs/cli.md).

#ifndef CADRE_CLI_KEYS_H
#define CADRE_CLI_KEYS_H

#include <cadre/train.h>

/** Recipe's name, length and all other keys; in the order of config.yaml. */
int key_count(void);
const char *key_name(int i);

enum { KEY_PROBLEM_BYTES = 512 };

/**
 * Sets a key from text.  False when it is refused: then problem says why, in
 * one sentence.
 */
bool key_set(cadre_train_config *config, const char *name, const char *value,
    char problem[KEY_PROBLEM_BYTES]);

/**
 * Writes the i-th key's value so that key_set() reads it back to the same bits.
 * False for a key that has none: not built yet, or not given.
 */
bool key_get(
    const cadre_train_config *config, int i, char value[CADRE_PATH_BYTES]);

/** Prints all keys with their values, defaults (a recipe's) and meaning. */
void key_help(const cadre_train_config *defaults);

#endif // CADRE_CLI_KEYS_H
