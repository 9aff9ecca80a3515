// SPDX-License-Identifier: Apache-2.0
//
// What the compute_*.c files share about oneDNN; no other file includes this.
//
// Threads: any.

#ifndef CADRE_NN_COMPUTE_DNNL_H
#define CADRE_NN_COMPUTE_DNNL_H

#include "cadre/status.h"
#include <dnnl.h>
#include <stddef.h>

/** The processor; NULL if oneDNN could not open it. */
dnnl_engine_t cadre_dnnl_engine(void);

/** CADRE_OK, or the failure as ours; what: "multiply ..." */
cadre_status cadre_dnnl_check(dnnl_status_t result, const char *what);

/**
 * What the factors of bf16 products are to the library: bf16, or rounded f32
 * where it cannot multiply those.
 */
dnnl_data_type_t cadre_dnnl_bf16(void);

/**
 * Writes count numbers, rounded to bf16, as elements first and on of the array
 * `to` of that type.
 */
void cadre_dnnl_round(dnnl_data_type_t type, void *to, size_t first,
    const float *from, size_t count);

#endif // CADRE_NN_COMPUTE_DNNL_H
