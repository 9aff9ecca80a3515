// SPDX-License-Identifier: Apache-2.0
//
// The Fashion-MNIST files: read as they are, refused by name when they are not.

#include "base/alloc.h"
#include "data/dataset.h"
#include "data/idx_file.h"
#include "kernel/vector.h"
#include "support/check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { PIXELS = 784, SAMPLES = 5 };

// A folder of its own for each case, and what goes into its files.
typedef struct trial {
    char folder[64];
    bool in_memory; // how its images are to be held
    uint8_t labels[8 + SAMPLES];
    uint8_t images[16 + SAMPLES * PIXELS];
} trial;

static void put_u32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(value >> (24 - 8 * i));
    }
}

static int set_up(void **state)
{
    trial *t = cadre_alloc(sizeof(*t));
    assert_non_null(t);
    snprintf(t->folder, sizeof(t->folder), "/tmp/cadre-fashion-XXXXXX");
    assert_non_null(mkdtemp(t->folder));
    put_u32(t->labels, 0x801);
    put_u32(t->labels + 4, SAMPLES);
    put_u32(t->images, 0x803);
    put_u32(t->images + 4, SAMPLES);
    put_u32(t->images + 8, 28);
    put_u32(t->images + 12, 28);
    for (int i = 0; i < SAMPLES; i++) {
        t->labels[8 + i] = (uint8_t)(9 - i);
    }
    for (int i = 0; i < SAMPLES * PIXELS; i++) {
        // Some of it is blank, as images are.
        t->images[16 + i] = i % 100 < 30 ? 0 : (uint8_t)(i * 31 >> 3);
    }
    *state = t;
    return 0;
}

static int set_up_in_memory(void **state)
{
    (void)set_up(state);
    trial *t = *state;
    t->in_memory = true;
    return 0;
}

static const char *const names[] = {"t10k-labels-idx1-ubyte",
    "t10k-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte",
    "t10k-images-idx3-ubyte.gz"};

static void path_of(const trial *t, const char *name, char path[128])
{
    snprintf(path, 128, "%s/%s", t->folder, name);
}

static int tear_down(void **state)
{
    trial *t = *state;
    char path[128];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        path_of(t, names[i], path);
        (void)remove(path);
    }
    assert_int_equal(rmdir(t->folder), 0);
    cadre_free(t);
    return 0;
}

static void write_file(
    const trial *t, const char *name, const uint8_t *data, size_t nbytes)
{
    char path[128];
    path_of(t, name, path);
    FILE *file = fopen(path, "wbe");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, nbytes, file), nbytes);
    assert_int_equal(fclose(file), 0);
}

static void write_gzipped(
    const trial *t, const char *name, const uint8_t *data, size_t nbytes)
{
    char path[128];
    path_of(t, name, path);
    gzFile file = gzopen(path, "wbe");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, data, (unsigned)nbytes), nbytes);
    assert_int_equal(gzclose_w(file), Z_OK);
}

static void write_both(const trial *t)
{
    write_file(t, "t10k-labels-idx1-ubyte", t->labels, sizeof(t->labels));
    write_file(t, "t10k-images-idx3-ubyte", t->images, sizeof(t->images));
}

static cadre_status open_files(const trial *t, cadre_dataset **out)
{
    const cadre_dataset_options options = {.path = t->folder,
        .split = CADRE_SPLIT_TEST,
        .in_memory = t->in_memory};
    return cadre_dataset_open("fashion", &options, out);
}

static void refused(const trial *t, cadre_status status, const char *words)
{
    cadre_dataset *dataset = NULL;
    CHECK_FAILS(open_files(t, &dataset), status, words);
    assert_null(dataset);
}

// A sentence about a file names it, says what is wrong and what to do.
static void refused_by_name(const trial *t, const char *name, const char *words)
{
    char path[128];
    path_of(t, name, path);
    refused(t, CADRE_ERR_CORRUPT, words);
    assert_non_null(strstr(cadre_error_text(), path));
    assert_non_null(strstr(cadre_error_text(), "dataset-fashion-mnist"));
    assert_non_null(strstr(cadre_error_text(), "data.path"));
}

