// SPDX-License-Identifier: Apache-2.0

#include "train/page.h"

#include "base/number.h"
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

void cadre_page_text(FILE *page, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '&') {
            fputs("&amp;", page);
        } else if (c == '<') {
            fputs("&lt;", page);
        } else if (c == '>') {
            fputs("&gt;", page);
        } else if (c == '"') {
            fputs("&quot;", page);
        } else {
            fputc(c < 0x20 || c == 0x7f ? ' ' : c, page);
        }
    }
}

void cadre_page_fixed(
    double value, int decimals, char text[CADRE_PAGE_NUMBER_BYTES])
{
    if (!isfinite(value)) {
        snprintf(text, CADRE_PAGE_NUMBER_BYTES, "-");
        return;
    }
    double unit = pow(10, decimals);
    if (fabs(value) * unit > 1e17) {
        cadre_format_double(value, text);
        return;
    }
    int64_t units = (int64_t)llround(fabs(value) * unit);
    int64_t whole = units / (int64_t)unit;
    const char *sign = value < 0 && units > 0 ? "-" : "";
    if (decimals == 0) {
        snprintf(text, CADRE_PAGE_NUMBER_BYTES, "%s%" PRId64, sign, whole);
    } else {
        snprintf(text, CADRE_PAGE_NUMBER_BYTES, "%s%" PRId64 ".%0*" PRId64,
            sign, whole, decimals, units - whole * (int64_t)unit);
    }
}

// The decimals that leave three digits that count.
static int three_digits(double value)
{
    double size = fabs(value);
    int decimals = 0;
    for (double limit = 100; decimals < 9 && size < limit; limit /= 10) {
        decimals++;
    }
    return decimals;
}

void cadre_page_short(double value, char text[CADRE_PAGE_NUMBER_BYTES])
{
    static const struct {
        double unit;
        char letter;
    } units[] = {{1e12, 'T'}, {1e9, 'G'}, {1e6, 'M'}, {1e4, 'k'}};
    double size = fabs(value);
    if (value == 0 || !isfinite(value)) {
        cadre_page_fixed(value, 0, text);
        return;
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (size >= units[i].unit) {
            double scaled =
                value / (units[i].letter == 'k' ? 1e3 : units[i].unit);
            char number[CADRE_PAGE_NUMBER_BYTES];
            cadre_page_fixed(scaled, three_digits(scaled), number);
            snprintf(text, CADRE_PAGE_NUMBER_BYTES, "%.40s%c", number,
                units[i].letter);
            return;
        }
    }
    cadre_page_fixed(value, three_digits(value), text);
}

void cadre_page_bytes(double value, char text[CADRE_PAGE_NUMBER_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    enum { N_UNITS = sizeof(units) / sizeof(units[0]) };
    int i = 0;
    while (i < N_UNITS - 1 && fabs(value) >= 1024) {
        value /= 1024;
        i++;
    }
    char number[CADRE_PAGE_NUMBER_BYTES];
    cadre_page_fixed(value, i == 0 ? 0 : three_digits(value), number);
    snprintf(text, CADRE_PAGE_NUMBER_BYTES, "%.40s %s", number, units[i]);
}

void cadre_page_coordinate(FILE *page, double value)
{
    char text[CADRE_PAGE_NUMBER_BYTES];
    cadre_page_fixed(value, 2, text);
    fputs(text, page);
}
