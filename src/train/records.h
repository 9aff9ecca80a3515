// SPDX-License-Identifier: Apache-2.0
//
// What tells of a run while it goes on: the watch over the ranks, and on rank 0
// metrics.jsonl, the TensorBoard file and trace.json.
//
// Threads: one at a time.

#ifndef CADRE_TRAIN_RECORDS_H
#define CADRE_TRAIN_RECORDS_H

#include "train/metrics.h"
#include "train/tensorboard.h"
#include "train/trace.h"
#include "train/watch.h"

typedef struct cadre_records {
    const cadre_model *model; // borrowed
    int64_t tokens;           // of a sample; 0: no text
    int64_t sample_weight;
    cadre_watch *watch;
    cadre_watch_facts ranks; // as gathered last
    cadre_trace *trace;      // NULL: none is wanted
    // NULL where no files are written.
    cadre_metrics *metrics;
    cadre_tensorboard *tensorboard;
    bool lacks_eval; // of a resumed run: the line of the step it goes on from
} cadre_records;

/**
 * Begins the records of a run, or goes on with them (config->resume); records began as {0}, and are closed whatever
 * came of this.  engine and model are borrowed until then.
 *
 * Errors: CADRE_ERR_INVALID_ARG (a trace without a folder), CADRE_ERR_IO,
 *         CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_records_open(cadre_records *records, cadre_group *world,
    const cadre_train_config *config, const cadre_engine *engine,
    const cadre_model *model);
void cadre_records_close(cadre_records *records);

/** A step as the records see it. */
typedef struct cadre_records_step {
    const cadre_step_report *report;
    int64_t ns;
    bool logged; // alike on all ranks
} cadre_records_step;

/**
 * Counts a step; if it is logged or traced, gathers what ranks have to tell of
 * it.  Collective.
 *
 * Errors: those of watch and trace
 */
cadre_status cadre_records_take(
    cadre_records *records, const cadre_records_step *step);

/** What the lines of a step hold beside it. */
typedef struct cadre_records_extra {
    const cadre_eval_result *eval;          // of its parameters; or NULL
    bool hashed;                            // and the hash of its parameters
    const cadre_new_identity *new_identity; // that begins with it; or NULL
} cadre_records_extra;

/**
 * Writes the lines of a logged step that was taken.  The TensorBoard file ends
 * where it can no longer be written.
 *
 * Errors: CADRE_ERR_IO (metrics.jsonl), CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_records_write(cadre_records *records,
    const cadre_records_step *step, const cadre_records_extra *extra);

/**
 * Adds an evaluation to what was written of a step, the last one before the run
 * was resumed.
 *
 * Errors: as above
 */
cadre_status cadre_records_amend(
    cadre_records *records, int64_t step, const cadre_eval_result *eval);

/** Gives the trace its name; one that cannot be written is left out. */
void cadre_records_finish(cadre_records *records);

#endif // CADRE_TRAIN_RECORDS_H
