// SPDX-License-Identifier: Apache-2.0
//
// Folders of images: what is listed, what a sample shows, what is done about
// damage; and how parts of pictures are drawn.

#include "data/images.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "data/augment.h"
#include "data/loader.h"
#include "kernel/vector.h"
#include "sample_at.h"
#include "state/leaf.h"
#include "support/check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIDE = 24, ELEMENTS = 3 * SIDE * SIDE };

static char root[64];

static void path_of(const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", root, name);
}

static void make_folder(const char *name)
{
    char path[256];
    path_of(name, path);
    assert_int_equal(mkdir(path, 0777), 0);
}

static void write_bytes(const char *name, const void *data, size_t nbytes)
{
    char path[256];
    path_of(name, path);
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(data, 1, nbytes, stream), nbytes);
    assert_int_equal(fclose(stream), 0);
}

// Puts one of the stored images somewhere, or its first bytes.
static void put(const char *image, const char *name, size_t most)
{
    char path[512];
    uint8_t bytes[4096];
    snprintf(path, sizeof(path), "%s/%s", CADRE_TEST_IMAGES, image);
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    size_t nbytes = fread(bytes, 1, sizeof(bytes), stream);
    assert_int_equal(fclose(stream), 0);
    write_bytes(name, bytes, nbytes < most ? nbytes : most);
}

enum { WHOLE = 4096, N_TRAIN = 5, N_TEST = 2 };

static int make_images(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/cadre-images-XXXXXX");
    if (mkdtemp(root) == NULL) {
        return -1;
    }
    make_folder("train");
    make_folder("train/bees");
    make_folder("train/ants");
    make_folder("val");
    make_folder("val/ants");
    make_folder("val/bees");
    put("rgb.png", "train/bees/d.png", WHOLE);
    put("photo.jpg", "train/ants/b.jpg", WHOLE);
    put("noise.jpg", "train/ants/a.JPEG", WHOLE);
    put("grey.jpg", "train/bees/e.Jpg", WHOLE);
    put("rgb.png", "train/bees/c.jpg", WHOLE); // the name is wrong
    put("turned-6.jpg", "val/ants/f.jpg", WHOLE);
    put("photo.jpg", "val/bees/g.jpg", WHOLE);
    return 0;
}

static int remove_images(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -r '%s'", root);
    return system(command);
}

static cadre_dataset_options options_of(cadre_split split)
{
    return (cadre_dataset_options){
        .path = root, .split = split, .side = SIDE, .seed = 7};
}

static cadre_dataset *open_images(const cadre_dataset_options *options)
{
    cadre_dataset *dataset = NULL;
    CHECK_OK(cadre_dataset_open("images", options, &dataset));
    return dataset;
}

static void refused(cadre_status status, const char *words)
{
    const cadre_dataset_options options = options_of(CADRE_SPLIT_TRAIN);
    cadre_dataset *dataset = NULL;
    CHECK_FAILS(
        cadre_dataset_open("images", &options, &dataset), status, words);
    assert_null(dataset);
}

static uint64_t read_hash(
    const cadre_dataset *dataset, int64_t epoch, int64_t sample, int32_t *label)
{
    static float x[ELEMENTS];
    const cadre_place place = {.epoch = epoch, .sample = sample};
    CHECK_OK(cadre_dataset_read(dataset, place, x, label));
    return cadre_hash(x, sizeof(x), 0);
}

// --- what is listed ---

static void lists_classes_and_images_by_name(void **state)
{
    (void)state;
    put("rgb.png", "train/ants/.hidden.png", WHOLE);
    put("rgb.png", "train/ants/notes.txt", WHOLE);
    put("rgb.png", "train/labels.png", WHOLE);
    const int32_t labels[N_TRAIN] = {0, 0, 1, 1, 1};
    cadre_dataset_options options = options_of(CADRE_SPLIT_TRAIN);
    cadre_dataset *dataset = open_images(&options);
    assert_int_equal(dataset->n_samples, N_TRAIN);
    assert_int_equal(dataset->n_classes, 2);
    assert_int_equal(dataset->channels, 3);
    assert_int_equal(dataset->height, SIDE);
    assert_int_equal(dataset->width, SIDE);
    uint64_t hashes[N_TRAIN];
    for (int i = 0; i < N_TRAIN; i++) {
        int32_t label = -1;
        hashes[i] = read_hash(dataset, 0, i, &label);
        assert_int_equal(label, labels[i]);
    }
    assert_true(hashes[2] == hashes[3]); // one picture, by two names
    assert_true(hashes[0] != hashes[1]);
    cadre_dataset_close(dataset);

    options.split = CADRE_SPLIT_TEST;
    dataset = open_images(&options);
    assert_int_equal(dataset->n_samples, N_TEST);
    cadre_dataset_close(dataset);
}

