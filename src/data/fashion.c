// SPDX-License-Identifier: Apache-2.0

#include "data/fashion.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/hash.h"
#include "data/idx_file.h"
#include "data/sparse_rows.h"
#include "kernel/vector.h"
#include <stdio.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, CLASSES = 10 };

// More than any data set of this kind holds; a header that says more lies.
enum { MOST_SAMPLES = 1000000 };

typedef struct fashion {
    cadre_dataset base;
    cadre_idx_file images;   // (n_samples, PIXELS), kept
    cadre_sparse_rows *rows; // the same in memory; NULL: images are kept
    uint8_t *labels;         // (n_samples)
} fashion;

static fashion *as_fashion(cadre_dataset *dataset)
{
    return (fashion *)dataset;
}

static const fashion *as_const_fashion(const cadre_dataset *dataset)
{
    return (const fashion *)dataset;
}

static cadre_status check_labels(const cadre_idx_file *file, const fashion *f)
{
    for (int64_t i = 0; i < f->base.n_samples; i++) {
        if (f->labels[i] >= CLASSES) {
            return cadre_idx_corrupt(file,
                "has label %d at place %lld, but classes are 0 to %d",
                f->labels[i], (long long)i, CLASSES - 1);
        }
    }
    return CADRE_OK;
}