static void check_samples(const trial *t)
{
    cadre_dataset *dataset = NULL;
    CHECK_OK(open_files(t, &dataset));
    assert_int_equal(dataset->n_samples, SAMPLES);
    assert_int_equal(dataset->sample_elements, PIXELS);
    assert_int_equal(dataset->n_classes, 10);
    for (int s = 0; s < SAMPLES; s++) {
        float x[PIXELS];
        int32_t label = -1;
        const cadre_place place = {.sample = s};
        cadre_dataset_expect(dataset, place);
        CHECK_OK(cadre_dataset_read(dataset, place, x, &label));
        assert_int_equal(label, 9 - s);
        for (int i = 0; i < PIXELS; i++) {
            float pixel = (float)t->images[16 + s * PIXELS + i];
            assert_true(x[i] == (pixel / 255.0f - 0.2860f) / 0.3530f);
        }
    }
    cadre_dataset_close(dataset);
}

static void has_the_same_samples_on_every_isa(void **state)
{
    const trial *t = *state;
    const cadre_isa before = cadre_isa_in_use();
    write_file(t, "t10k-labels-idx1-ubyte", t->labels, sizeof(t->labels));
    write_file(t, "t10k-images-idx3-ubyte", t->images, sizeof(t->images));
    for (int isa = 0; isa < CADRE_N_ISAS; isa++) {
        if (cadre_isa_use((cadre_isa)isa)) {
            check_samples(t);
        }
    }
    assert_true(cadre_isa_use(before));
}

static void reads_plain_and_gzipped_files(void **state)
{
    const trial *t = *state;
    write_gzipped(t, "t10k-labels-idx1-ubyte.gz", t->labels, sizeof(t->labels));
    write_file(t, "t10k-images-idx3-ubyte", t->images, sizeof(t->images));
    check_samples(t);

    char path[128];
    path_of(t, "t10k-images-idx3-ubyte", path);
    assert_int_equal(remove(path), 0);
    write_gzipped(t, "t10k-images-idx3-ubyte.gz", t->images, sizeof(t->images));
    check_samples(t);
}

// Opens a file, keeps its elements, and reads some at a time, in an order of
// their own.
static uint64_t check_kept(
    const trial *t, const char *name, const uint8_t *elements, int64_t nbytes)
{
    enum { MOST = 1000 };
    cadre_idx_file file;
    uint64_t hash = 0;
    CHECK_OK(cadre_idx_open(t->folder, name, 1, &file));
    assert_int_equal(file.extents[0], nbytes);
    CHECK_OK(cadre_idx_keep(&file, nbytes, &hash));
    for (int64_t end = nbytes; end > 0; end -= end < MOST ? end : MOST) {
        uint8_t some[MOST];
        int64_t at = end > MOST ? end - MOST : 0;
        CHECK_OK(cadre_idx_read_at(&file, at, some, (size_t)(end - at)));
        assert_memory_equal(some, elements + at, (size_t)(end - at));
    }
    cadre_idx_close(&file);
    return hash;
}

static void kept_elements_are_those_of_the_file(void **state)
{
    const trial *t = *state;
    enum { COUNT = 200003, HEAD = 8 }; // several pieces
    uint8_t *whole = cadre_alloc(HEAD + COUNT);
    assert_non_null(whole);
    put_u32(whole, 0x801);
    put_u32(whole + 4, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        whole[HEAD + i] = (uint8_t)(i * 2654435761u >> 24);
    }
    write_file(t, names[0], whole, HEAD + COUNT);
    write_gzipped(t, names[1], whole, HEAD + COUNT);
    uint64_t hash = check_kept(t, names[0], whole + HEAD, COUNT);
    assert_true(check_kept(t, names[1], whole + HEAD, COUNT) == hash);

    whole[HEAD + COUNT / 2] ^= 1;
    write_file(t, names[0], whole, HEAD + COUNT);
    assert_true(check_kept(t, names[0], whole + HEAD, COUNT) != hash);
    cadre_free(whole);
}

