// SPDX-License-Identifier: Apache-2.0
//
// PNG files, by libpng.  All chunks but those that make the pixels are passed
// over, so what they hold costs nothing.  Errors come back by longjmp(), so
// whatever is to survive one lives in struct decoder.

#include "base/fail.h"
#include "data/picture.h"
#include <setjmp.h>
#include <string.h>

#include <png.h>

typedef struct decoder {
    png_structp png;
    png_infop info;
    jmp_buf failed;
    cadre_status status; // why, with the thread's text
    const uint8_t *at;   // of the bytes: where reading goes on
    size_t left;
    cadre_picture *out;
} decoder;

static void leave(decoder *d, cadre_status status)
{
    d->status = status;
    longjmp(d->failed, 1);
}

static void on_error(png_structp png, png_const_charp text)
{
    leave(png_get_error_ptr(png),
        cadre_fail(CADRE_ERR_CORRUPT,
            "is a PNG file that cannot be decoded: %s", text));
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png; // it is of no pixel
    (void)text;
}

static void read_bytes(png_structp png, png_bytep to, size_t nbytes)
{
    decoder *d = png_get_io_ptr(png);
    if (nbytes > d->left) {
        png_error(png, "it is cut");
    }
    memcpy(to, d->at, nbytes);
    d->at += nbytes;
    d->left -= nbytes;
}

static void set_up(decoder *d)
{
    d->png =
        png_create_read_struct(PNG_LIBPNG_VER_STRING, d, on_error, on_warning);
    d->info = d->png == NULL ? NULL : png_create_info_struct(d->png);
    if (d->info == NULL) {
        leave(d, cadre_fail(CADRE_ERR_NO_MEMORY, "libpng has no memory"));
    }
    png_set_read_fn(d->png, d, read_bytes);
    png_set_keep_unknown_chunks(
        d->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1); // all that are known
}

// Whatever there is becomes red, green and blue bytes.
static void set_transforms(const decoder *d)
{
    png_set_expand(d->png);
    png_set_scale_16(d->png);
    png_set_strip_alpha(d->png);
    png_set_gray_to_rgb(d->png);
}

// May leave by longjmp() at any place.
static void decode(decoder *d)
{
    set_up(d);
    png_read_info(d->png, d->info);
    cadre_status status =
        cadre_picture_size(d->out, png_get_image_width(d->png, d->info),
            png_get_image_height(d->png, d->info));
    if (status != CADRE_OK) {
        leave(d, status);
    }
    set_transforms(d);
    int n_passes = png_set_interlace_handling(d->png);
    png_read_update_info(d->png, d->info);
    size_t row_bytes = (size_t)d->out->width * 3;
    if (png_get_rowbytes(d->png, d->info) != row_bytes) {
        png_error(d->png, "its pixels are of no known kind");
    }
    for (int pass = 0; pass < n_passes; pass++) {
        for (int y = 0; y < d->out->height; y++) {
            png_read_row(d->png, d->out->pixels + (size_t)y * row_bytes, NULL);
        }
    }
    png_read_end(d->png, NULL);
}

// The decoder is the caller's, so that it is what it was left as.
static void try_to_decode(decoder *d)
{
    if (setjmp(d->failed) == 0) {
        decode(d);
    }
}

cadre_status cadre_picture_png(
    const uint8_t *bytes, size_t nbytes, cadre_picture *out)
{
    decoder d = {.at = bytes, .left = nbytes, .out = out};
    try_to_decode(&d);
    png_destroy_read_struct(&d.png, &d.info, NULL);
    return d.status;
}