static cadre_status take_labels(cadre_idx_file *file, fashion *f)
{
    int64_t n = file->extents[0];
    if (n < 1 || n > MOST_SAMPLES) {
        return cadre_idx_corrupt(file,
            "announces %lld labels; 1 to %d are possible", (long long)n,
            (int)MOST_SAMPLES);
    }
    f->labels = cadre_alloc_array((size_t)n, 1);
    if (f->labels == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    f->base.n_samples = n;
    CADRE_TRY(cadre_idx_read(file, f->labels, n));
    return check_labels(file, f);
}

static cadre_status append_piece(
    void *ctx, const uint8_t *piece, int64_t nbytes)
{
    return cadre_sparse_rows_append(ctx, piece, nbytes);
}

// After the labels: a count that matches theirs bounds what is unpacked.
static cadre_status check_images(const cadre_idx_file *file, const fashion *f)
{
    int64_t n = f->base.n_samples;
    if (file->extents[1] != SIDE || file->extents[2] != SIDE) {
        return cadre_idx_corrupt(file,
            "holds images of %lld x %lld instead of %d x %d",
            (long long)file->extents[1], (long long)file->extents[2], SIDE,
            SIDE);
    }
    if (file->extents[0] != n) {
        return cadre_idx_corrupt(file,
            "announces %lld images, but its file of labels has %lld",
            (long long)file->extents[0], (long long)n);
    }
    return CADRE_OK;
}

static void set_content_hash(fashion *f, uint64_t images)
{
    f->base.content_hash =
        cadre_hash(f->labels, (size_t)f->base.n_samples, images);
}

static cadre_status keep_images(cadre_idx_file *file, fashion *f)
{
    uint64_t hash;
    CADRE_TRY(check_images(file, f));
    CADRE_TRY(cadre_idx_keep(file, f->base.n_samples * PIXELS, &hash));
    set_content_hash(f, hash);
    f->images = *file;
    *file = (cadre_idx_file){0};
    return CADRE_OK;
}

static cadre_status hold_images(cadre_idx_file *file, fashion *f)
{
    uint64_t hash;
    int64_t n = f->base.n_samples;
    CADRE_TRY(check_images(file, f));
    CADRE_TRY(cadre_sparse_rows_create(n, PIXELS, &f->rows));
    CADRE_TRY(cadre_idx_each(file, n * PIXELS, append_piece, f->rows, &hash));
    set_content_hash(f, hash);
    return CADRE_OK;
}

// Adds to a failure what can be done about it.
static cadre_status advise(cadre_status status)
{
    switch (status) {
    case CADRE_ERR_NOT_FOUND:
        return cadre_fail(status,
            "%s; install the Debian package dataset-fashion-mnist, or set "
            "data.path to a folder that has it",
            cadre_error_text());
    case CADRE_ERR_CORRUPT:
        return cadre_fail(status,
            "%s; install the Debian package dataset-fashion-mnist again, or "
            "set data.path to a folder with sound files",
            cadre_error_text());
    default:
        return status;
    }
}

// Opens a file of the split, hands it to take, and closes it if it is left.
static cadre_status with_file(const cadre_dataset_options *options,
    const char *rest, int n_dims, fashion *f,
    cadre_status (*take)(cadre_idx_file *file, fashion *f))
{
    char name[64];
    snprintf(name, sizeof(name), "%s-%s",
        options->split == CADRE_SPLIT_TRAIN ? "train" : "t10k", rest);

    cadre_idx_file file;
    cadre_status status = cadre_idx_open(options->path, name, n_dims, &file);
    if (status == CADRE_OK) {
        status = take(&file, f);
        cadre_idx_close(&file);
    }
    return advise(status);
}

static void close_fashion(cadre_dataset *dataset)
{
    fashion *f = as_fashion(dataset);
    cadre_idx_close(&f->images);
    cadre_sparse_rows_destroy(f->rows);
    cadre_free(f->labels);
    cadre_free(f);
}

static cadre_status open_fashion(
    const cadre_dataset_options *options, cadre_dataset **out)
{
    fashion *f = cadre_alloc(sizeof(*f));
    if (f == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    f->base = (cadre_dataset){
        .ops = &cadre_fashion,
        .sample_elements = PIXELS,
        .channels = 1,
        .height = SIDE,
        .width = SIDE,
        .n_classes = CLASSES,
    };
    cadre_status status =
        with_file(options, "labels-idx1-ubyte", 1, f, take_labels);
    if (status == CADRE_OK) {
        status = with_file(options, "images-idx3-ubyte", 3, f,
            options->in_memory ? hold_images : keep_images);
    }
    if (status != CADRE_OK) {
        close_fashion(&f->base);
        return status;
    }
    *out = &f->base;
    return CADRE_OK;
}

// Mean and deviation of the training set's pixels, in the form that PyTorch's
// users know.  Two divisions cost less than a look into a table, since eight or
// more pixels go at once.
CADRE_VECTOR_BODY void normalize_body(
    float *restrict x, const uint8_t *restrict pixels, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = ((float)pixels[i] / 255.0f - 0.2860f) / 0.3530f;
    }
}
CADRE_VECTOR(normalize,
    (float *restrict x, const uint8_t *restrict pixels, size_t count),
    (x, pixels, count));

static void expect_fashion(const cadre_dataset *dataset, cadre_place place)
{
    const fashion *f = as_const_fashion(dataset);
    __builtin_prefetch(&f->labels[place.sample]);
    if (f->rows != NULL) {
        cadre_sparse_rows_expect(f->rows, place.sample);
    }
}

static cadre_status read_pixels(
    const fashion *f, int64_t sample, uint8_t pixels[PIXELS])
{
    if (f->rows != NULL) {
        cadre_sparse_rows_read(f->rows, sample, pixels);
        return CADRE_OK;
    }
    return advise(
        cadre_idx_read_at(&f->images, sample * PIXELS, pixels, PIXELS));
}

static cadre_status read_fashion(
    const cadre_dataset *dataset, cadre_place place, float *x, int32_t *label)
{
    const fashion *f = as_const_fashion(dataset);
    uint8_t pixels[PIXELS];
    CADRE_TRY(read_pixels(f, place.sample, pixels));
    normalize[cadre_isa_in_use()](x, pixels, PIXELS);
    *label = f->labels[place.sample];
    return CADRE_OK;
}

const cadre_dataset_ops cadre_fashion = {
    .kind = "fashion",
    .default_path = "/usr/share/datasets/fashion-mnist",
    .open = open_fashion,
    .expect = expect_fashion,
    .read = read_fashion,
    .close = close_fashion,
};