static void a_file_that_becomes_shorter_is_named(void **state)
{
    const trial *t = *state;
    write_both(t);
    cadre_dataset *dataset = NULL;
    CHECK_OK(open_files(t, &dataset));
    char path[128];
    path_of(t, "t10k-images-idx3-ubyte", path);
    assert_int_equal(truncate(path, sizeof(t->images) - 1), 0);
    float x[PIXELS];
    int32_t label;
    cadre_place place = {.sample = SAMPLES - 2};
    CHECK_OK(cadre_dataset_read(dataset, place, x, &label));
    place.sample = SAMPLES - 1;
    CHECK_FAILS(
        cadre_dataset_read(dataset, place, x, &label), CADRE_ERR_CORRUPT, path);
    assert_non_null(strstr(cadre_error_text(), "has become shorter"));
    cadre_dataset_close(dataset);
}

// Gzipped images in memory need no room elsewhere, and no file once they are
// there.
static void in_memory_nothing_is_unpacked(void **state)
{
    const trial *t = *state;
    write_file(t, "t10k-labels-idx1-ubyte", t->labels, sizeof(t->labels));
    write_gzipped(t, "t10k-images-idx3-ubyte.gz", t->images, sizeof(t->images));
    assert_int_equal(setenv("TMPDIR", "/nonexistent/folder", 1), 0);
    check_samples(t);
    assert_int_equal(unsetenv("TMPDIR"), 0);

    cadre_dataset *dataset = NULL;
    CHECK_OK(open_files(t, &dataset));
    char path[128];
    path_of(t, "t10k-images-idx3-ubyte.gz", path);
    assert_int_equal(truncate(path, 0), 0);
    float x[PIXELS];
    int32_t label;
    const cadre_place place = {.sample = SAMPLES - 1};
    CHECK_OK(cadre_dataset_read(dataset, place, x, &label));
    cadre_dataset_close(dataset);
}

