// SPDX-License-Identifier: Apache-2.0
//
// Buckets: what of the gradients travels together.  Small units are merged,
// large ones are cut into chunks; who owns an element never changes.
//
// A bucket has a part per owner: a list of slices, whose elements one after
// another, without gaps, are what is sent.
//
// Threads: built by one thread; immutable then, but for the scratch runs.

#ifndef CADRE_PARALLEL_BUCKET_H
#define CADRE_PARALLEL_BUCKET_H

#include "cadre/status.h"
#include "state/layout.h"
#include "transport/transport.h"

typedef struct cadre_bucket_part {
    cadre_slice *slices;
    int n_slices;
    size_t count;    // elements of all slices
    cadre_run *runs; // n_slices: scratch for one exchange at a time
} cadre_bucket_part;

typedef struct cadre_bucket {
    cadre_bucket_part *parts; // per owner
    size_t count;             // elements of all parts
} cadre_bucket;

typedef struct cadre_buckets {
    cadre_bucket *buckets;
    int n_buckets;
    int n_owners;
    cadre_slice *slices; // storage of all parts
    cadre_run *runs;     // likewise
    cadre_bucket_part *parts;
} cadre_buckets;

/**
 * Cuts the layout's trainable segments, for n_owners ranks, into buckets of
 * about bucket_bytes, at least a quantum.
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_buckets_init(cadre_buckets *buckets,
    const cadre_layout *layout, int n_owners, size_t bucket_bytes);
void cadre_buckets_fini(cadre_buckets *buckets);

/** Points the part's runs at its slices in a plane of the layout. */
void cadre_bucket_point(const cadre_bucket_part *part, float *plane);

/** Copies the part's elements out of a plane, one after another. */
void cadre_bucket_pack(
    const cadre_bucket_part *part, const float *plane, float *packed);

/** The inverse of cadre_bucket_pack(). */
void cadre_bucket_unpack(
    const cadre_bucket_part *part, const float *packed, float *plane);

#endif // CADRE_PARALLEL_BUCKET_H
