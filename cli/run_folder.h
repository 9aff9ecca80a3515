// SPDX-License-Identifier: Apache-2.0
//
// The folder of a run: its default name, whether it may be written, who writes
// it, and the configuration in it.

#ifndef CADRE_CLI_RUN_FOLDER_H
#define CADRE_CLI_RUN_FOLDER_H

#include <cadre/train.h>

/** Writes runs/<recipe>-<date>-<time>, one that is not there yet. */
void run_folder_default(const char *recipe, char folder[CADRE_PATH_BYTES]);

/** Whether a run has ended in this folder; then it must not be overwritten. */
bool run_folder_is_finished(const char *folder);

enum { RUN_FOLDER_PROBLEM_BYTES = 8192 };

/**
 * Makes the folder and takes it for this process, until it ends in whatever
 * way: two runs would overwrite each other's files.  False when it cannot, or
 * when a run has ended in it, or left checkpoints, and is not to be resumed: then
 * problem says why, in one sentence.
 */
bool run_folder_take(
    const char *folder, bool resume, char problem[RUN_FOLDER_PROBLEM_BYTES]);

/** Writes config.yaml into a folder that has been taken; false as above. */
bool run_folder_write_config(
    const cadre_train_config *config, char problem[RUN_FOLDER_PROBLEM_BYTES]);

/**
 * Takes back what was written for a run that was refused before it began: the
 * configuration, and the folder, if nothing else is in it.
 */
void run_folder_give_back(const char *folder);

/** "folder/name".  False if folder is empty, or the path is too long. */
bool run_folder_path(
    const char *folder, const char *name, char path[CADRE_PATH_BYTES]);

#endif // CADRE_CLI_RUN_FOLDER_H