// Only gzipped images need room, and say how much and where.
static void unpacking_needs_room(void **state)
{
    const trial *t = *state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit little = {
        .rlim_cur = SAMPLES * PIXELS - 1, .rlim_max = before.rlim_max};

    write_both(t);
    assert_int_equal(setenv("TMPDIR", "/nonexistent/folder", 1), 0);
    check_samples(t);

    char path[128];
    path_of(t, "t10k-images-idx3-ubyte", path);
    assert_int_equal(remove(path), 0);
    write_gzipped(t, "t10k-images-idx3-ubyte.gz", t->images, sizeof(t->images));
    refused(t, CADRE_ERR_IO,
        "images-idx3-ubyte.gz' cannot be unpacked: no file of 3920 bytes can "
        "be made in '/nonexistent/folder'");
    assert_non_null(strstr(cadre_error_text(), "set TMPDIR"));

    assert_int_equal(setenv("TMPDIR", t->folder, 1), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    refused(t, CADRE_ERR_IO, "ulimit -f");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    check_samples(t); // and leaves nothing in the folder
    assert_int_equal(unsetenv("TMPDIR"), 0);
}

static uint64_t content_hash(const trial *t)
{
    cadre_dataset *dataset = NULL;
    CHECK_OK(open_files(t, &dataset));
    uint64_t hash = dataset->content_hash;
    cadre_dataset_close(dataset);
    return hash;
}

static void hash_is_of_the_content(void **state)
{
    trial *t = *state;
    write_both(t);
    uint64_t hash = content_hash(t);
    t->in_memory = !t->in_memory;
    assert_true(content_hash(t) == hash);
    t->images[16 + 1000] ^= 1;
    write_both(t);
    assert_true(content_hash(t) != hash);
    t->images[16 + 1000] ^= 1;
    t->labels[8 + 2] = 0;
    write_both(t);
    assert_true(content_hash(t) != hash);
}

static void names_what_is_missing(void **state)
{
    trial *t = *state;
    char path[128];
    path_of(t, "t10k-labels-idx1-ubyte", path);
    refused(t, CADRE_ERR_NOT_FOUND, path);
    path_of(t, "t10k-labels-idx1-ubyte.gz", path);
    assert_non_null(strstr(cadre_error_text(), path));
    assert_non_null(
        strstr(cadre_error_text(), "Debian package dataset-fashion-mnist"));

    write_file(t, "t10k-labels-idx1-ubyte", t->labels, sizeof(t->labels));
    path_of(t, "t10k-images-idx3-ubyte", path);
    refused(t, CADRE_ERR_NOT_FOUND, path);

    cadre_dataset *dataset = NULL;
    const cadre_dataset_options nowhere = {
        .path = "/nonexistent/folder", .in_memory = t->in_memory};
    CHECK_FAILS(cadre_dataset_open("fashion", &nowhere, &dataset),
        CADRE_ERR_NOT_FOUND, "/nonexistent/folder/train-");
    const cadre_dataset_options none = {0};
    CHECK_FAILS(cadre_dataset_open("imagenet", &none, &dataset),
        CADRE_ERR_NOT_FOUND,
        "'imagenet'; there are fashion, images, masked_text and text");
    assert_null(dataset);
}

static void a_folder_in_a_files_place(void **state)
{
    trial *t = *state;
    char path[128];
    path_of(t, "t10k-labels-idx1-ubyte", path);
    assert_int_equal(mkdir(path, 0700), 0);
    refused(t, CADRE_ERR_IO, path);
    assert_int_equal(rmdir(path), 0);
}

static void a_pipe_in_a_files_place_is_not_waited_for(void **state)
{
    trial *t = *state;
    for (int i = 0; i < 2; i++) {
        char path[128];
        path_of(t, names[i], path); // gzipped or not
        assert_int_equal(mkfifo(path, 0600), 0);
        refused(t, CADRE_ERR_IO, path);
        assert_non_null(strstr(cadre_error_text(), "no regular file"));
        assert_int_equal(remove(path), 0);
    }
}

static void refuses_other_files(void **state)
{
    trial *t = *state;
    put_u32(t->labels, 0x803);
    write_both(t);
    refused_by_name(
        t, "t10k-labels-idx1-ubyte", "00000803 instead of 00000801");
    put_u32(t->labels, 0x801);
    put_u32(t->images, 0x01080300);
    write_both(t);
    refused_by_name(t, "t10k-images-idx3-ubyte", "01080300");
}

static void refuses_impossible_counts(void **state)
{
    trial *t = *state;
    const uint32_t counts[] = {0, 1000001, UINT32_MAX};
    for (int i = 0; i < 3; i++) {
        put_u32(t->labels + 4, counts[i]);
        write_both(t);
        refused_by_name(t, "t10k-labels-idx1-ubyte", "labels; 1 to 1000000");
    }
    put_u32(t->labels + 4, SAMPLES);
    put_u32(t->images + 4, SAMPLES + 1);
    write_both(t);
    refused_by_name(t, "t10k-images-idx3-ubyte",
        "announces 6 images, but its file of labels has 5");
    put_u32(t->images + 4, UINT32_MAX);
    write_both(t);
    refused_by_name(t, "t10k-images-idx3-ubyte", "4294967295 images");
    put_u32(t->images + 4, SAMPLES);
    put_u32(t->images + 12, 32);
    write_both(t);
    refused_by_name(
        t, "t10k-images-idx3-ubyte", "images of 28 x 32 instead of 28 x 28");
}

static void refuses_labels_out_of_range(void **state)
{
    trial *t = *state;
    t->labels[8 + 3] = 10;
    write_both(t);
    refused_by_name(t, "t10k-labels-idx1-ubyte",
        "label 10 at place 3, but classes are 0 to 9");
}

static void refuses_cut_files(void **state)
{
    trial *t = *state;
    write_both(t);
    const size_t sizes[] = {0, 3, 8, sizeof(t->labels) - 1};
    for (int i = 0; i < 4; i++) {
        write_file(t, "t10k-labels-idx1-ubyte", t->labels, sizes[i]);
        refused_by_name(t, "t10k-labels-idx1-ubyte", "is cut");
    }
    write_both(t);
    write_file(t, "t10k-images-idx3-ubyte", t->images, sizeof(t->images) - 1);
    refused_by_name(
        t, "t10k-images-idx3-ubyte", "is cut: bytes missing at its end: 1");
    write_file(t, "t10k-images-idx3-ubyte", t->images, 15);
    refused_by_name(
        t, "t10k-images-idx3-ubyte", "is cut: bytes missing at its end: 1");
}

static void refuses_files_that_go_on(void **state)
{
    trial *t = *state;
    write_both(t);
    uint8_t longer[sizeof(t->labels) + 1] = {0};
    memcpy(longer, t->labels, sizeof(t->labels));
    write_file(t, "t10k-labels-idx1-ubyte", longer, sizeof(longer));
    refused_by_name(t, "t10k-labels-idx1-ubyte", "goes on behind");
}

static size_t read_file(const char *path, uint8_t *to, size_t most)
{
    FILE *file = fopen(path, "rbe");
    assert_non_null(file);
    size_t nbytes = fread(to, 1, most, file);
    fclose(file);
    return nbytes;
}

// Every cut of a gzipped file, down to its last byte, and a changed byte.
static void refuses_broken_gzip(void **state)
{
    trial *t = *state;
    const char *name = "t10k-labels-idx1-ubyte.gz";
    char path[128];
    path_of(t, name, path);
    write_gzipped(t, name, t->labels, sizeof(t->labels));
    write_file(t, "t10k-images-idx3-ubyte", t->images, sizeof(t->images));
    uint8_t whole[256];
    size_t nbytes = read_file(path, whole, sizeof(whole));
    assert_in_range(nbytes, 20, sizeof(whole) - 1);

    for (size_t kept = 0; kept < nbytes; kept++) {
        write_file(t, name, whole, kept);
        refused_by_name(t, name, "");
    }
    whole[nbytes - 8] ^= 1; // the checksum
    write_file(t, name, whole, nbytes);
    refused_by_name(t, name, "is damaged");
}

// Members that follow one another are one file, as gzip itself takes them; what
// else follows is no part of it.
static void refuses_what_follows_gzip(void **state)
{
    trial *t = *state;
    const char *name = "t10k-labels-idx1-ubyte.gz";
    char path[128];
    path_of(t, name, path);
    uint8_t whole[512];
    size_t nbytes = 0;
    for (size_t at = 0, n = 1; at < sizeof(t->labels); at += n++) {
        size_t left = sizeof(t->labels) - at;
        n = n < left ? n : left;
        write_gzipped(t, name, t->labels + at, n);
        nbytes += read_file(path, whole + nbytes, sizeof(whole) - nbytes);
    }
    write_file(t, "t10k-images-idx3-ubyte", t->images, sizeof(t->images));
    write_file(t, name, whole, nbytes);
    cadre_dataset *dataset = NULL;
    CHECK_OK(open_files(t, &dataset));
    cadre_dataset_close(dataset);

    // Some of it begins as a member does.
    const uint8_t junk[] = {0, 0x1f, 0x1f, 0x8b, 'x', 'y'};
    for (size_t first = 0; first < sizeof(junk); first++) {
        for (size_t end = first + 1; end <= sizeof(junk); end++) {
            memcpy(whole + nbytes, junk + first, end - first);
            write_file(t, name, whole, nbytes + end - first);
            refused_by_name(
                t, name, "goes on behind its gzip data with something else");
        }
    }
}

// More than is read ahead, so that the last element is handed out before what
// follows is looked for.
static void refuses_large_gzip_without_its_checksum(void **state)
{
    trial *t = *state;
    enum { MANY = 50 };
    static uint8_t labels[8 + MANY];
    static uint8_t images[16 + MANY * PIXELS];
    memcpy(labels, t->labels, 8);
    memcpy(images, t->images, 16);
    put_u32(labels + 4, MANY);
    put_u32(images + 4, MANY);
    const char *name = "t10k-images-idx3-ubyte.gz";
    char path[128];
    path_of(t, name, path);
    write_file(t, "t10k-labels-idx1-ubyte", labels, sizeof(labels));
    write_gzipped(t, name, images, sizeof(images));
    cadre_dataset *dataset = NULL;
    CHECK_OK(open_files(t, &dataset));
    cadre_dataset_close(dataset);

    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    for (off_t lacking = 1; lacking <= 8; lacking++) {
        assert_int_equal(truncate(path, info.st_size - lacking), 0);
        refused_by_name(t, name, "is cut: its gzip data end too soon");
    }
}

static void every_allocation_may_fail(void **state)
{
    trial *t = *state;
    write_file(t, "t10k-labels-idx1-ubyte", t->labels, sizeof(t->labels));
    write_gzipped(t, "t10k-images-idx3-ubyte.gz", t->images, sizeof(t->images));
    cadre_dataset *dataset = NULL;
    cadre_status status = CADRE_ERR_NO_MEMORY;
    int failures = 0;
    for (; status != CADRE_OK; failures++) {
        cadre_alloc_fail_after(failures);
        status = open_files(t, &dataset);
        cadre_alloc_fail_after(-1);
        assert_true(status == CADRE_OK || status == CADRE_ERR_NO_MEMORY);
        assert_in_range(failures, 0, 100);
    }
    assert_true(failures > 3);
    cadre_dataset_close(dataset);
    cadre_dataset_close(NULL);
}

// What the Debian package holds.
static void reads_the_real_one(void **state)
{
    const trial *t = *state;
    const cadre_split splits[] = {CADRE_SPLIT_TRAIN, CADRE_SPLIT_TEST};
    const int64_t counts[] = {60000, 10000};
    for (int s = 0; s < 2; s++) {
        cadre_dataset *dataset = NULL;
        const cadre_dataset_options options = {
            .split = splits[s], .in_memory = t->in_memory};
        CHECK_OK(cadre_dataset_open("fashion", &options, &dataset));
        assert_int_equal(dataset->n_samples, counts[s]);
        int per_class[10] = {0};
        double sum = 0.0;
        double squares = 0.0;
        for (int64_t n = 0; n < dataset->n_samples; n++) {
            float x[PIXELS];
            int32_t label;
            const cadre_place place = {.sample = n};
            CHECK_OK(cadre_dataset_read(dataset, place, x, &label));
            per_class[label]++;
            for (int i = 0; i < PIXELS; i++) {
                sum += (double)x[i];
                squares += (double)x[i] * (double)x[i];
            }
        }
        for (int c = 0; c < 10; c++) {
            assert_int_equal(per_class[c], counts[s] / 10);
        }
        // Normalised: mean 0, variance 1.
        double elements = (double)counts[s] * PIXELS;
        assert_true(fabs(sum / elements) < 0.01);
        assert_true(fabs(squares / elements - 1.0) < 0.02);
        cadre_dataset_close(dataset);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define CASE_IN_MEMORY(name) \
    cmocka_unit_test_setup_teardown(name, set_up_in_memory, tear_down)
#define BOTH(name) CASE(name), CASE_IN_MEMORY(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(reads_plain_and_gzipped_files),
        BOTH(has_the_same_samples_on_every_isa),
        CASE(kept_elements_are_those_of_the_file),
        CASE(a_file_that_becomes_shorter_is_named),
        CASE_IN_MEMORY(in_memory_nothing_is_unpacked),
        CASE(unpacking_needs_room),
        BOTH(hash_is_of_the_content),
        BOTH(names_what_is_missing),
        CASE(a_folder_in_a_files_place),
        CASE(a_pipe_in_a_files_place_is_not_waited_for),
        BOTH(refuses_other_files),
        BOTH(refuses_impossible_counts),
        CASE(refuses_labels_out_of_range),
        BOTH(refuses_cut_files),
        BOTH(refuses_files_that_go_on),
        CASE(refuses_broken_gzip),
        CASE(refuses_what_follows_gzip),
        BOTH(refuses_large_gzip_without_its_checksum),
        BOTH(every_allocation_may_fail),
        BOTH(reads_the_real_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
