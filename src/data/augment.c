// SPDX-License-Identifier: Apache-2.0

#include "data/augment.h"

#include "base/random.h"
#include <math.h>

// Parts are drawn until one fits into the picture; if so many do not, the
// largest in the middle is taken.  A last draw decides on the mirror.
enum { MOST_DRAWS = 10, MIRROR = 15, DRAWS = 16 };

static const double least_area = 0.08;
static const double widest = 4.0 / 3.0; // the ratio; the inverse is narrowest

static void draw(
    uint64_t seed, int64_t epoch, int64_t sample, int which, uint32_t words[4])
{
    cadre_random_words(seed, CADRE_STREAM_AUGMENT, (uint32_t)epoch,
        (uint64_t)sample * DRAWS + (uint64_t)which, words);
}

// A ratio from 1/widest to widest, evenly by its logarithm: widest^u for u in
// [-1, 1), by square roots, which are rounded correctly everywhere.
static double ratio_of(uint32_t word)
{
    double power = 1;
    double root = widest;
    for (uint32_t bit = UINT32_C(1) << 30; bit > 0; bit >>= 1) {
        root = sqrt(root);
        power = (word & bit) != 0 ? power * root : power;
    }
    return (word >> 31) != 0 ? 1 / power : power;
}

static int scaled(uint32_t word, int n)
{
    return (int)((uint64_t)word * (uint64_t)n >> 32);
}

static bool draw_area(
    const uint32_t words[4], int width, int height, cadre_area *out)
{
    double part =
        least_area + (1 - least_area) * (double)cadre_random_unit(words[0]);
    double pixels = (double)width * height * part;
    double ratio = ratio_of(words[1]);
    double wide = rint(sqrt(pixels * ratio));
    double high = rint(sqrt(pixels / ratio));
    if (wide < 1 || high < 1 || wide > width || high > height) {
        return false;
    }
    *out = (cadre_area){
        .x = scaled(words[2], width - (int)wide + 1),
        .y = scaled(words[3], height - (int)high + 1),
        .width = (int)wide,
        .height = (int)high,
    };
    return true;
}

// The largest part in the middle that is not too narrow and not too wide.
static cadre_area middle(int width, int height)
{
    int wide = width;
    int high = height;
    if (width > height * widest) {
        wide = (int)rint(height * widest);
    } else if (height > width * widest) {
        high = (int)rint(width * widest);
    }
    return (cadre_area){.x = (width - wide) / 2,
        .y = (height - high) / 2,
        .width = wide,
        .height = high};
}

cadre_view cadre_augment_random(int width, int height, int side, uint64_t seed,
    int64_t epoch, int64_t sample)
{
    cadre_view view = {.width = side, .height = side, .side = side};
    uint32_t words[4];
    bool found = false;
    for (int i = 0; i < MOST_DRAWS && !found; i++) {
        draw(seed, epoch, sample, i, words);
        found = draw_area(words, width, height, &view.area);
    }
    if (!found) {
        view.area = middle(width, height);
    }
    draw(seed, epoch, sample, MIRROR, words);
    view.mirrored = words[0] >> 31 != 0;
    return view;
}

// Half of what is too much, a half to the even number.
static int half(int too_much)
{
    int less = too_much / 2;
    return too_much % 2 == 0 ? less : less + less % 2;
}

cadre_view cadre_augment_centre(int width, int height, int side)
{
    int64_t shorter = width < height ? width : height;
    int64_t longer = width < height ? height : width;
    int short_side = (int)((side * INT64_C(8) + 3) / 7);
    int long_side = (int)(short_side * longer / shorter);
    cadre_view view = {
        .area = {.width = width, .height = height},
        .width = width < height ? short_side : long_side,
        .height = width < height ? long_side : short_side,
        .side = side,
    };
    view.x = half(view.width - side);
    view.y = half(view.height - side);
    return view;
}
