// SPDX-License-Identifier: Apache-2.0
//
// A loader reads the samples of one rank's leaves ahead of the steps that use
// them, in threads of its own, so that loading overlaps computing.  Which thread
// reads which sample changes no bit: every sample has its place.
//
// Memory:  two steps' worth of this rank's leaves, allocated at the start.
// Threads: acquire and release from one thread at a time; the leaves of an
//          acquired step may be read by any.

#ifndef CADRE_DATA_LOADER_H
#define CADRE_DATA_LOADER_H

#include "cadre/status.h"
#include "data/dataset.h"
#include "data/deal.h"

typedef struct cadre_loader cadre_loader;

typedef struct cadre_loader_options {
    const cadre_dataset *dataset; // borrowed for the loader's life
    uint64_t seed;
    int64_t global_batch;
    bool drop_last;
    int64_t first_step; // counted from 0
    int64_t n_steps;    // steps from first_step on
    int n_leaves;       // V
    int block;          // k: blocks of k leaves are dealt to ranks in turn
    int rank;
    int world_size;
    int n_threads; // that read; 0: 1
} cadre_loader_options;

/** What one leaf of a step is computed from.  n_samples may be 0. */
typedef struct cadre_leaf_data {
    const float *x;        // (n_samples, sample_elements)
    const int32_t *labels; // (n_samples, labels of one)
    int64_t n_samples;
    int64_t step;         // counted from 0
    int64_t first_sample; // the first one's place in the step's batch
} cadre_leaf_data;

cadre_status cadre_loader_create(
    const cadre_loader_options *options, cadre_loader **out);
void cadre_loader_destroy(cadre_loader *loader); // at any time; NULL is allowed

/**
 * Waits for the next step's samples.  Steps come in order.
 *
 * Errors: those of cadre_dataset_read(), and the same for all steps that follow
 */
cadre_status cadre_loader_acquire(cadre_loader *loader, cadre_batch *batch);

/** The data of a leaf of the acquired step; the leaf is this rank's. */
cadre_leaf_data cadre_loader_leaf(const cadre_loader *loader, int leaf);

/** Lets the loader use the acquired step's memory for another. */
void cadre_loader_release(cadre_loader *loader);

/** The time that cadre_loader_acquire() waited for samples, in all. */
int64_t cadre_loader_waited_ns(const cadre_loader *loader);

#endif // CADRE_DATA_LOADER_H