static uint64_t content_hash(void)
{
    const cadre_dataset_options options = options_of(CADRE_SPLIT_TRAIN);
    cadre_dataset *dataset = open_images(&options);
    uint64_t hash = dataset->content_hash;
    cadre_dataset_close(dataset);
    return hash;
}

static void the_hash_is_of_names_and_sizes(void **state)
{
    (void)state;
    uint64_t hash = content_hash();
    assert_true(content_hash() == hash);
    put("photo.jpg", "train/ants/b.jpg", 500);
    assert_true(content_hash() != hash);
    put("photo.jpg", "train/ants/b.jpg", WHOLE);
    assert_true(content_hash() == hash);
    put("photo.jpg", "train/ants/z.jpg", WHOLE);
    assert_true(content_hash() != hash);
}

static void refuses_other_folders(void **state)
{
    (void)state;
    make_folder("train/cats");
    refused(CADRE_ERR_INVALID_ARG,
        "class 'cats' is in train and not in val; both need");
    make_folder("val/cats");
    refused(CADRE_ERR_INVALID_ARG, "train/cats' has no image");
    make_folder("train/cats/more");
    refused(CADRE_ERR_INVALID_ARG,
        "train/cats/more' is a folder; images have to lie");
    make_folder("val/dogs");
    refused(CADRE_ERR_INVALID_ARG, "class 'dogs' is in val and not in train");
}

static void refuses_odd_files(void **state)
{
    (void)state;
    char path[256];
    path_of("train/ants/pipe.jpg", path);
    assert_int_equal(mkfifo(path, 0666), 0);
    refused(CADRE_ERR_INVALID_ARG, "pipe.jpg' is no ordinary file");
    assert_int_equal(unlink(path), 0);

    path_of("train/ants/loop.jpg", path);
    assert_int_equal(symlink("loop.jpg", path), 0);
    refused(CADRE_ERR_IO, "loop.jpg': Too many levels of symbolic links");
    assert_int_equal(unlink(path), 0);

    assert_int_equal(symlink("b.jpg", path), 0); // an image, by another name
    const cadre_dataset_options options = options_of(CADRE_SPLIT_TRAIN);
    cadre_dataset *dataset = open_images(&options);
    assert_int_equal(dataset->n_samples, N_TRAIN + 1);
    cadre_dataset_close(dataset);

    path_of("train/ants/again", path);
    assert_int_equal(symlink("../../train", path), 0);
    refused(CADRE_ERR_INVALID_ARG, "train/ants/again' is a folder");
}

static void refuses_what_is_missing(void **state)
{
    (void)state;
    cadre_dataset_options options = options_of(CADRE_SPLIT_TRAIN);
    cadre_dataset *dataset = NULL;
    options.path = "/nonexistent";
    CHECK_FAILS(cadre_dataset_open("images", &options, &dataset),
        CADRE_ERR_NOT_FOUND, "'/nonexistent/train'");
    options.path = NULL;
    CHECK_FAILS(cadre_dataset_open("images", &options, &dataset),
        CADRE_ERR_INVALID_ARG, "data.path is missing");
    options = options_of(CADRE_SPLIT_TRAIN);
    options.side = 7;
    CHECK_FAILS(cadre_dataset_open("images", &options, &dataset),
        CADRE_ERR_INVALID_ARG, "data.side is 7");
    assert_null(dataset);
}

// --- what a sample shows ---

// The value of one colour of one pixel, by the formula.
static float value_of(const cadre_picture *p, int channel, int x, int y)
{
    const cadre_view view = cadre_augment_centre(p->width, p->height, SIDE);
    cadre_resampler r = {0};
    const uint8_t *pixels;
    CHECK_OK(cadre_resample(&r, p, &view, &pixels));
    int byte = pixels[(y * SIDE + x) * 3 + channel];
    cadre_resampler_fini(&r);
    const float means[] = {0.485f, 0.456f, 0.406f};
    const float deviations[] = {0.229f, 0.224f, 0.225f};
    return ((float)byte / 255.0f - means[channel]) / deviations[channel];
}

