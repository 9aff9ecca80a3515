// SPDX-License-Identifier: Apache-2.0
//
// One verdict: where one rank does something for all, all must know whether it
// could.
//
// Threads: the group's.

#ifndef CADRE_PARALLEL_VERDICT_H
#define CADRE_PARALLEL_VERDICT_H

#include "cadre/group.h"

/**
 * Returns on every rank the status of the lowest rank that failed, with its
 * text, or CADRE_OK if none did.  Collective.  The group stays whole.
 *
 * Errors: besides those of the ranks, those of a collective
 */
cadre_status cadre_share_verdict(cadre_group *group, cadre_status mine);

#endif // CADRE_PARALLEL_VERDICT_H
