// SPDX-License-Identifier: Apache-2.0
//
// What all ranks must agree on before they train together, compared on all of
// them.  A difference is CADRE_ERR_DESYNC on every rank, with the same text: it
// names the first thing that differs and what two of the ranks have.
//
// All calls are collective and block.  They allocate: not for the step loop.
//
// Threads: the group's.

#ifndef CADRE_PARALLEL_COMPARE_H
#define CADRE_PARALLEL_COMPARE_H

#include "cadre/group.h"
#include "parallel/model.h"
#include "state/layout.h"

/** Names, shapes, units and flags of all parameters. */
cadre_status cadre_compare_layouts(
    cadre_group *group, const cadre_layout *layout);

/** The values of all parameters, bit by bit (through their hashes). */
cadre_status cadre_compare_values(const cadre_model *model);

/** *equal: whether every rank has the same value. */
cadre_status cadre_compare_word(cadre_group *group, uint64_t word, bool *equal);

/** A number that ranks must agree on, and what users call it. */
typedef struct cadre_setting {
    const char *name;
    double value;
} cadre_setting;

cadre_status cadre_compare_settings(
    cadre_group *group, const cadre_setting *settings, int n);

#endif // CADRE_PARALLEL_COMPARE_H
