// SPDX-License-Identifier: Apache-2.0
//
// A unit: a contiguous range of the layout, normally one layer of the model.
// It starts at a multiple of a quantum and holds whole segments.

#ifndef CADRE_STATE_UNIT_H
#define CADRE_STATE_UNIT_H

#include <stddef.h>

typedef struct cadre_unit {
    char *name;
    size_t lo; // first element; a multiple of CADRE_QUANTUM
    size_t hi; // one past the last segment's end
    int first_segment;
    int n_segments;
} cadre_unit;

#endif // CADRE_STATE_UNIT_H
