// SPDX-License-Identifier: Apache-2.0
//
// The layout: one flat index space for all parameters of a model.  A segment is
// one tensor's range.  Offsets depend on the model alone: never on the number
// of ranks, the mode or a bucket size.
//
// Segments start at multiples of 16 elements (a cache line of f32), units at
// multiples of a quantum; what lies between is a gap, which no plane's content
// ever counts and no message carries.
//
// Threads: built by one thread; immutable once sealed.

#ifndef CADRE_STATE_LAYOUT_H
#define CADRE_STATE_LAYOUT_H

#include "cadre/status.h"
#include "state/shard.h"
#include "state/unit.h"
#include <stdbool.h>
#include <stdint.h>

enum { CADRE_LAYOUT_MAX_DIMS = 8 };

typedef struct cadre_segment {
    char *name;
    int64_t shape[CADRE_LAYOUT_MAX_DIMS];
    int n_dims;
    size_t offset; // first element in the layout
    size_t count;  // elements
    int unit;
    bool frozen;
    bool no_decay; // weight decay leaves it alone
    bool buffer;   // a running statistic: no optimizer updates it
} cadre_segment;

typedef struct cadre_layout {
    cadre_segment *segments;
    int n_segments;
    cadre_unit *units;
    int n_units;
    size_t n_elements; // with gaps: the length of a plane
    int capacity;
} cadre_layout;

void cadre_layout_fini(cadre_layout *layout);

/**
 * Appends a segment; layout began as {0}.  name and unit are copied.  A unit
 * goes on as long as its name is repeated.
 *
 * Errors: CADRE_ERR_INVALID_ARG  name, unit or shape make no sense
 *         CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_layout_add(cadre_layout *layout, const char *name,
    const char *unit, const int64_t *shape, int n_dims, bool frozen);

/** Takes the last segment out of weight decay. */
void cadre_layout_no_decay(cadre_layout *layout);

/** Makes the last segment a buffer. */
void cadre_layout_buffer(cadre_layout *layout);

/** A hash of all names, shapes, units and flags. */
uint64_t cadre_layout_hash(const cadre_layout *layout);

/** What one segment shares with a range of the layout. */
typedef struct cadre_slice {
    int segment;
    size_t offset; // in the layout
    size_t count;  // elements, at least 1
} cadre_slice;

/**
 * Writes the slices of unit's segments in a range that are not frozen, in order, and
 * returns how many there are: at most the unit's number of segments.  slices
 * may be NULL, to count.
 */
int cadre_layout_slices(const cadre_layout *layout, int unit, cadre_shard range,
    cadre_slice *slices);

/**
 * The layout in words, as it stands in a model file's metadata: JSON with
 * quantum, elements, and each segment's name, offset, count, unit and the
 * unit's start.  In new memory, for cadre_free(); NULL without memory.
 */
char *cadre_layout_json(const cadre_layout *layout);

/**
 * The hash of count elements of a plane that begin at this layout index, all
 * in one segment: added up over all segments, the params_hash of
 * docs/numerics.md section 6.
 */
uint64_t cadre_piece_hash(const float *x, size_t index, size_t count);

#endif // CADRE_STATE_LAYOUT_H
