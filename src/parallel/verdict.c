// SPDX-License-Identifier: Apache-2.0

#include "parallel/verdict.h"

#include "base/alloc.h"
#include "base/fail.h"
#include <string.h>

// The lowest rank that failed, and its status; -1 if none did.
static cadre_status find_first(
    cadre_group *group, cadre_status mine, int *rank, cadre_status *first)
{
    int n = cadre_world_size(group);
    // One word per rank, its own filled in by each, all others zero: a sum.
    int64_t *words = cadre_alloc_array((size_t)n, sizeof(*words));
    if (words == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    words[cadre_rank(group)] = mine;
    cadre_status status = cadre_allreduce(
        group, words, words, (size_t)n, CADRE_I64, CADRE_SUM, NULL);
    *rank = -1;
    for (int r = 0; status == CADRE_OK && r < n && *rank < 0; r++) {
        if (words[r] != CADRE_OK) {
            *rank = r;
            *first = (cadre_status)words[r];
        }
    }
    cadre_free(words);
    return status;
}

cadre_status cadre_share_verdict(cadre_group *group, cadre_status mine)
{
    if (cadre_world_size(group) == 1) {
        return mine;
    }
    char text[CADRE_FAIL_TEXT_BYTES] = "";
    if (mine != CADRE_OK) {
        strncpy(text, cadre_error_text(), sizeof(text) - 1);
    }
    int rank;
    cadre_status first = CADRE_OK;
    CADRE_TRY(find_first(group, mine, &rank, &first));
    if (rank < 0) {
        return CADRE_OK;
    }
    CADRE_TRY(cadre_broadcast(group, text, sizeof(text), CADRE_U8, rank, NULL));
    text[sizeof(text) - 1] = '\0';
    return cadre_fail(first, "%s", text);
}
