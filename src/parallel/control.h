// SPDX-License-Identifier: Apache-2.0
//
// The control exchange: one small message between all ranks at the end of a
// step, from which everybody takes every decision.  Its sums are exact, so order
// cannot matter (docs/numerics.md section 6).
//
// Threads: the group's.

#ifndef CADRE_PARALLEL_CONTROL_H
#define CADRE_PARALLEL_CONTROL_H

#include "group/group.h"
#include "kernel/exact.h"

/** What a rank says; after the exchange, what all say together. */
typedef struct cadre_control {
    cadre_exact squares; // of the rank's part of the summed gradients
    cadre_exact loss;
    int64_t weight;
    bool finite;   // and-ed
    uint32_t stop; // or-ed
} cadre_control;

typedef struct cadre_control_exchange cadre_control_exchange;

/** Errors: CADRE_ERR_NO_MEMORY */
cadre_status cadre_control_create(
    cadre_group *group, cadre_control_exchange **out);
void cadre_control_destroy(cadre_control_exchange *exchange); // NULL: nothing

/**
 * Begins the exchange with what this rank says, whose sums are settled here.
 *
 * Errors: those of an exchange
 */
cadre_status cadre_control_begin(
    cadre_control_exchange *exchange, cadre_control *control);

/**
 * Ends what was begun: blocks until all ranks' are known and adds them up.
 *
 * Errors: those of an exchange; CADRE_ERR_CORRUPT for a message out of range
 */
cadre_status cadre_control_end(
    cadre_control_exchange *exchange, cadre_control *out);

#endif // CADRE_PARALLEL_CONTROL_H
