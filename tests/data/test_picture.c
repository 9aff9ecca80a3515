// SPDX-License-Identifier: Apache-2.0
//
// Pictures against what Pillow makes of the same files, to the bit
// (images/references.txt, made by tools/make_image_references.py), and files
// that are no pictures.

#include "data/picture.h"

#include "base/alloc.h"
#include "data/exif.h"
#include "data/resample.h"
#include "support/check.h"
#include "support/isa.h"
#include <stdio.h>
#include <zlib.h>

enum { MOST_BYTES = 4096 };

typedef struct file {
    size_t nbytes;
    uint8_t bytes[MOST_BYTES];
} file;

static file read_image(const char *name)
{
    char path[512];
    file f;
    snprintf(path, sizeof(path), "%s/%s", CADRE_TEST_IMAGES, name);
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    f.nbytes = fread(f.bytes, 1, sizeof(f.bytes), stream);
    assert_int_equal(fclose(stream), 0);
    assert_in_range(f.nbytes, 1, MOST_BYTES - 1);
    return f;
}

static void decode(const char *name, cadre_picture *out)
{
    const file f = read_image(name);
    cadre_picture spare = {0};
    CHECK_OK(cadre_picture_decode(f.bytes, f.nbytes, out, &spare));
    cadre_picture_fini(&spare);
}

static uint32_t checksum(const uint8_t *pixels, size_t nbytes)
{
    return (uint32_t)crc32(0, pixels, (uInt)nbytes);
}

static void check_picture(const char *line)
{
    char name[64];
    int width;
    int height;
    unsigned crc;
    // NOLINTNEXTLINE(cert-err34-c): the file is our own
    int n = sscanf(line, "picture %63s %d %d %x", name, &width, &height, &crc);
    assert_int_equal(n, 4);
    cadre_picture p = {0};
    decode(name, &p);
    assert_int_equal(p.width, width);
    assert_int_equal(p.height, height);
    uint32_t found = checksum(p.pixels, (size_t)width * (size_t)height * 3);
    if (found != crc) {
        fail_msg("%s: %08x instead of %08x", name, found, crc);
    }
    cadre_picture_fini(&p);
}

// Makes the whole of a view of windows of one pixel, and compares its upper left
// square with what is made at once.
static uint32_t make_view(const cadre_picture *p, cadre_view v)
{
    static uint8_t whole[100 * 100 * 3];
    cadre_resampler r = {0};
    const uint8_t *pixels;
    const int side = v.width < v.height ? v.width : v.height;
    for (v.side = 1, v.y = 0; v.y < v.height; v.y++) {
        for (v.x = 0; v.x < v.width; v.x++) {
            CHECK_OK(cadre_resample(&r, p, &v, &pixels));
            memcpy(whole + (v.y * v.width + v.x) * 3, pixels, 3);
        }
    }
    v.x = v.y = 0;
    v.side = side;
    CHECK_OK(cadre_resample(&r, p, &v, &pixels));
    for (int y = 0; y < side; y++) {
        assert_memory_equal(
            pixels + y * side * 3, whole + y * v.width * 3, (size_t)side * 3);
    }
    v.mirrored = true;
    CHECK_OK(cadre_resample(&r, p, &v, &pixels));
    for (int i = 0; i < side * side; i++) {
        int from = i / side * v.width + side - 1 - i % side;
        assert_memory_equal(pixels + i * 3, whole + from * 3, 3);
    }
    cadre_resampler_fini(&r);
    return checksum(whole, (size_t)(v.width * v.height) * 3);
}

static void check_view(const char *line)
{
    char name[64];
    unsigned crc;
    cadre_view v = {0};
    // NOLINTNEXTLINE(cert-err34-c): the file is our own
    int n = sscanf(line, "view %63s %d %d %d %d %d %d %x", name, &v.area.x,
        &v.area.y, &v.area.width, &v.area.height, &v.width, &v.height, &crc);
    assert_int_equal(n, 8);
    cadre_picture p = {0};
    decode(name, &p);
    uint32_t found = make_view(&p, v);
    if (found != crc) {
        fail_msg("%s gives %08x", line, found);
    }
    cadre_picture_fini(&p);
}

static void each_reference(const char *kind, void (*check)(const char *line))
{
    FILE *stream = fopen(CADRE_TEST_IMAGES "/references.txt", "r");
    assert_non_null(stream);
    int n = 0;
    for (char line[256]; fgets(line, sizeof(line), stream) != NULL;) {
        if (strncmp(line, kind, strlen(kind)) == 0) {
            check(line);
            n++;
        }
    }
    assert_in_range(n, 10, 100);
    fclose(stream);
}

static void pictures_are_those_of_pillow(void **state)
{
    (void)state;
    each_reference("picture", check_picture);
}

static void views_are_those_of_pillow(void **state)
{
    use_isa(state);
    each_reference("view", check_view);
}

