// SPDX-License-Identifier: Apache-2.0
//
// A run as its files tell it: metrics.jsonl in columns, summary.json as it is.
// The files may have been made by anyone.
//
// Threads: one at a time.

#ifndef CADRE_TRAIN_REPORT_DATA_H
#define CADRE_TRAIN_REPORT_DATA_H

#include "cadre/status.h"
#include <jansson.h>

typedef enum cadre_column {
    CADRE_COLUMN_STEP,
    CADRE_COLUMN_LOSS,
    CADRE_COLUMN_RATE, // samples per second
    CADRE_COLUMN_STEP_MS,
    CADRE_COLUMN_FASTEST_MS,
    CADRE_COLUMN_SLOWEST_MS,
    CADRE_COLUMN_EVAL_LOSS,
    CADRE_COLUMN_EVAL_ACCURACY,
    CADRE_COLUMN_EVAL_BITS, // of text, instead of the one before
    CADRE_N_COLUMNS,
} cadre_column;

typedef struct cadre_report_data {
    size_t n_lines;
    double *columns[CADRE_N_COLUMNS]; // NaN where a line has no number
    int n_ranks;                      // that lines tell of; 0: of none
    // Rank r at line i is at [r * capacity + i].
    double *rank_step_ms;
    double *rank_busy_ms;
    size_t capacity;
    json_t *summary; // NULL: the run has not ended
} cadre_report_data;

/**
 * Reads both files.  A last line of metrics.jsonl without its end is one that
 * is being written, and left out.
 *
 * Errors: CADRE_ERR_NOT_FOUND  there is no metrics.jsonl
 *         CADRE_ERR_CORRUPT    the text has file and line
 *         CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_report_data_read(const char *folder, cadre_report_data *out);
void cadre_report_data_fini(cadre_report_data *data);

/** Rank's numbers, a line each. */
static inline const double *cadre_report_rank(
    const cadre_report_data *data, const double *values, int rank)
{
    return values + (size_t)rank * data->capacity;
}

/**
 * A JSON file of the run's; NULL without one.
 *
 * Errors: as above
 */
cadre_status cadre_report_json(
    const char *folder, const char *name, json_t **out);

#endif // CADRE_TRAIN_REPORT_DATA_H
