// SPDX-License-Identifier: Apache-2.0
//
// JPEG files, by libjpeg-turbo: accurate integer transforms and smooth
// upsampling, both the same in all of its vector variants.  Its errors come back
// by longjmp(), so whatever is to survive one lives in struct decoder.

#include "base/fail.h"
#include "data/exif.h"
#include "data/picture.h"
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#define TEXT_OF(number) #number
#define NAME_OF(number) TEXT_OF(number)

// A progressive file sends its picture in scans, each of which costs as much as
// decoding it whole; real ones have about ten.
enum { MOST_SCANS = 100 };

typedef struct decoder {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    cadre_status status; // why, with the thread's text
    cadre_picture *out;
    int orientation;
} decoder;

static decoder *decoder_of(j_common_ptr jpeg)
{
    return jpeg->client_data;
}

// Leaves the library; the text is the thread's.
static void leave(j_common_ptr jpeg, cadre_status status)
{
    decoder *d = decoder_of(jpeg);
    d->status = status;
    longjmp(d->failed, 1);
}

static void on_error(j_common_ptr jpeg)
{
    char text[JMSG_LENGTH_MAX];
    bool no_memory = jpeg->err->msg_code == JERR_OUT_OF_MEMORY;
    jpeg->err->format_message(jpeg, text);
    leave(jpeg, cadre_fail(no_memory ? CADRE_ERR_NO_MEMORY : CADRE_ERR_CORRUPT,
                    "is a JPEG file that cannot be decoded: %s", text));
}

// What libjpeg only warns of, since it can show something nevertheless, is
// damage here; but for what changes no pixel.
static void on_message(j_common_ptr jpeg, int level)
{
    if (level >= 0) {
        return; // traces
    }
    switch (jpeg->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
    case JWRN_ADOBE_XFORM:
        break;
    default:
        on_error(jpeg);
    }
}

static void on_progress(j_common_ptr jpeg)
{
    if (decoder_of(jpeg)->jpeg.input_scan_number > MOST_SCANS) {
        leave(jpeg,
            cadre_fail(CADRE_ERR_CORRUPT,
                "is a JPEG file of more than %d scans, which costs more time "
                "than pictures are worth",
                (int)MOST_SCANS));
    }
}

static int find_orientation(const struct jpeg_decompress_struct *jpeg)
{
    for (jpeg_saved_marker_ptr m = jpeg->marker_list; m != NULL; m = m->next) {
        int orientation = cadre_exif_orientation(m->data, m->data_length);
        if (orientation != 0) {
            return orientation;
        }
    }
    return 1;
}

// Multiplies what ink leaves of white.  Adobe's programs store that, others the
// ink.
static void from_cmyk(const uint8_t *in, bool stores_ink, uint8_t *out, int n)
{
    const uint8_t flip = stores_ink ? 255 : 0;
    for (int i = 0; i < n; i++, in += 4, out += 3) {
        int key = in[3] ^ flip;
        for (int c = 0; c < 3; c++) {
            out[c] = (uint8_t)(((in[c] ^ flip) * key + 127) / 255);
        }
    }
}

static void read_rows(decoder *d)
{
    struct jpeg_decompress_struct *jpeg = &d->jpeg;
    const int width = d->out->width;
    const bool is_cmyk = jpeg->out_color_space == JCS_CMYK;
    // Freed with the rest of the library's memory.
    JSAMPARRAY ink = is_cmyk ? jpeg->mem->alloc_sarray((j_common_ptr)jpeg,
                                   JPOOL_IMAGE, (JDIMENSION)width * 4, 1)
                             : NULL;
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW row =
            d->out->pixels + (size_t)jpeg->output_scanline * (size_t)width * 3;
        (void)jpeg_read_scanlines(jpeg, is_cmyk ? ink : &row, 1);
        if (is_cmyk) {
            from_cmyk(ink[0], !jpeg->saw_Adobe_marker, row, width);
        }
    }
}

// May leave by longjmp() at any place.
static void decode(decoder *d, const uint8_t *bytes, size_t nbytes)
{
    struct jpeg_decompress_struct *jpeg = &d->jpeg;
    jpeg_create_decompress(jpeg);
    jpeg->client_data = d;
    jpeg->progress = &d->progress;
    jpeg_mem_src(jpeg, bytes, nbytes);
    jpeg_save_markers(jpeg, JPEG_APP0 + 1, 0xffff);
    (void)jpeg_read_header(jpeg, TRUE);

    cadre_status status =
        cadre_picture_size(d->out, jpeg->image_width, jpeg->image_height);
    if (status != CADRE_OK) {
        leave((j_common_ptr)jpeg, status);
    }
    bool has_key = jpeg->jpeg_color_space == JCS_CMYK ||
                   jpeg->jpeg_color_space == JCS_YCCK;
    jpeg->out_color_space = has_key ? JCS_CMYK : JCS_RGB;
    jpeg->dct_method = JDCT_ISLOW;
    d->orientation = find_orientation(jpeg);
    (void)jpeg_start_decompress(jpeg);
    read_rows(d);
    (void)jpeg_finish_decompress(jpeg);
}

// The decoder is the caller's, so that it is what it was left as.
static void try_to_decode(decoder *d, const uint8_t *bytes, size_t nbytes)
{
    if (setjmp(d->failed) == 0) {
        decode(d, bytes, nbytes);
    }
}

cadre_status cadre_picture_jpeg(
    const uint8_t *bytes, size_t nbytes, cadre_picture *out, int *orientation)
{
    decoder d = {.out = out};
    d.jpeg.err = jpeg_std_error(&d.errors);
    d.errors.error_exit = on_error;
    d.errors.emit_message = on_message;
    d.progress.progress_monitor = on_progress;
    // Before the library knows it: creating may fail already.
    d.jpeg.client_data = &d;
    try_to_decode(&d, bytes, nbytes);
    jpeg_destroy_decompress(&d.jpeg);
    *orientation = d.orientation;
    return d.status;
}

const char *cadre_picture_decoder(void)
{
    return "libjpeg-turbo " NAME_OF(LIBJPEG_TURBO_VERSION);
}
