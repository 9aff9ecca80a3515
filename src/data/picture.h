// SPDX-License-Identifier: Apache-2.0
//
// A picture: what a JPEG or PNG file shows, as red, green and blue bytes.
//
// Nothing in a file is believed: sizes are checked before memory is taken, and
// what is cut or damaged is refused.  Which of the two formats a file has is
// seen from its first bytes.  Of JPEG files, grey and CMYK ones become RGB and
// the orientation that Exif gives is applied; of PNG files, transparency and
// whatever only describes colours are left out, and 16 bits become 8.
//
// Memory:  a picture keeps its memory for the next one and grows when it must;
//          the decoders take theirs from malloc() and give it back.
// Threads: any, for different pictures.

#ifndef CADRE_DATA_PICTURE_H
#define CADRE_DATA_PICTURE_H

#include "cadre/status.h"
#include <stddef.h>
#include <stdint.h>

// Pixels of the largest picture: 200 MB.  Photographs have less, and a file of
// some kilobytes can announce a thousand times that.
enum { CADRE_MOST_PIXELS = 1 << 26 };

typedef struct cadre_picture {
    uint8_t *pixels; // (height, width, 3)
    size_t room;     // bytes
    int width;
    int height;
} cadre_picture;

/**
 * Decodes a file's bytes into *out; *spare is for its use.  Both begin as {0}
 * and end with cadre_picture_fini().
 *
 * Errors: CADRE_ERR_CORRUPT  it is damaged or no picture; says how, as a
 *                            sentence that a file's name goes before
 *         CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_picture_decode(const uint8_t *bytes, size_t nbytes,
    cadre_picture *out, cadre_picture *spare);
void cadre_picture_fini(cadre_picture *picture);

// --- for the decoders ---

/** Makes room for a picture of this size.  Errors: as above */
cadre_status cadre_picture_size(
    cadre_picture *picture, int64_t width, int64_t height);

/** *orientation is what Exif says, 1 to 8. */
cadre_status cadre_picture_jpeg(
    const uint8_t *bytes, size_t nbytes, cadre_picture *out, int *orientation);
cadre_status cadre_picture_png(
    const uint8_t *bytes, size_t nbytes, cadre_picture *out);

/** The decoder whose version decides bits: "libjpeg-turbo 2.1.5". */
const char *cadre_picture_decoder(void);

#endif // CADRE_DATA_PICTURE_H
