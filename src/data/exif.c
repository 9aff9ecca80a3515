// SPDX-License-Identifier: Apache-2.0

#include "data/exif.h"

#include <stdbool.h>
#include <string.h>

// The TIFF part: every place in it is checked before it is read.
typedef struct tiff {
    const uint8_t *data;
    size_t nbytes;
    bool big_endian;
} tiff;

static uint32_t number_at(const tiff *t, size_t place, size_t width)
{
    uint32_t value = 0;
    for (size_t i = 0; i < width; i++) {
        size_t at = t->big_endian ? place + i : place + width - 1 - i;
        value = value << 8 | t->data[at];
    }
    return value;
}

static bool open_tiff(tiff *t)
{
    if (t->nbytes < 8) {
        return false;
    }
    t->big_endian = t->data[0] == 'M';
    return (memcmp(t->data, "MM", 2) == 0 || memcmp(t->data, "II", 2) == 0) &&
           number_at(t, 2, 2) == 42;
}

// In the first directory: a count, then entries of tag, type, count, value.
static int find_orientation(const tiff *t)
{
    enum { ORIENTATION = 0x0112, SHORT = 3, ENTRY = 12 };
    size_t place = number_at(t, 4, 4);
    if (place > t->nbytes - 2) {
        return 0;
    }
    size_t n = number_at(t, place, 2);
    place += 2;
    for (size_t i = 0; i < n && t->nbytes - place >= ENTRY; i++) {
        if (number_at(t, place, 2) == ORIENTATION &&
            number_at(t, place + 2, 2) == SHORT) {
            uint32_t value = number_at(t, place + 8, 2);
            return value >= 1 && value <= 8 ? (int)value : 0;
        }
        place += ENTRY;
    }
    return 0;
}

int cadre_exif_orientation(const uint8_t *marker, size_t nbytes)
{
    static const uint8_t begin[] = {'E', 'x', 'i', 'f', 0, 0};
    if (nbytes < sizeof(begin) || memcmp(marker, begin, sizeof(begin)) != 0) {
        return 0;
    }
    tiff t = {.data = marker + sizeof(begin), .nbytes = nbytes - sizeof(begin)};
    return open_tiff(&t) ? find_orientation(&t) : 0;
}
