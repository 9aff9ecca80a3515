// SPDX-License-Identifier: Apache-2.0
//
// Options of a command, from one table: what is taken is what --help shows.
//
// Names may be written with dashes or underscores, values as "--threads 2" or
// "--threads=2".  Whatever is wrong with an option is said on standard error,
// in one sentence.

#ifndef CADRE_CLI_OPTIONS_H
#define CADRE_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum option_kind {
    OPTION_FLAG,    // value: bool *
    OPTION_NUMBER,  // value: int64_t *, from lowest to highest
    OPTION_TEXT,    // value: const char **
    OPTION_EACH,    // value: option_list *; may be given many times
    OPTION_UNBUILT, // known, and refused as not built yet
} option_kind;

enum { OPTION_LIST_MOST = 64 };

typedef struct option_list {
    const char *texts[OPTION_LIST_MOST];
    int n;
} option_list;

typedef struct option {
    option_kind kind;
    const char *name;    // "--threads"
    const char *others;  // further spellings, blanks between; NULL: none
    const char *operand; // "T", what --help calls the value; NULL: a flag
    const char *help;    // NULL: not shown
    void *value;
    int64_t lowest;
    int64_t highest;
} option;

typedef enum option_words {
    OPTION_WORDS_ANYWHERE, // words may stand between options
    OPTION_WORDS_LAST,     // the first word, or what follows "--", ends them
} option_words;

/**
 * Reads the options of argv[1] and on, and moves the words to the front:
 * argv[0 .. *n_words) are those that are no options.
 *
 * Returns false when something was wrong, and has said it.
 */
bool options_parse(const char *command, const option *options, int n_options,
    option_words words, int argc, char **argv, int *n_words);

/** Prints the options as lines of a help text. */
void options_help(const option *options, int n_options);

#endif // CADRE_CLI_OPTIONS_H
