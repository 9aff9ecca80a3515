// SPDX-License-Identifier: Apache-2.0
//
// The one thing in a photograph's Exif that changes what it shows.
//
// Threads: any.

#ifndef CADRE_DATA_EXIF_H
#define CADRE_DATA_EXIF_H

#include <stddef.h>
#include <stdint.h>

/**
 * The orientation, 1 to 8, in a JPEG file's APP1 marker: "Exif", two zeros, and
 * the header of a TIFF file.  0 if there is none, or none that can be read.
 */
int cadre_exif_orientation(const uint8_t *marker, size_t nbytes);

#endif // CADRE_DATA_EXIF_H
