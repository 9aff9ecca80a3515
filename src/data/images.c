// SPDX-License-Identifier: Apache-2.0

#include "data/images.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"
#include "data/augment.h"
#include "data/image_list.h"
#include "data/picture.h"
#include "data/resample.h"
#include "data/whole_file.h"
#include "kernel/vector.h"
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHANNELS = 3, LEAST_SIDE = 8, MOST_SIDE = 1024 };

// Larger than any picture that is accepted is packed.
enum { MOST_FILE_BYTES = 1 << 28 };

// Whoever has so many damaged images in a row has no images.
enum { MOST_SKIPPED = 100 };

// What a thread needs to read an image.
typedef struct desk {
    struct desk *next;
    uint8_t *file;
    size_t file_room; // bytes
    cadre_picture picture;
    cadre_picture spare;
    cadre_resampler resampler;
} desk;

// What reading changes of a data set.
typedef struct workshop {
    pthread_mutex_t mu;
    desk *idle;             // guarded by mu
    atomic_uchar damaged[]; // per image: known to be; relaxed, a fact by itself
} workshop;

typedef struct images {
    cadre_dataset base;
    cadre_image_list list;
    bool augment;
    bool skip_damaged;
    uint64_t seed;
    workshop *workshop;
} images;

static images *as_images(cadre_dataset *dataset)
{
    return (images *)dataset;
}

static const images *as_const_images(const cadre_dataset *dataset)
{
    return (const images *)dataset;
}

// --- desks ---

static desk *borrow_desk(workshop *w)
{
    pthread_mutex_lock(&w->mu);
    desk *b = w->idle;
    if (b != NULL) {
        w->idle = b->next;
    }
    pthread_mutex_unlock(&w->mu);
    return b != NULL ? b : cadre_alloc(sizeof(*b));
}

static void return_desk(workshop *w, desk *b)
{
    pthread_mutex_lock(&w->mu);
    b->next = w->idle;
    w->idle = b;
    pthread_mutex_unlock(&w->mu);
}

static void destroy_workshop(workshop *w)
{
    if (w == NULL) {
        return;
    }
    for (desk *b = w->idle; b != NULL;) {
        desk *next = b->next;
        cadre_free(b->file);
        cadre_picture_fini(&b->picture);
        cadre_picture_fini(&b->spare);
        cadre_resampler_fini(&b->resampler);
        cadre_free(b);
        b = next;
    }
    pthread_mutex_destroy(&w->mu);
    cadre_free(w);
}

// --- one image ---

