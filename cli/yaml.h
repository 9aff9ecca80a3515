// SPDX-License-Identifier: Apache-2.0
//
// Configurations as YAML files: maps nested at the keys' dots, scalars in them
// and nothing else.

#ifndef CADRE_CLI_YAML_H
#define CADRE_CLI_YAML_H

#include <cadre/train.h>
#include <stdio.h>

typedef enum yaml_outcome {
    YAML_READ,
    YAML_MISSING, // no such file
    YAML_REFUSED,
} yaml_outcome;

enum { YAML_PROBLEM_BYTES = 8192 };

/**
 * Reads a configuration: the defaults of the recipe that the file names, and
 * over them the file's keys.
 *
 * Unless it was read, problem says why, in one sentence with file and line.
 */
yaml_outcome yaml_read(const char *path, cadre_train_config *config,
    char problem[YAML_PROBLEM_BYTES]);

/**
 * Writes all keys that have a value.  False if the stream takes no more; it is
 * not flushed.
 */
bool yaml_write(const cadre_train_config *config, FILE *stream);

#endif // CADRE_CLI_YAML_H