static void the_test_shows_the_middle(void **state)
{
    (void)state;
    uint8_t bytes[4096];
    FILE *stream = fopen(CADRE_TEST_IMAGES "/photo.jpg", "rb");
    assert_non_null(stream);
    size_t nbytes = fread(bytes, 1, sizeof(bytes), stream);
    assert_int_equal(fclose(stream), 0);
    cadre_picture p = {0};
    cadre_picture spare = {0};
    CHECK_OK(cadre_picture_decode(bytes, nbytes, &p, &spare));

    cadre_dataset_options options = options_of(CADRE_SPLIT_TEST);
    options.augment = true; // which is for training
    cadre_dataset *dataset = open_images(&options);
    static float x[ELEMENTS];
    int32_t label = -1;
    const cadre_place place = {.epoch = 3, .sample = 1};
    const cadre_isa before = cadre_isa_in_use();
    for (int isa = 0; isa < CADRE_N_ISAS; isa++) {
        if (!cadre_isa_use((cadre_isa)isa)) {
            continue;
        }
        CHECK_OK(cadre_dataset_read(dataset, place, x, &label));
        assert_int_equal(label, 1);
        for (int i = 0; i < ELEMENTS; i += 5) {
            float wanted =
                value_of(&p, i / (SIDE * SIDE), i % SIDE, i / SIDE % SIDE);
            assert_true(x[i] == wanted);
        }
    }
    assert_true(cadre_isa_use(before));
    cadre_dataset_close(dataset);
    cadre_picture_fini(&p);
    cadre_picture_fini(&spare);
}

static void augmentation_is_a_function(void **state)
{
    (void)state;
    cadre_dataset_options options = options_of(CADRE_SPLIT_TRAIN);
    cadre_dataset *plain = open_images(&options);
    options.augment = true;
    cadre_dataset *augmented = open_images(&options);
    options.seed++;
    cadre_dataset *other = open_images(&options);
    int32_t label;
    for (int i = 0; i < N_TRAIN; i++) {
        uint64_t middle = read_hash(plain, 0, i, &label);
        assert_true(read_hash(plain, 5, i, &label) == middle);
        uint64_t part = read_hash(augmented, 0, i, &label);
        assert_true(part != middle);
        assert_true(read_hash(augmented, 1, i, &label) != part);
        assert_true(read_hash(augmented, 0, i, &label) == part);
        assert_true(read_hash(other, 0, i, &label) != part);
    }
    cadre_dataset_close(plain);
    cadre_dataset_close(augmented);
    cadre_dataset_close(other);
}

static void parts_are_drawn_from_all_of_a_picture(void **state)
{
    (void)state;
    enum { N = 4000, WIDTH = 500, HEIGHT = 400 };
    int n_mirrored = 0;
    int n_wide = 0;
    double least = 1;
    double most = 0;
    int64_t left = 0;
    for (int i = 0; i < N; i++) {
        const cadre_view v =
            cadre_augment_random(WIDTH, HEIGHT, SIDE, 1, i % 7, i);
        const cadre_area *a = &v.area;
        assert_true(a->x >= 0 && a->x + a->width <= WIDTH);
        assert_true(a->y >= 0 && a->y + a->height <= HEIGHT);
        double part = (double)a->width * a->height / (WIDTH * HEIGHT);
        double ratio = (double)a->width / a->height;
        assert_true(part > 0.079 && part <= 1);
        assert_true(ratio > 0.74 && ratio < 1.35);
        least = part < least ? part : least;
        most = part > most ? part : most;
        n_mirrored += v.mirrored;
        n_wide += ratio > 1;
        left += a->x + a->width / 2;
    }
    assert_true(least < 0.1 && most > 0.9);
    assert_in_range(n_mirrored, N * 45 / 100, N * 55 / 100);
    assert_in_range(n_wide, N * 45 / 100, N * 60 / 100);
    assert_in_range(left / N, WIDTH * 47 / 100, WIDTH * 53 / 100);
}

static void narrow_pictures_have_parts_too(void **state)
{
    (void)state;
    const int sizes[][2] = {{1, 1}, {1, 60000}, {60000, 1}, {3, 2}, {9, 1000}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int n = 0; n < 200; n++) {
            const cadre_view v =
                cadre_augment_random(sizes[i][0], sizes[i][1], SIDE, 3, 0, n);
            assert_true(v.area.width >= 1 && v.area.height >= 1);
            assert_true(v.area.x >= 0 && v.area.y >= 0);
            assert_true(v.area.x + v.area.width <= sizes[i][0]);
            assert_true(v.area.y + v.area.height <= sizes[i][1]);
        }
    }
}

