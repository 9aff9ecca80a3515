// SPDX-License-Identifier: Apache-2.0
//
// Buckets: what of the gradients travels together.  Small units are merged,
// large ones are cut into chunks; who owns an element never changes.
//
// Buckets are numbered from the end of the layout to its start, which is the
// order in which backward completes them.  The first and the last are small: the
// first is there early, the last is what is waited for in the end.  The first
// unit of the layout that has gradients is the last one to get them, so nothing
// is merged with it (docs/overlap.md).
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
    size_t most;              // elements of the largest part
    int n_segments;           // that it has elements of
} cadre_bucket;

typedef struct cadre_buckets {
    cadre_bucket *buckets;
    int n_buckets; // at least 1
    int n_owners;

    // The buckets that have elements of segment i are of[first_of[i]] to
    // of[first_of[i + 1] - 1].
    int *first_of;
    int *of;

    cadre_slice *slices; // storage of all parts
    cadre_run *runs;     // likewise
    cadre_bucket_part *parts;
} cadre_buckets;

/**
 * Cuts the layout's trainable segments, for n_owners ranks, into buckets of at
 * most about bucket_bytes, at least a quantum.
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_buckets_init(cadre_buckets *buckets,
    const cadre_layout *layout, int n_owners, size_t bucket_bytes);
void cadre_buckets_fini(cadre_buckets *buckets);

/** Points the part's runs at its slices in a plane of the layout. */
void cadre_bucket_point(const cadre_bucket_part *part, float *plane);

/** The same where every segment has memory of its own. */
void cadre_bucket_point_apart(const cadre_bucket_part *part,
    const cadre_layout *layout, float *const *segments);

/** Copies the part's elements out of a plane, one after another. */
void cadre_bucket_pack(
    const cadre_bucket_part *part, const float *plane, float *packed);

/** The inverse of cadre_bucket_pack(). */
void cadre_bucket_unpack(
    const cadre_bucket_part *part, const float *packed, float *plane);

#endif // CADRE_PARALLEL_BUCKET_H
