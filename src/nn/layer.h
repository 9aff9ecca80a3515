// SPDX-License-Identifier: Apache-2.0
//
// A kind of layer: the table that a new one fills in.
//
// Letters: N samples of a pass, I elements of a sample before the layer, O
// elements after it.
//
// Threads: any; the functions keep nothing.

#ifndef CADRE_NN_LAYER_H
#define CADRE_NN_LAYER_H

#include "cadre/status.h"
#include "nn/matrix.h"
#include "nn/net.h"
#include <stdbool.h>

enum { CADRE_LAYER_NAME_BYTES = 48 };

typedef struct cadre_layer_ops cadre_layer_ops;

/** A layer in its place in a net. */
typedef struct cadre_layer_plan {
    const cadre_layer_ops *ops;
    char name[CADRE_LAYER_NAME_BYTES]; // empty if it has none
    int64_t in;                        // I
    int64_t out;                       // O
    int first_param;                   // its first parameter in the net
    size_t scratch; // floats that input_gradient() wants; set by plan()
} cadre_layer_plan;

struct cadre_layer_ops {
    const char *kind;
    int n_params;

    // y may be x, and dx may be dy: the layer needs no memory of its own.
    // Such a layer's dx is computed from y and dy alone.
    bool in_place;

    /**
     * Checks what the user wrote and sets plan->out, and scratch if it is not
     * 0; the rest of plan is set.
     *
     * Errors: CADRE_ERR_INVALID_ARG  says what is wrong, not where
     */
    cadre_status (*plan)(const cadre_layer *layer, cadre_layer_plan *plan);

    /** Describes parameter i of the layer; NULL if there are none. */
    void (*param)(const cadre_layer_plan *plan, int i, cadre_net_param *param);

    /** y (N, O) from x (N, I); params are the layer's own. */
    cadre_status (*forward)(const cadre_layer_plan *plan,
        const float *const *params, cadre_matrix_view x, cadre_matrix y);

    /**
     * Writes the gradient of parameter i, from x (N, I) and dy (N, O), summed
     * over the samples; NULL if there are no parameters.
     */
    cadre_status (*param_gradient)(const cadre_layer_plan *plan, int i,
        cadre_matrix_view x, cadre_matrix_view dy, float *grad);

    /** dx (N, I) from y and dy (N, O); scratch has plan->scratch floats. */
    cadre_status (*input_gradient)(const cadre_layer_plan *plan,
        const float *const *params, cadre_matrix_view y, cadre_matrix_view dy,
        cadre_matrix dx, float *scratch);
};

extern const cadre_layer_ops cadre_linear;
extern const cadre_layer_ops cadre_relu;

/**
 * The table of a kind.
 *
 * Errors: CADRE_ERR_INVALID_ARG  there is no such kind; names those there are
 */
cadre_status cadre_layer_find(const char *kind, const cadre_layer_ops **out);

#endif // CADRE_NN_LAYER_H