// As Resize(256) and CenterCrop(224) of torchvision.
static void the_middle_is_that_of_torchvision(void **state)
{
    (void)state;
    const int cases[][6] = {{500, 375, 341, 256, 58, 16},
        {375, 500, 256, 341, 16, 58}, {256, 256, 256, 256, 16, 16},
        {100, 33, 775, 256, 276, 16}, {333, 222, 384, 256, 80, 16}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int *c = cases[i];
        const cadre_view v = cadre_augment_centre(c[0], c[1], 224);
        assert_int_equal(v.area.width, c[0]);
        assert_int_equal(v.area.height, c[1]);
        assert_int_equal(v.width, c[2]);
        assert_int_equal(v.height, c[3]);
        assert_int_equal(v.x, c[4]);
        assert_int_equal(v.y, c[5]);
        assert_false(v.mirrored);
    }
}

// --- damage ---

static void a_damaged_image_is_refused_by_name(void **state)
{
    (void)state;
    put("photo.jpg", "train/ants/b.jpg", 900);
    const cadre_dataset_options options = options_of(CADRE_SPLIT_TRAIN);
    cadre_dataset *dataset = open_images(&options);
    static float x[ELEMENTS];
    int32_t label;
    const cadre_place place = {.sample = 1};
    CHECK_FAILS(cadre_dataset_read(dataset, place, x, &label),
        CADRE_ERR_CORRUPT, "train/ants/b.jpg' is a JPEG file that cannot");
    assert_non_null(strstr(cadre_error_text(), "set data.damaged to skip"));
    write_bytes("train/ants/b.jpg", "", 0);
    CHECK_FAILS(cadre_dataset_read(dataset, place, x, &label), CADRE_ERR_IO,
        "b.jpg' has changed: it had 900 bytes");
    cadre_dataset_close(dataset);
}

static void the_next_takes_a_damaged_one_s_place(void **state)
{
    (void)state;
    cadre_dataset_options options = options_of(CADRE_SPLIT_TRAIN);
    int32_t label;
    cadre_dataset *sound = open_images(&options);
    uint64_t first = read_hash(sound, 0, 0, &label);
    uint64_t third = read_hash(sound, 0, 2, &label);
    cadre_dataset_close(sound);

    put("photo.jpg", "train/ants/b.jpg", 900);
    put("grey.jpg", "train/bees/e.Jpg", 300);
    options.skip_damaged = true;
    cadre_dataset *dataset = open_images(&options);
    assert_int_equal(dataset->n_samples, N_TRAIN);
    for (int again = 0; again < 2; again++) {
        assert_true(read_hash(dataset, 0, 1, &label) == third);
        assert_int_equal(label, 1); // of what is shown
        assert_true(read_hash(dataset, 0, N_TRAIN - 1, &label) == first);
        assert_int_equal(label, 0);
    }
    cadre_dataset_close(dataset);
}

static void nothing_but_damage_is_refused(void **state)
{
    (void)state;
    const char *const names[] = {
        "ants/a.JPEG", "ants/b.jpg", "bees/c.jpg", "bees/d.png", "bees/e.Jpg"};
    for (size_t i = 0; i < N_TRAIN; i++) {
        char name[64];
        snprintf(name, sizeof(name), "train/%s", names[i]);
        write_bytes(name, "no image", 8);
    }
    cadre_dataset_options options = options_of(CADRE_SPLIT_TRAIN);
    options.skip_damaged = true;
    cadre_dataset *dataset = open_images(&options);
    static float x[ELEMENTS];
    int32_t label;
    CHECK_FAILS(cadre_dataset_read(dataset, (cadre_place){0}, x, &label),
        CADRE_ERR_CORRUPT, "in a row are damaged");
    cadre_dataset_close(dataset);
}

// --- loading ---

// Hashes what a step's samples are, wherever they were read.
static void load(const cadre_dataset *dataset, int world_size, int n_threads,
    uint64_t hashes[2])
{
    hashes[0] = hashes[1] = 0;
    for (int rank = 0; rank < world_size; rank++) {
        const cadre_loader_options o = {
            .dataset = dataset,
            .seed = 5,
            .global_batch = 4,
            .first_step = 3,
            .n_steps = 2,
            .n_leaves = 4,
            .block = 1,
            .rank = rank,
            .world_size = world_size,
            .n_threads = n_threads,
        };
        const cadre_dealing dealing = {4, 1, world_size};
        cadre_loader *loader = NULL;
        CHECK_OK(cadre_loader_create(&o, &loader));
        for (int step = 0; step < 2; step++) {
            cadre_batch batch;
            CHECK_OK(cadre_loader_acquire(loader, &batch));
            for (int i = 0; i < cadre_dealing_rank_leaves(&dealing, rank);
                 i++) {
                int leaf = cadre_dealing_rank_leaf(&dealing, rank, i);
                cadre_leaf_data d = cadre_loader_leaf(loader, leaf);
                // A sum, since ranks come in any order.
                hashes[step] += cadre_hash(d.x,
                    (size_t)d.n_samples * ELEMENTS * sizeof(float),
                    (uint64_t)leaf);
            }
            cadre_loader_release(loader);
        }
        cadre_loader_destroy(loader);
    }
}

