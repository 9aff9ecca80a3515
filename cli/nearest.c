// SPDX-License-Identifier: Apache-2.0

#include "nearest.h"

#include <string.h>

enum { LONGEST = 63 }; // longer words are compared by their beginnings

static int least(int a, int b, int c)
{
    int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

// Insertions, deletions and replacements between two words (Levenshtein), row
// by row of the usual table.
static int edits(const char *a, const char *b)
{
    int row[LONGEST + 1];
    int n = (int)strnlen(b, LONGEST);
    for (int j = 0; j <= n; j++) {
        row[j] = j;
    }
    for (int i = 1; a[i - 1] != '\0' && i <= LONGEST; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = least(row[j] + 1, row[j - 1] + 1, replaced);
        }
    }
    return row[n];
}

const char *nearest(const char *word, const char *const *candidates, int n)
{
    const char *best = candidates[0];
    for (int i = 1; i < n; i++) {
        if (edits(word, candidates[i]) < edits(word, best)) {
            best = candidates[i];
        }
    }
    return best;
}
