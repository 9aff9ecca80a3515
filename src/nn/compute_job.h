// SPDX-License-Identifier: Apache-2.0
//
// oneDNN's primitives with their arguments, for the compute_*.c files; no other
// file includes this.
//
// Memory:  the library's objects; all data, scratch included, is the caller's.
// Threads: one at a time per job.

#ifndef CADRE_NN_COMPUTE_JOB_H
#define CADRE_NN_COMPUTE_JOB_H

#include "nn/compute_dnnl.h"
#include <stddef.h>

enum { CADRE_JOB_ARGS = 5 };

/**
 * A primitive with the memory objects of its arguments, which get their data
 * when it runs.  The last argument is the library's scratchpad.  All zero is no
 * job.
 */
typedef struct cadre_dnnl_job {
    dnnl_primitive_t primitive;
    int n_args;
    dnnl_exec_arg_t args[CADRE_JOB_ARGS];
} cadre_dnnl_job;

/** Attributes of jobs: the scratchpad is the caller's memory. */
cadre_status cadre_dnnl_job_attributes(dnnl_primitive_attr_t *out);

/**
 * Makes a job of a primitive's description, with these arguments and a
 * scratchpad; *pad_count becomes the floats of that, if it was less.  Drop it,
 * whatever came of it.
 */
cadre_status cadre_dnnl_job_make(const_dnnl_primitive_desc_t pd,
    const int *args, int n_args, cadre_dnnl_job *job, size_t *pad_count);
void cadre_dnnl_job_drop(cadre_dnnl_job *job);

/** data: of each argument but the scratchpad, inputs and outputs alike. */
cadre_status cadre_dnnl_job_run(const cadre_dnnl_job *job, dnnl_stream_t stream,
    const void *const *data, float *pad);

/** Floats that the library wants for such data, in whole cache lines. */
size_t cadre_dnnl_floats(const dnnl_memory_desc_t *md);

#endif // CADRE_NN_COMPUTE_JOB_H
