// SPDX-License-Identifier: Apache-2.0

#define _GNU_SOURCE // newlocale, strtod_l

#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cadre_parse_int(
    const char *text, int64_t lowest, int64_t highest, int64_t *value)
{
    // strtoll() would take leading blanks and a lone sign's absence of digits.
    const char *digits = *text == '-' || *text == '+' ? text + 1 : text;
    if (!isdigit((unsigned char)*digits)) {
        return false;
    }
    char *end;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || parsed < lowest || parsed > highest) {
        return false;
    }
    *value = parsed;
    return true;
}

static locale_t c_locale;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

bool cadre_parse_hash(const char *text, uint64_t *value)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t sum = 0;
    if (strlen(text) != 16) {
        return false;
    }
    for (int i = 0; i < 16; i++) {
        const char *digit = strchr(digits, text[i]);
        if (digit == NULL) {
            return false;
        }
        sum = sum << 4 | (uint64_t)(digit - digits);
    }
    *value = sum;
    return true;
}

void cadre_format_double(double value, char text[CADRE_NUMBER_BYTES])
{
    pthread_once(&once, make_locale);
    locale_t before = uselocale(c_locale);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, CADRE_NUMBER_BYTES, "%.*g", digits, value);
        if (strtod_l(text, NULL, c_locale) == value) {
            break;
        }
    }
    uselocale(before);
}
