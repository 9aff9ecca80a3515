// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "base/bytes.h"
#include "state/safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "cadre-safetensors-XXXXXX";
static char path[64];

static float weight[6] = {1, -2, 3, -4, 5, 0.1f};
static float bias[3] = {7, 8, 9};
static const int64_t weight_shape[2] = {3, 2};
static const int64_t bias_shape[1] = {3};

static void tensors(cadre_tensor t[2], float *w, float *b)
{
    t[0] = (cadre_tensor){.name = "fc.weight",
        .shape = weight_shape,
        .n_dims = 2,
        .count = 6,
        .values = w};
    t[1] = (cadre_tensor){.name = "fc.bias",
        .shape = bias_shape,
        .n_dims = 1,
        .count = 3,
        .values = b};
}

static int write_example(void **state)
{
    (void)state;
    cadre_tensor t[2];
    tensors(t, weight, bias);
    CHECK_OK(cadre_safetensors_write(path, t, 2, "cadre.layout", "{\"v\": 1}"));
    return 0;
}

static cadre_status read_back(float *w, float *b)
{
    cadre_tensor t[2];
    tensors(t, w, b);
    return cadre_safetensors_read(path, t, 2);
}

static void reads_what_it_wrote(void **state)
{
    (void)state;
    float w[6];
    float b[3];
    CHECK_OK(read_back(w, b));
    assert_memory_equal(w, weight, sizeof(w));
    assert_memory_equal(b, bias, sizeof(b));
}

static void leaves_nothing_beside_the_file(void **state)
{
    (void)state;
    char aside[80];
    snprintf(aside, sizeof(aside), "%s.part", path);
    assert_int_equal(access(aside, F_OK), -1);
    CHECK_FAILS(cadre_safetensors_write("no-such-folder/x", NULL, 0, "k", "v"),
        CADRE_ERR_IO, "no-such-folder/x");
}

// The file's bytes, changed, and written again.
static void rewrite(size_t keep, size_t at, const void *bytes, size_t n)
{
    static uint8_t content[4096];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t nbytes = fread(content, 1, sizeof(content), f);
    fclose(f);
    memcpy(content + at, bytes, n);
    f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(content, 1, keep < nbytes ? keep : nbytes, f);
    fclose(f);
}

static void refuses_damaged_files(void **state)
{
    float w[6];
    float b[3];
    rewrite(4, 0, "", 0);
    CHECK_FAILS(read_back(w, b), CADRE_ERR_CORRUPT, "8 bytes");

    uint8_t length[8];
    cadre_store_u64(length, UINT64_MAX);
    write_example(state);
    rewrite(4096, 0, length, 8);
    CHECK_FAILS(read_back(w, b), CADRE_ERR_CORRUPT, "longer than the file");

    write_example(state);
    rewrite(4096, 8, "x", 1);
    CHECK_FAILS(read_back(w, b), CADRE_ERR_CORRUPT, "not JSON");

    write_example(state);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    size_t nbytes = (size_t)ftell(f);
    fclose(f);
    rewrite(nbytes - 1, 0, "", 0);
    CHECK_FAILS(read_back(w, b), CADRE_ERR_CORRUPT, "cut");

    unlink(path);
    CHECK_FAILS(read_back(w, b), CADRE_ERR_NOT_FOUND, path);
    assert_int_equal(mkfifo(path, 0600), 0); // nobody ever writes to it
    CHECK_FAILS(read_back(w, b), CADRE_ERR_IO, path);
    unlink(path);
}

static void refuses_other_models(void **state)
{
    (void)state;
    float w[6];
    const int64_t other[2] = {2, 3};
    cadre_tensor t = {.name = "fc.weight",
        .shape = other,
        .n_dims = 2,
        .count = 6,
        .values = w};
    CHECK_FAILS(
        cadre_safetensors_read(path, &t, 1), CADRE_ERR_CORRUPT, "fc.weight");
    t.shape = weight_shape;
    t.name = "fc2.weight";
    CHECK_FAILS(
        cadre_safetensors_read(path, &t, 1), CADRE_ERR_CORRUPT, "fc2.weight");
}

int main(void)
{
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(reads_what_it_wrote, write_example),
        cmocka_unit_test_setup(leaves_nothing_beside_the_file, write_example),
        cmocka_unit_test_setup(refuses_damaged_files, write_example),
        cmocka_unit_test_setup(refuses_other_models, write_example),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(folder);
    return failed;
}
