// SPDX-License-Identifier: Apache-2.0
//
// "Did you mean ...?"

#ifndef CADRE_CLI_NEAREST_H
#define CADRE_CLI_NEAREST_H

/** The one of n candidates (at least 1) that takes the fewest edits. */
const char *nearest(const char *word, const char *const *candidates, int n);

#endif // CADRE_CLI_NEAREST_H