static cadre_status make_room(desk *b, size_t nbytes)
{
    if (nbytes <= b->file_room) {
        return CADRE_OK;
    }
    cadre_free(b->file);
    b->file_room = 0;
    b->file = cadre_alloc(nbytes);
    if (b->file == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    b->file_room = nbytes;
    return CADRE_OK;
}

static cadre_status read_open(
    int fd, const char *path, int64_t expected, desk *b)
{
    struct stat about;
    if (fstat(fd, &about) != 0) {
        return cadre_fail_errno(CADRE_ERR_IO, errno, "cannot read '%s'", path);
    }
    if (about.st_size != expected) {
        return cadre_fail(CADRE_ERR_IO,
            "'%s' has changed: it had %" PRId64 " bytes when the run began, "
            "and has %" PRId64,
            path, expected, (int64_t)about.st_size);
    }
    if (expected > MOST_FILE_BYTES) {
        return cadre_fail(
            CADRE_ERR_CORRUPT, "has more than %d bytes", (int)MOST_FILE_BYTES);
    }
    CADRE_TRY(make_room(b, (size_t)expected));
    return cadre_whole_file_fill(fd, path, b->file, (size_t)expected);
}

static cadre_status read_picture(const char *path, int64_t nbytes, desk *b)
{
    int fd;
    CADRE_TRY(cadre_regular_file_open(path, &fd));
    cadre_status status = read_open(fd, path, nbytes, b);
    close(fd);
    if (status == CADRE_OK) {
        status = cadre_picture_decode(
            b->file, (size_t)nbytes, &b->picture, &b->spare);
    }
    return status == CADRE_ERR_CORRUPT
               ? cadre_fail(status, "'%s' %s", path, cadre_error_text())
               : status;
}

// Says so once of each image.
static void skip(const images *s, int64_t index)
{
    atomic_uchar *known = &s->workshop->damaged[index];
    if (atomic_exchange_explicit(known, 1, memory_order_relaxed) == 0) {
        cadre_log(
            CADRE_LOG_WARN, "data", "%s; it is skipped", cadre_error_text());
    }
}

static bool is_skipped(const images *s, int64_t index)
{
    return atomic_load_explicit(
               &s->workshop->damaged[index], memory_order_relaxed) != 0;
}

static cadre_status decode_image(const images *s, int64_t index, desk *b)
{
    char *path = cadre_image_list_path(&s->list, index);
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = read_picture(path, s->list.images[index].nbytes, b);
    cadre_free(path);
    if (status == CADRE_ERR_CORRUPT && s->skip_damaged) {
        skip(s, index);
    } else if (status == CADRE_ERR_CORRUPT) {
        return cadre_fail(status,
            "%s; replace or remove it, or set data.damaged to skip",
            cadre_error_text());
    }
    return status;
}

// The image at a place, or the next that is sound: *index says which.
static cadre_status decode_sound(const images *s, int64_t *index, desk *b)
{
    for (int i = 0; i < MOST_SKIPPED; i++) {
        if (!is_skipped(s, *index)) {
            cadre_status status = decode_image(s, *index, b);
            if (status != CADRE_ERR_CORRUPT || !s->skip_damaged) {
                return status;
            }
        }
        *index = (*index + 1) % s->base.n_samples;
    }
    return cadre_fail(CADRE_ERR_CORRUPT,
        "%d images of '%s' in a row are damaged, so skipping is no help",
        (int)MOST_SKIPPED, s->list.folder);
}

// One colour of a square of pixels, normalised.
CADRE_VECTOR_BODY void normalize_body(float *restrict x,
    const uint8_t *restrict pixels, size_t count, float mean, float deviation)
{
    for (size_t i = 0; i < count; i++) {
        x[i] = ((float)pixels[i * CHANNELS] / 255.0f - mean) / deviation;
    }
}
CADRE_VECTOR(normalize,
    (float *restrict x, const uint8_t *restrict pixels, size_t count,
        float mean, float deviation),
    (x, pixels, count, mean, deviation));

// Mean and deviation of ImageNet's colours, as they are used everywhere.
static void normalize_all(float *x, const uint8_t *pixels, size_t count)
{
    static const float means[] = {0.485f, 0.456f, 0.406f};
    static const float deviations[] = {0.229f, 0.224f, 0.225f};
    for (int c = 0; c < CHANNELS; c++) {
        normalize[cadre_isa_in_use()](
            x + (size_t)c * count, pixels + c, count, means[c], deviations[c]);
    }
}

static cadre_status read_with(
    const images *s, cadre_place place, desk *b, float *x, int32_t *label)
{
    int64_t index = place.sample;
    CADRE_TRY(decode_sound(s, &index, b));
    const cadre_picture *p = &b->picture;
    const int side = (int)s->base.height;
    const cadre_view view =
        s->augment ? cadre_augment_random(p->width, p->height, side, s->seed,
                         place.epoch, place.sample)
                   : cadre_augment_centre(p->width, p->height, side);
    const uint8_t *pixels;
    CADRE_TRY(cadre_resample(&b->resampler, p, &view, &pixels));
    normalize_all(x, pixels, (size_t)side * (size_t)side);
    *label = s->list.images[index].label;
    return CADRE_OK;
}

static cadre_status read_images(
    const cadre_dataset *dataset, cadre_place place, float *x, int32_t *labels)
{
    const images *s = as_const_images(dataset);
    desk *b = borrow_desk(s->workshop);
    if (b == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = read_with(s, place, b, x, labels);
    return_desk(s->workshop, b);
    return status;
}

// --- the whole ---

static void close_images(cadre_dataset *dataset)
{
    images *s = as_images(dataset);
    destroy_workshop(s->workshop);
    cadre_image_list_fini(&s->list);
    cadre_free(s);
}

static cadre_status fill(const cadre_dataset_options *options, images *s)
{
    CADRE_TRY(cadre_image_list_make(options->path, options->split, &s->list));
    s->workshop = cadre_alloc_flex(sizeof(*s->workshop),
        (size_t)s->list.n_images, sizeof(s->workshop->damaged[0]));
    if (s->workshop == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    pthread_mutex_init(&s->workshop->mu, NULL);
    s->augment = options->augment && options->split == CADRE_SPLIT_TRAIN;
    s->skip_damaged = options->skip_damaged;
    s->seed = options->seed;
    s->base = (cadre_dataset){
        .ops = &cadre_images,
        .n_samples = s->list.n_images,
        .sample_elements = CHANNELS * options->side * options->side,
        .channels = CHANNELS,
        .height = options->side,
        .width = options->side,
        .n_classes = s->list.n_classes,
        .content_hash = cadre_image_list_hash(&s->list),
        .decodes = true,
    };
    return CADRE_OK;
}

static cadre_status open_images(
    const cadre_dataset_options *options, cadre_dataset **out)
{
    if (options->path == NULL) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "data.path is missing: it has to name a folder with "
            "train/<class>/ and val/<class>/, where images lie");
    }
    if (options->side < LEAST_SIDE || options->side > MOST_SIDE) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "data.side is %" PRId64 "; images can be %d to %d pixels wide",
            options->side, (int)LEAST_SIDE, (int)MOST_SIDE);
    }
    images *s = cadre_alloc(sizeof(*s));
    if (s == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = fill(options, s);
    if (status != CADRE_OK) {
        close_images(&s->base);
        return status;
    }
    *out = &s->base;
    return CADRE_OK;
}

const cadre_dataset_ops cadre_images = {
    .kind = "images",
    .open = open_images,
    .read = read_images,
    .close = close_images,
};