// --- damage ---

static void refused(const file *f, const char *words)
{
    cadre_picture p = {0};
    cadre_picture spare = {0};
    CHECK_FAILS(cadre_picture_decode(f->bytes, f->nbytes, &p, &spare),
        CADRE_ERR_CORRUPT, words);
    cadre_picture_fini(&p);
    cadre_picture_fini(&spare);
}

// Wherever it is cut, also where all pixels are there already.
static void refuses_what_is_cut(void **state)
{
    (void)state;
    static const char *const names[] = {"photo.jpg", "progressive.jpg",
        "ink.jpg", "interlaced.png", "deep.png"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        file f = read_image(names[i]);
        while (f.nbytes > 0) {
            f.nbytes--;
            refused(&f, f.nbytes == 0 ? "is empty" : "is ");
        }
    }
}

static void survives_any_changed_byte(void **state)
{
    (void)state;
    static const char *const names[] = {"photo.jpg", "turned-6.jpg",
        "progressive.jpg", "restarts.jpg", "palette.png", "interlaced.png"};
    cadre_picture p = {0};
    cadre_picture spare = {0};
    int n_refused = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        file f = read_image(names[i]);
        for (size_t at = 0; at < f.nbytes; at++) {
            f.bytes[at] ^= 0x55;
            cadre_status status =
                cadre_picture_decode(f.bytes, f.nbytes, &p, &spare);
            assert_true(status == CADRE_OK || status == CADRE_ERR_CORRUPT);
            n_refused += status != CADRE_OK;
            f.bytes[at] ^= 0x55;
        }
    }
    assert_true(n_refused > 500);
    cadre_picture_fini(&p);
    cadre_picture_fini(&spare);
}

static void refuses_what_is_something_else(void **state)
{
    (void)state;
    file f = {.nbytes = 6, .bytes = "GIF89a"};
    refused(&f, "neither a JPEG nor a PNG");
    f = (file){.nbytes = 3, .bytes = {0xff, 0xd8, 0xff}};
    refused(&f, "JPEG file that cannot be decoded");
    f = (file){.nbytes = 8, .bytes = "\x89PNG\r\n\x1a\n"};
    refused(&f, "PNG file that cannot be decoded: it is cut");
}

// A few bytes that announce a picture of gigabytes take no memory.
static void refuses_bombs(void **state)
{
    (void)state;
    file f = read_image("photo.jpg");
    size_t at = 0;
    while (f.bytes[at] != 0xff || f.bytes[at + 1] != 0xc0) {
        at++; // the frame's header: length, bits, height, width
    }
    memset(f.bytes + at + 5, 0xfe, 4);
    refused(&f, "65278 x 65278 pixels, which is none or more than");

    f = read_image("rgb.png");
    memset(f.bytes + 17, 0xff, 3); // width, below 2^24
    uint32_t crc = checksum(f.bytes + 12, 17);
    for (int i = 0; i < 4; i++) {
        f.bytes[29 + i] = (uint8_t)(crc >> (24 - 8 * i));
    }
    refused(&f, "is ");
}

// --- Exif ---

static void reads_both_byte_orders(void **state)
{
    (void)state;
    const uint8_t little[] = "Exif\0\0II*\0\x08\0\0\0\x01\0"
                             "\x12\x01\x03\0\x01\0\0\0\x06\0\0\0";
    const uint8_t big[] = "Exif\0\0MM\0*\0\0\0\x08\0\x01"
                          "\x01\x12\0\x03\0\0\0\x01\0\x06\0\0";
    assert_int_equal(cadre_exif_orientation(little, sizeof(little) - 1), 6);
    assert_int_equal(cadre_exif_orientation(big, sizeof(big) - 1), 6);
    uint8_t copy[sizeof(big)];
    for (size_t n = 0; n < sizeof(big) - 1; n++) {
        // Memory of its own, so that reading beyond it would be seen.
        uint8_t *part = cadre_alloc(n);
        assert_non_null(part);
        memcpy(part, big, n);
        assert_int_equal(cadre_exif_orientation(part, n), 0);
        cadre_free(part);
    }
    memcpy(copy, big, sizeof(big));
    copy[sizeof(big) - 4] = 9;
    assert_int_equal(cadre_exif_orientation(copy, sizeof(big) - 1), 0);
    memcpy(copy, big, sizeof(big));
    memset(copy + 10, 0xff, 4); // where the directory lies
    assert_int_equal(cadre_exif_orientation(copy, sizeof(big) - 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_those_of_pillow),
        ON_EVERY_ISA(views_are_those_of_pillow),
        cmocka_unit_test(refuses_what_is_cut),
        cmocka_unit_test(survives_any_changed_byte),
        cmocka_unit_test(refuses_what_is_something_else),
        cmocka_unit_test(refuses_bombs),
        cmocka_unit_test(reads_both_byte_orders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
