// SPDX-License-Identifier: Apache-2.0

#include "data/words.h"

#include "data/unicode_ranges.h"
#include <stdbool.h>
#include <string.h>

typedef enum kind { SIGN, LETTER, NUMBER, SPACE } kind;

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

// The last range that begins at or before the point holds it, or none does.
static bool is_within(
    uint32_t point, const uint32_t *begins, const uint16_t *counts, size_t n)
{
    size_t lo = 0;
    size_t hi = n;
    while (hi - lo > 1) {
        size_t middle = lo + (hi - lo) / 2;
        if (begins[middle] <= point) {
            lo = middle;
        } else {
            hi = middle;
        }
    }
    return point >= begins[lo] && point - begins[lo] < counts[lo];
}

// Unicode's property White_Space.
static bool is_space(uint32_t point)
{
    return (point >= 0x09 && point <= 0x0d) || point == 0x20 || point == 0x85 ||
           point == 0xa0 || point == 0x1680 ||
           (point >= 0x2000 && point <= 0x200a) || point == 0x2028 ||
           point == 0x2029 || point == 0x202f || point == 0x205f ||
           point == 0x3000;
}

static kind kind_of_point(uint32_t point)
{
    if (is_space(point)) {
        return SPACE;
    }
    if (is_within(point, letter_begins, letter_counts, LENGTH(letter_begins))) {
        return LETTER;
    }
    return is_within(point, number_begins, number_counts, LENGTH(number_begins))
               ? NUMBER
               : SIGN;
}

static kind kind_of_ascii(uint8_t byte)
{
    if ((byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z')) {
        return LETTER;
    }
    if (byte >= '0' && byte <= '9') {
        return NUMBER;
    }
    return is_space(byte) ? SPACE : SIGN;
}

// Bytes of the sequence that a first byte announces; 0 if it cannot be one.
static size_t sequence_bytes(uint8_t byte)
{
    if (byte >= 0xc2 && byte <= 0xdf) {
        return 2;
    }
    if (byte >= 0xe0 && byte <= 0xef) {
        return 3;
    }
    return byte >= 0xf0 && byte <= 0xf4 ? 4 : 0;
}

// The kind of the first character, of *length bytes.
static kind kind_at(const uint8_t *text, size_t nbytes, size_t *length)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    *length = 1;
    if (text[0] < 0x80) {
        return kind_of_ascii(text[0]);
    }
    size_t n = sequence_bytes(text[0]);
    if (n == 0 || n > nbytes) {
        return SIGN;
    }
    uint32_t point = text[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return SIGN;
        }
        point = point << 6 | (text[i] & 0x3fu);
    }
    if (point < least[n] || point > 0x10ffff ||
        (point >= 0xd800 && point <= 0xdfff)) {
        return SIGN;
    }
    *length = n;
    return kind_of_point(point);
}

// Bytes of the characters of one kind that a text begins with; *last is how many
// the last of them has.
static size_t run_bytes(
    const uint8_t *text, size_t nbytes, kind wanted, size_t *last)
{
    size_t used = 0;
    for (size_t length; used < nbytes; used += length) {
        if (kind_at(text + used, nbytes - used, &length) != wanted) {
            break;
        }
        *last = length;
    }
    return used;
}

static size_t contraction_bytes(const uint8_t *text, size_t nbytes)
{
    static const char *const endings[] = {
        "'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; i < LENGTH(endings); i++) {
        size_t n = strlen(endings[i]);
        if (n <= nbytes && memcmp(text, endings[i], n) == 0) {
            return n;
        }
    }
    return 0;
}

// White space: the last character of it goes with the word behind, if it is
// not the only one.
static size_t space_bytes(const uint8_t *text, size_t nbytes)
{
    size_t last = 0;
    size_t used = run_bytes(text, nbytes, SPACE, &last);
    return used == nbytes || used == last ? used : used - last;
}

size_t cadre_word_bytes(const uint8_t *text, size_t nbytes)
{
    size_t n = contraction_bytes(text, nbytes);
    if (n > 0) {
        return n;
    }
    size_t first = text[0] == ' ' ? 1 : 0;
    size_t length;
    if (first == nbytes) {
        return first;
    }
    kind k = kind_at(text + first, nbytes - first, &length);
    return k == SPACE
               ? space_bytes(text, nbytes)
               : first + run_bytes(text + first, nbytes - first, k, &length);
}
