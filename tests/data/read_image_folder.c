// SPDX-License-Identifier: Apache-2.0
//
// Measures how fast a folder of images is read, decoded, augmented and
// normalised, one epoch by a loader:
//
//     read_image_folder FOLDER SIDE THREADS
//
// It prints the milliseconds that an image takes a thread.

#include "base/clock.h"
#include "base/fail.h"
#include "data/loader.h"
#include <stdio.h>
#include <stdlib.h>

static cadre_status read_all(cadre_loader *loader, int64_t n_steps)
{
    cadre_batch batch;
    for (int64_t i = 0; i < n_steps; i++) {
        CADRE_TRY(cadre_loader_acquire(loader, &batch));
        cadre_loader_release(loader);
    }
    return CADRE_OK;
}

static cadre_status measure(
    const cadre_dataset *dataset, int n_threads, double *ms)
{
    enum { BATCH = 32 };
    const cadre_loader_options options = {
        .dataset = dataset,
        .seed = 1,
        .global_batch = BATCH < dataset->n_samples ? BATCH : 1,
        .n_steps = dataset->n_samples / BATCH,
        .n_leaves = 1,
        .block = 1,
        .world_size = 1,
        .n_threads = n_threads,
    };
    cadre_loader *loader;
    int64_t began_ns = cadre_now_ns();
    CADRE_TRY(cadre_loader_create(&options, &loader));
    cadre_status status = read_all(loader, options.n_steps);
    int64_t n_images = options.n_steps * options.global_batch;
    *ms = (double)(cadre_now_ns() - began_ns) * 1e-6 * n_threads /
          (double)(n_images > 0 ? n_images : 1);
    cadre_loader_destroy(loader);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: read_image_folder FOLDER SIDE THREADS\n");
        return 1;
    }
    const cadre_dataset_options options = {
        .path = argv[1],
        .side = strtol(argv[2], NULL, 10),
        .augment = true,
    };
    cadre_dataset *dataset = NULL;
    double ms = 0;
    cadre_status status = cadre_dataset_open("images", &options, &dataset);
    if (status == CADRE_OK) {
        status = measure(dataset, (int)strtol(argv[3], NULL, 10), &ms);
        cadre_dataset_close(dataset);
    }
    if (status != CADRE_OK) {
        fprintf(stderr, "read_image_folder: %s\n", cadre_error_text());
        return 1;
    }
    printf("%.3f\n", ms);
    return 0;
}
