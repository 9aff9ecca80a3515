// SPDX-License-Identifier: Apache-2.0
//
// A model: the parameters that are trained, in one flat layout.
//
//     cadre_model *m;
//     int weight, bias;
//     cadre_model_create(world, &m);
//     cadre_model_add(m, "fc.weight", (int64_t[]){out, in}, 2, NULL, &weight);
//     cadre_model_add(m, "fc.bias", (int64_t[]){out}, 1, NULL, &bias);
//     cadre_model_seal(m);                        // lays out, compares
//     float *w = cadre_model_param(m, weight);    // fill in initial values
//
// Every rank adds the same parameters in the same order and fills in the same
// values; both are compared, by cadre_model_seal() and by the first
// cadre_step_begin(), and a difference is an error on every rank that names the
// first parameter that differs.
//
// Threads: one thread at a time.

#ifndef CADRE_MODEL_H
#define CADRE_MODEL_H

#include "cadre/group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cadre_model cadre_model;

enum { CADRE_MAX_DIMS = 8 };

typedef struct cadre_param_options {
    // Neighbouring parameters of one unit, normally a layer, travel together.
    // NULL: the name up to its last dot ("fc" for "fc.weight").
    const char *unit;
    bool frozen;   // never gets a gradient or an update
    bool no_decay; // weight decay leaves it alone, as one wants of biases

    // A running statistic, as batch norm keeps them: what a leaf gives as its
    // gradient is a statistic of its samples times their number, and a step
    // moves the values a tenth of the way to the mean over all samples.  No
    // optimizer sees it, no norm and no clipping.
    bool buffer;

    // The caller's own memory for the values, borrowed for the model's life;
    // NULL: the model's.  It is read once, at the first cadre_step_begin(), and
    // written after each update: one copy that the model's memory does not need.
    // In zero1 one such parameter on one rank has all of them travel so, unless
    // it is frozen.
    float *values;
} cadre_param_options;

/**
 * Creates a model without parameters, for the ranks of group.
 *
 * group is borrowed for the model's life.  Give *out to cadre_model_destroy().
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_model_create(
    cadre_group *group, cadre_model **out);

/**
 * Adds a parameter of the given shape, n_dims extents of at least 1 each.
 *
 * name is copied: 1 to 255 bytes of UTF-8 without control characters, unique in
 * the model.  *index counts from 0 in the order of adding.
 *
 * Errors: CADRE_ERR_INVALID_ARG  the name or the shape makes no sense
 *         CADRE_ERR_STATE        the model is sealed
 *         CADRE_ERR_NO_MEMORY
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_model_add(cadre_model *model,
    const char *name, const int64_t *shape, int n_dims,
    const cadre_param_options *options, int *index);

/**
 * Lays the parameters out and compares them on all ranks.  Collective.
 *
 * Errors: CADRE_ERR_DESYNC       the ranks' parameters differ; all ranks get
 *                                the same text, naming the first that does
 *         CADRE_ERR_STATE        sealed already, or no parameters
 *         CADRE_ERR_NO_MEMORY, and those of a collective
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_model_seal(cadre_model *model);

/** The number of parameters (tensors). */
CADRE_API int cadre_model_param_count(const cadre_model *model);

/** The name of parameter index, or NULL if there is no such parameter. */
CADRE_API const char *cadre_model_param_name(
    const cadre_model *model, int index);

/** The number of elements of parameter index; 0 if there is none. */
CADRE_API size_t cadre_model_param_elements(
    const cadre_model *model, int index);

/**
 * The values of parameter index, row-major; the model is sealed.
 *
 * 0.0 until filled in.  Written by cadre_step_end(), by all ranks together: other
 * threads leave it alone meanwhile.  Valid until the model is destroyed.
 */
CADRE_API float *cadre_model_param(cadre_model *model, int index);

/**
 * The summed gradient of parameter index over all leaves, after
 * cadre_step_end() of an engine without optimizer (CADRE_NONE); else NULL, and
 * of a buffer.
 *
 * It is the sum, not the mean: divide by the report's weight.  Valid until the
 * next cadre_step_begin().
 */
CADRE_API const float *cadre_model_grad(const cadre_model *model, int index);

/**
 * A hash of all parameters' bits: equal on all ranks, or something is wrong.
 *
 * It is the params_hash of `cadre train` (docs/numerics.md section 6), and
 * leaves buffers out.  Local.
 */
CADRE_API uint64_t cadre_model_hash(const cadre_model *model);

/** The same of the buffers, `buffers_hash`; 0 if there are none. */
CADRE_API uint64_t cadre_model_buffers_hash(const cadre_model *model);

/**
 * Writes the parameters to a safetensors file, aside and renamed.  Local: one
 * rank is enough.  The file's metadata holds the layout, under "cadre.layout".
 *
 * Errors: CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_model_save(
    const cadre_model *model, const char *path);

/**
 * Reads the parameters from a safetensors file that has each of them, by name
 * and shape, in F32.  Local: every rank reads.
 *
 * Errors: CADRE_ERR_NOT_FOUND  no such file
 *         CADRE_ERR_CORRUPT    the file is damaged or of another model
 *         CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_model_load(
    cadre_model *model, const char *path);

/** NULL is allowed.  Its engine is destroyed before. */
CADRE_API void cadre_model_destroy(cadre_model *model);

#ifdef __cplusplus
}
#endif

#endif // CADRE_MODEL_H
