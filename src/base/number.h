// SPDX-License-Identifier: Apache-2.0
//
// Numbers from and to text, the same in every locale, and all or nothing:
// "12x" is no number.
//
// Threads: any.

#ifndef CADRE_BASE_NUMBER_H
#define CADRE_BASE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/** True and *value if text is a decimal integer in [lowest, highest]. */
bool cadre_parse_int(
    const char *text, int64_t lowest, int64_t highest, int64_t *value);

/** True and *value if text is 16 lower-case hexadecimal digits: a hash. */
bool cadre_parse_hash(const char *text, uint64_t *value);

enum { CADRE_NUMBER_BYTES = 40 };

/**
 * Writes the shortest decimal that reads back to the same double, so that it
 * is also valid JSON; value must be finite.
 */
void cadre_format_double(double value, char text[CADRE_NUMBER_BYTES]);

#endif // CADRE_BASE_NUMBER_H
