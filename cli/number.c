// SPDX-License-Identifier: Apache-2.0

#include "number.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The library's functions would take blanks before a number.
static bool begins_with_digit(const char *text)
{
    return *text >= '0' && *text <= '9';
}

bool number_from_text(const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    if (!begins_with_digit(*text == '-' ? text + 1 : text) || *end != '\0' ||
        errno != 0) {
        return false;
    }
    *value = parsed;
    return true;
}

bool seed_from_text(const char *text, uint64_t *value)
{
    char *end;
    errno = 0;
    unsigned long long parsed = strtoull(text, &end, 10);
    if (!begins_with_digit(text) || *end != '\0' || errno != 0) {
        return false;
    }
    *value = parsed;
    return true;
}

bool count_take(const char **at, uint64_t *value)
{
    char *end;
    errno = 0;
    unsigned long long parsed = strtoull(*at, &end, 10);
    if (!begins_with_digit(*at) || errno != 0) {
        return false;
    }
    *value = parsed;
    *at = end + strspn(end, " \t");
    return true;
}

bool real_from_text(const char *text, double *value)
{
    // Neither hexadecimal, nor inf, nor nan.
    if (*text == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0') {
        return false;
    }
    char *end;
    double parsed = strtod(text, &end);
    if (*end != '\0' || !isfinite(parsed)) {
        return false;
    }
    *value = parsed;
    return true;
}

void real_to_text(double value, char text[NUMBER_BYTES])
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, NUMBER_BYTES, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            return;
        }
    }
}
