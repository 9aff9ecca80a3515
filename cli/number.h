// SPDX-License-Identifier: Apache-2.0
//
// Numbers from and to text, all or nothing: "12x" is no number.  The command
// never calls setlocale(), so they look the same everywhere.

#ifndef CADRE_CLI_NUMBER_H
#define CADRE_CLI_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

enum { NUMBER_BYTES = 40 };

/** Decimal digits, with a sign or without. */
bool number_from_text(const char *text, int64_t *value);

/** Decimal digits. */
bool seed_from_text(const char *text, uint64_t *value);

/** Takes decimal digits, and the blanks behind them, off the front of *at. */
bool count_take(const char **at, uint64_t *value);

/** A finite decimal number such as 0.05 or 1e-3. */
bool real_from_text(const char *text, double *value);

/** The shortest text that reads back to the same double. */
void real_to_text(double value, char text[NUMBER_BYTES]);

#endif // CADRE_CLI_NUMBER_H
