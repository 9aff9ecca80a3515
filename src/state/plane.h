// SPDX-License-Identifier: Apache-2.0
//
// A plane: one array of state over the layout.  The layout's coordinate names an
// element in all of them: parameters, moments, gradients.
//
// Memory: a plane borrows its data; who makes it says where it lies.

#ifndef CADRE_STATE_PLANE_H
#define CADRE_STATE_PLANE_H

#include <stddef.h>

typedef struct cadre_plane {
    const char *name; // "params", "exp_avg"
    float *data;      // layout->n_elements of them
    size_t nbytes;
} cadre_plane;

#endif // CADRE_STATE_PLANE_H