static void ranks_and_threads_change_no_bit(void **state)
{
    (void)state;
    put("photo.jpg", "train/ants/b.jpg", 900);
    cadre_dataset_options options = options_of(CADRE_SPLIT_TRAIN);
    options.augment = options.skip_damaged = true;
    cadre_dataset *dataset = open_images(&options);
    uint64_t wanted[2];
    load(dataset, 1, 1, wanted);
    for (int ranks = 1; ranks <= 3; ranks++) {
        for (int threads = 1; threads <= 4; threads += 3) {
            uint64_t found[2];
            load(dataset, ranks, threads, found);
            assert_true(found[0] == wanted[0] && found[1] == wanted[1]);
        }
    }
    cadre_dataset_close(dataset);
}

// The step that would have shown it fails, or one before it.
static void check_failing_loader(const cadre_dataset *dataset, int n_threads)
{
    const cadre_loader_options o = {
        .dataset = dataset,
        .global_batch = 1,
        .n_steps = 100,
        .n_leaves = 1,
        .block = 1,
        .world_size = 1,
        .n_threads = n_threads,
    };
    int64_t damaged = 0; // the step that shows image 1
    while (sample_at(0, 0, N_TRAIN, damaged) != 1) {
        damaged++;
    }
    cadre_loader *loader = NULL;
    cadre_batch batch;
    CHECK_OK(cadre_loader_create(&o, &loader));
    for (int64_t step = 0; step < damaged; step++) {
        cadre_status status = cadre_loader_acquire(loader, &batch);
        if (status != CADRE_OK) {
            break; // known already: the loader is ahead
        }
        cadre_loader_release(loader);
    }
    CHECK_FAILS(cadre_loader_acquire(loader, &batch), CADRE_ERR_CORRUPT,
        "train/ants/b.jpg");
    cadre_loader_destroy(loader);
}

static void a_loader_passes_on_what_failed(void **state)
{
    (void)state;
    put("photo.jpg", "train/ants/b.jpg", 900);
    const cadre_dataset_options options = options_of(CADRE_SPLIT_TRAIN);
    cadre_dataset *dataset = open_images(&options);
    for (int i = 0; i < 30; i++) {
        check_failing_loader(dataset, 1 + i % 3);
    }
    cadre_dataset_close(dataset);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const cadre_dataset_options options = options_of(CADRE_SPLIT_TRAIN);
    static float x[ELEMENTS];
    int32_t label;
    cadre_status status = CADRE_ERR_NO_MEMORY;
    int failures = 0;
    for (; status != CADRE_OK; failures++) {
        cadre_dataset *dataset = NULL;
        cadre_alloc_fail_after(failures);
        status = cadre_dataset_open("images", &options, &dataset);
        if (status == CADRE_OK) {
            status = cadre_dataset_read(dataset, (cadre_place){0}, x, &label);
        }
        cadre_alloc_fail_after(-1);
        cadre_dataset_close(dataset);
        assert_true(status == CADRE_OK || status == CADRE_ERR_NO_MEMORY);
        assert_in_range(failures, 0, 200);
    }
    assert_true(failures > 20);
}

#define WITH_IMAGES(test) \
    cmocka_unit_test_setup_teardown(test, make_images, remove_images)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_IMAGES(lists_classes_and_images_by_name),
        WITH_IMAGES(the_hash_is_of_names_and_sizes),
        WITH_IMAGES(refuses_other_folders),
        WITH_IMAGES(refuses_odd_files),
        WITH_IMAGES(refuses_what_is_missing),
        WITH_IMAGES(the_test_shows_the_middle),
        WITH_IMAGES(augmentation_is_a_function),
        cmocka_unit_test(parts_are_drawn_from_all_of_a_picture),
        cmocka_unit_test(narrow_pictures_have_parts_too),
        cmocka_unit_test(the_middle_is_that_of_torchvision),
        WITH_IMAGES(a_damaged_image_is_refused_by_name),
        WITH_IMAGES(the_next_takes_a_damaged_one_s_place),
        WITH_IMAGES(nothing_but_damage_is_refused),
        WITH_IMAGES(ranks_and_threads_change_no_bit),
        WITH_IMAGES(a_loader_passes_on_what_failed),
        WITH_IMAGES(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
