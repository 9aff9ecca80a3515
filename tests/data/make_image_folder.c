// SPDX-License-Identifier: Apache-2.0
//
// Makes a folder of JPEG images by class out of Fashion-MNIST, scaled up, for
// tests and measurements:
//
//     make_image_folder FOLDER SIDE N_TRAIN N_VAL
//
// FOLDER must not be there.  Exit status: 0, or 1 with a sentence.

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "data/idx_file.h"
#include "data/resample.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

enum { FROM = 28, PIXELS = FROM * FROM };

typedef struct split {
    const char *name;  // train
    const char *files; // as Fashion-MNIST calls it
    int n;
} split;

// All elements of a file, for cadre_free().
static cadre_status read_elements(const char *files, const char *rest,
    int n_dims, uint8_t **out, int64_t *count)
{
    char name[64];
    cadre_idx_file file;
    snprintf(name, sizeof(name), "%s-%s", files, rest);
    CADRE_TRY(cadre_idx_open(
        "/usr/share/datasets/fashion-mnist", name, n_dims, &file));
    int64_t nbytes = file.extents[0] * (n_dims == 3 ? PIXELS : 1);
    uint8_t *elements = cadre_alloc((size_t)nbytes);
    cadre_status status = elements == NULL
                              ? CADRE_ERR_NO_MEMORY
                              : cadre_idx_read(&file, elements, nbytes);
    *count = file.extents[0];
    cadre_idx_close(&file);
    if (status != CADRE_OK) {
        cadre_free(elements);
        return status;
    }
    *out = elements;
    return CADRE_OK;
}

static void write_jpeg(FILE *stream, const uint8_t *pixels, int side)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, stream);
    jpeg.image_width = jpeg.image_height = (JDIMENSION)side;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 90, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    uint8_t *row = cadre_alloc_array((size_t)side, 3);
    while (jpeg.next_scanline < jpeg.image_height) {
        memcpy(row, pixels + jpeg.next_scanline * (size_t)side * 3,
            (size_t)side * 3);
        (void)jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    cadre_free(row);
}

static cadre_status write_image(const char *folder, const split *s, int number,
    int label, const uint8_t *pixels, int side)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s/class-%d", folder, s->name, label);
    CADRE_TRY(cadre_make_folders(path));
    snprintf(path, sizeof(path), "%s/%s/class-%d/%06d.jpg", folder, s->name,
        label, number);
    FILE *stream = fopen(path, "wb");
    if (stream == NULL) {
        return cadre_fail(CADRE_ERR_IO, "cannot write '%s'", path);
    }
    write_jpeg(stream, pixels, side);
    return fclose(stream) == 0
               ? CADRE_OK
               : cadre_fail(CADRE_ERR_IO, "cannot write '%s'", path);
}

static cadre_status scale_image(const uint8_t *grey, int side,
    cadre_resampler *resampler, const uint8_t **pixels)
{
    uint8_t coloured[PIXELS * 3];
    for (int i = 0; i < PIXELS * 3; i++) {
        coloured[i] = grey[i / 3];
    }
    const cadre_picture picture = {
        .pixels = coloured, .width = FROM, .height = FROM};
    const cadre_view view = {.area = {0, 0, FROM, FROM},
        .width = side,
        .height = side,
        .side = side};
    return cadre_resample(resampler, &picture, &view, pixels);
}

static cadre_status write_split(const char *folder, const split *s, int side,
    const uint8_t *images, const uint8_t *labels)
{
    cadre_resampler resampler = {0};
    cadre_status status = CADRE_OK;
    for (int i = 0; i < s->n && status == CADRE_OK; i++) {
        const uint8_t *pixels;
        status =
            scale_image(images + (size_t)i * PIXELS, side, &resampler, &pixels);
        if (status == CADRE_OK) {
            status = write_image(folder, s, i, labels[i], pixels, side);
        }
    }
    cadre_resampler_fini(&resampler);
    return status;
}

static cadre_status make_split(const char *folder, const split *s, int side)
{
    uint8_t *images = NULL;
    uint8_t *labels = NULL;
    int64_t n = 0;
    cadre_status status =
        read_elements(s->files, "images-idx3-ubyte", 3, &images, &n);
    if (status == CADRE_OK) {
        status = read_elements(s->files, "labels-idx1-ubyte", 1, &labels, &n);
    }
    if (status == CADRE_OK) {
        status = s->n > n ? cadre_fail(CADRE_ERR_INVALID_ARG,
                                "there are only %d images", (int)n)
                          : write_split(folder, s, side, images, labels);
    }
    cadre_free(images);
    cadre_free(labels);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: make_image_folder FOLDER SIDE N_TRAIN N_VAL\n");
        return 1;
    }
    const int side = (int)strtol(argv[2], NULL, 10);
    const split splits[] = {
        {"train", "train", (int)strtol(argv[3], NULL, 10)},
        {"val", "t10k", (int)strtol(argv[4], NULL, 10)},
    };
    for (int i = 0; i < 2; i++) {
        if (make_split(argv[1], &splits[i], side) != CADRE_OK) {
            fprintf(stderr, "make_image_folder: %s\n", cadre_error_text());
            return 1;
        }
    }
    return 0;
}
