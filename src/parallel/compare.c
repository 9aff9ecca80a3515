// SPDX-License-Identifier: Apache-2.0

#include "parallel/compare.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "group/group.h"
#include <stdio.h>
#include <string.h>

enum { MOST_DESCRIPTION_BYTES = 256 << 20 };

// Everybody's n_words words in rank order, for cadre_free().
static cadre_status gather_words(
    cadre_group *group, const int64_t *mine, size_t n_words, int64_t **out)
{
    size_t n = (size_t)cadre_world_size(group);
    int64_t *all = cadre_alloc_array(n, n_words * sizeof(*all));
    cadre_status status = all == NULL
                              ? CADRE_ERR_NO_MEMORY
                              : cadre_gather_words(group, mine, n_words, all);
    if (status != CADRE_OK) {
        cadre_free(all);
        return status;
    }
    *out = all;
    return CADRE_OK;
}

// Where ranks differ first: the lowest word that any rank has otherwise than
// rank 0, and the lowest such rank.  False if there is none.
static bool first_difference(
    const int64_t *all, int n_ranks, size_t n_words, size_t *word, int *rank)
{
    for (size_t w = 0; w < n_words; w++) {
        for (int r = 1; r < n_ranks; r++) {
            if (all[(size_t)r * n_words + w] != all[w]) {
                *word = w;
                *rank = r;
                return true;
            }
        }
    }
    return false;
}

cadre_status cadre_compare_word(cadre_group *group, uint64_t word, bool *equal)
{
    int64_t mine = (int64_t)word;
    int64_t *all;
    CADRE_TRY(gather_words(group, &mine, 1, &all));
    size_t where;
    int rank;
    *equal = !first_difference(all, cadre_world_size(group), 1, &where, &rank);
    cadre_free(all);
    return CADRE_OK;
}

// --- layouts ---

// A segment in words, with its final zero; returns the bytes it takes.
static size_t describe(
    const cadre_layout *layout, int segment, char *text, size_t capacity)
{
    const cadre_segment *s = &layout->segments[segment];
    char shape[CADRE_LAYOUT_MAX_DIMS * 24] = "";
    size_t used = 0;
    for (int i = 0; i < s->n_dims; i++) {
        used += (size_t)snprintf(shape + used, sizeof(shape) - used, "%s%lld",
            i == 0 ? "" : ", ", (long long)s->shape[i]);
    }
    int length = snprintf(text, capacity, "'%s' (%s) in unit '%s'%s%s%s",
        s->name, shape, layout->units[s->unit].name,
        s->frozen ? ", frozen" : "", s->buffer ? ", a buffer" : "",
        s->no_decay ? ", without weight decay" : "");
    return (size_t)length + 1;
}

static char *describe_all(const cadre_layout *layout, size_t *nbytes)
{
    size_t total = 0;
    for (int i = 0; i < layout->n_segments; i++) {
        total += describe(layout, i, NULL, 0);
    }
    char *text = cadre_alloc(total);
    size_t used = 0;
    for (int i = 0; text != NULL && i < layout->n_segments; i++) {
        used += describe(layout, i, text + used, total - used);
    }
    *nbytes = total;
    return text;
}

// The description of a segment among those of a rank, or "no such parameter".
static const char *described(const char *text, size_t nbytes, int segment)
{
    const char *at = text;
    const char *end = text + nbytes;
    while (at < end) {
        const char *zero = memchr(at, '\0', (size_t)(end - at));
        if (zero == NULL) {
            break;
        }
        if (segment-- == 0) {
            return at;
        }
        at = zero + 1;
    }
    return "no such parameter";
}

// Finds the first parameter that rank has otherwise than rank 0 and fails.
static cadre_status name_difference(
    cadre_group *group, const char *texts, const size_t *counts, int rank)
{
    const char *other = texts;
    for (int r = 0; r < rank; r++) {
        other += counts[r];
    }
    int segment = 0;
    const char *ours = described(texts, counts[0], segment);
    const char *theirs = described(other, counts[rank], segment);
    while (strcmp(ours, theirs) == 0) {
        segment++;
        ours = described(texts, counts[0], segment);
        theirs = described(other, counts[rank], segment);
    }
    char text[CADRE_FAIL_TEXT_BYTES];
    snprintf(text, sizeof(text),
        "ranks have different parameters; the first that differs is number "
        "%d: rank 0 has %s, rank %d has %s",
        segment, ours, rank, theirs);
    return cadre_group_fail(group, CADRE_ERR_DESYNC, text);
}

