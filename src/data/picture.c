// SPDX-License-Identifier: Apache-2.0

#include "data/picture.h"

#include "base/alloc.h"
#include "base/fail.h"
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

enum { MOST_SIDE = 65500 }; // of a JPEG file

cadre_status cadre_picture_size(
    cadre_picture *picture, int64_t width, int64_t height)
{
    if (width < 1 || height < 1 || width > MOST_SIDE || height > MOST_SIDE ||
        width * height > CADRE_MOST_PIXELS) {
        return cadre_fail(CADRE_ERR_CORRUPT,
            "is a picture of %" PRId64 " x %" PRId64
            " pixels, which is none or more than %d",
            width, height, (int)CADRE_MOST_PIXELS);
    }
    size_t nbytes = (size_t)(width * height) * 3;
    if (nbytes > picture->room) {
        cadre_free(picture->pixels);
        picture->room = 0;
        picture->pixels = cadre_alloc(nbytes);
        if (picture->pixels == NULL) {
            return CADRE_ERR_NO_MEMORY;
        }
        picture->room = nbytes;
    }
    picture->width = (int)width;
    picture->height = (int)height;
    return CADRE_OK;
}

void cadre_picture_fini(cadre_picture *picture)
{
    cadre_free(picture->pixels);
    *picture = (cadre_picture){0};
}

// How a picture is to be turned so that it stands as it was taken.
typedef struct turn {
    bool swaps; // rows become columns
    bool mirrors_x;
    bool mirrors_y;
} turn;

// By the numbers of Exif's orientation, from 1.
static const turn turns[] = {
    {false, false, false},
    {false, true, false},
    {false, true, true},
    {false, false, true},
    {true, false, false},
    {true, false, true},
    {true, true, true},
    {true, true, false},
};

static void turn_pixels(const cadre_picture *in, turn t, cadre_picture *out)
{
    uint8_t *to = out->pixels;
    for (int y = 0; y < out->height; y++) {
        for (int x = 0; x < out->width; x++) {
            int from_x = t.swaps ? y : x;
            int from_y = t.swaps ? x : y;
            from_x = t.mirrors_x ? in->width - 1 - from_x : from_x;
            from_y = t.mirrors_y ? in->height - 1 - from_y : from_y;
            memcpy(to,
                in->pixels +
                    ((size_t)from_y * (size_t)in->width + (size_t)from_x) * 3,
                3);
            to += 3;
        }
    }
}

static cadre_status set_upright(
    int orientation, cadre_picture *picture, cadre_picture *spare)
{
    if (orientation == 1) {
        return CADRE_OK;
    }
    turn t = turns[orientation - 1];
    CADRE_TRY(
        cadre_picture_size(spare, t.swaps ? picture->height : picture->width,
            t.swaps ? picture->width : picture->height));
    turn_pixels(picture, t, spare);
    cadre_picture upright = *spare;
    *spare = *picture;
    *picture = upright;
    return CADRE_OK;
}

cadre_status cadre_picture_decode(const uint8_t *bytes, size_t nbytes,
    cadre_picture *out, cadre_picture *spare)
{
    static const uint8_t jpeg[] = {0xff, 0xd8, 0xff};
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    if (nbytes >= sizeof(jpeg) && memcmp(bytes, jpeg, sizeof(jpeg)) == 0) {
        int orientation;
        CADRE_TRY(cadre_picture_jpeg(bytes, nbytes, out, &orientation));
        return set_upright(orientation, out, spare);
    }
    if (nbytes >= sizeof(png) && memcmp(bytes, png, sizeof(png)) == 0) {
        return cadre_picture_png(bytes, nbytes, out);
    }
    return cadre_fail(CADRE_ERR_CORRUPT,
        nbytes == 0 ? "is empty" : "is neither a JPEG nor a PNG file inside");
}
