// SPDX-License-Identifier: Apache-2.0
//
// Evaluation: every sample of the test split once.  The split is cut into
// passes of fixed size, which are dealt to ranks and threads; what they find is
// added exactly, so the result has the same bits however they were dealt.
//
// Threads: one at a time; computes on the crew.

#ifndef CADRE_TRAIN_EVALUATE_H
#define CADRE_TRAIN_EVALUATE_H

#include "train/crew.h"
#include "train/task.h"

/**
 * Evaluates the task's model.  Collective: all ranks have compared their test
 * splits (cadre_claim).
 *
 * The loss is NaN if one sample's is not finite.
 *
 * Errors: CADRE_ERR_NO_MEMORY, those of a pass and of the group
 */
cadre_status cadre_task_evaluate(cadre_group *world, const cadre_task *task,
    cadre_crew *crew, cadre_eval_result *out);

#endif // CADRE_TRAIN_EVALUATE_H