// Gathers all descriptions; counts are their bytes, known to all.
static cadre_status exchange_descriptions(cadre_group *group,
    const cadre_layout *layout, const size_t *counts, int rank)
{
    size_t total = 0;
    for (int r = 0; r < cadre_world_size(group); r++) {
        if (counts[r] > MOST_DESCRIPTION_BYTES) {
            return cadre_group_fail(group, CADRE_ERR_DESYNC,
                "ranks have different parameters, too many to compare");
        }
        total += counts[r];
    }
    size_t nbytes;
    char *mine = describe_all(layout, &nbytes);
    char *texts = cadre_alloc(total);
    cadre_status status = CADRE_ERR_NO_MEMORY;
    if (mine != NULL && texts != NULL) {
        status = cadre_allgather(group, mine, texts, counts, CADRE_U8, NULL);
    }
    if (status == CADRE_OK) {
        status = name_difference(group, texts, counts, rank);
    }
    cadre_free(texts);
    cadre_free(mine);
    return status;
}

cadre_status cadre_compare_layouts(
    cadre_group *group, const cadre_layout *layout)
{
    size_t nbytes = 0;
    for (int i = 0; i < layout->n_segments; i++) {
        nbytes += describe(layout, i, NULL, 0);
    }
    int64_t mine[2] = {(int64_t)cadre_layout_hash(layout), (int64_t)nbytes};
    int64_t *all;
    CADRE_TRY(gather_words(group, mine, 2, &all));

    int n = cadre_world_size(group);
    size_t word;
    int rank;
    cadre_status status = CADRE_OK;
    if (first_difference(all, n, 2, &word, &rank)) {
        size_t *counts = cadre_alloc_array((size_t)n, sizeof(*counts));
        status = CADRE_ERR_NO_MEMORY;
        if (counts != NULL) {
            for (int r = 0; r < n; r++) {
                counts[r] = (size_t)all[2 * r + 1];
            }
            status = exchange_descriptions(group, layout, counts, rank);
        }
        cadre_free(counts);
    }
    cadre_free(all);
    return status;
}

// --- values and settings ---

cadre_status cadre_compare_values(const cadre_model *model)
{
    int n = model->layout.n_segments;
    int64_t *mine = cadre_alloc_array((size_t)n, sizeof(*mine));
    if (mine == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    for (int i = 0; i < n; i++) {
        mine[i] = (int64_t)cadre_model_segment_hash(model, i);
    }
    int64_t *all = NULL;
    cadre_status status = gather_words(model->group, mine, (size_t)n, &all);
    size_t segment;
    int rank;
    if (status == CADRE_OK &&
        first_difference(
            all, cadre_world_size(model->group), (size_t)n, &segment, &rank)) {
        char text[CADRE_FAIL_TEXT_BYTES];
        snprintf(text, sizeof(text),
            "ranks begin with different values; the first parameter that "
            "differs is '%s': its hash is %016llx on rank 0 and %016llx on "
            "rank %d; fill in the same values everywhere",
            model->layout.segments[segment].name,
            (unsigned long long)all[segment],
            (unsigned long long)all[(size_t)rank * (size_t)n + segment], rank);
        status = cadre_group_fail(model->group, CADRE_ERR_DESYNC, text);
    }
    cadre_free(all);
    cadre_free(mine);
    return status;
}

cadre_status cadre_compare_settings(
    cadre_group *group, const cadre_setting *settings, int n)
{
    int64_t *mine = cadre_alloc_array((size_t)n, sizeof(*mine));
    if (mine == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    for (int i = 0; i < n; i++) {
        memcpy(&mine[i], &settings[i].value, sizeof(mine[i]));
    }
    int64_t *all = NULL;
    cadre_status status = gather_words(group, mine, (size_t)n, &all);
    size_t i;
    int rank;
    if (status == CADRE_OK &&
        first_difference(all, cadre_world_size(group), (size_t)n, &i, &rank)) {
        double first;
        double other;
        memcpy(&first, &all[i], sizeof(first));
        memcpy(&other, &all[(size_t)rank * (size_t)n + i], sizeof(other));
        char text[CADRE_FAIL_TEXT_BYTES];
        snprintf(text, sizeof(text),
            "ranks have different settings: %s is %.9g on rank 0 and %.9g on "
            "rank %d",
            settings[i].name, first, other, rank);
        status = cadre_group_fail(group, CADRE_ERR_DESYNC, text);
    }
    cadre_free(all);
    cadre_free(mine);
    return status;
}
