// SPDX-License-Identifier: Apache-2.0

#include "data/sparse_rows.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include <stdbool.h>
#include <string.h>

enum { WORD = sizeof(uint64_t), MOST_ROW_BYTES = 1 << 16 };

typedef struct block {
    struct block *before;
    uint8_t bytes[1 << 20];
} block;

struct cadre_sparse_rows {
    int64_t n_rows;
    int64_t n_words;    // of a row
    int64_t mask_bytes; // of a row
    block *last;
    uint8_t *end;       // of what is stored
    int64_t n_appended; // rows that are whole
    uint8_t *part;      // the row after them
    int64_t n_part;     // bytes of it
    uint8_t *rows[];
};

cadre_status cadre_sparse_rows_create(
    int64_t n_rows, int64_t row_bytes, cadre_sparse_rows **out)
{
    CADRE_ASSERT(n_rows >= 0);
    CADRE_ASSERT(row_bytes > 0 && row_bytes <= MOST_ROW_BYTES);
    CADRE_ASSERT(row_bytes % WORD == 0);
    cadre_sparse_rows *rows =
        cadre_alloc_flex(sizeof(*rows), (size_t)n_rows, sizeof(rows->rows[0]));
    if (rows == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    rows->n_rows = n_rows;
    rows->n_words = row_bytes / WORD;
    rows->mask_bytes = (rows->n_words + 7) / 8;
    rows->part = cadre_alloc((size_t)row_bytes);
    if (rows->part == NULL) {
        cadre_sparse_rows_destroy(rows);
        return CADRE_ERR_NO_MEMORY;
    }
    *out = rows;
    return CADRE_OK;
}

// What a row may take, and a word behind it, which is read for nothing.
static int64_t most_bytes(const cadre_sparse_rows *rows)
{
    return rows->mask_bytes + (rows->n_words + 1) * WORD;
}

static bool has_room(const cadre_sparse_rows *rows)
{
    const block *b = rows->last;
    return b != NULL &&
           b->bytes + sizeof(b->bytes) - rows->end >= most_bytes(rows);
}

static cadre_status make_room(cadre_sparse_rows *rows)
{
    if (has_room(rows)) {
        return CADRE_OK;
    }
    block *b = cadre_alloc(sizeof(*b));
    if (b == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    b->before = rows->last;
    rows->last = b;
    rows->end = b->bytes;
    return CADRE_OK;
}

static cadre_status store_row(cadre_sparse_rows *rows, const uint8_t *bytes)
{
    CADRE_ASSERT(rows->n_appended < rows->n_rows);
    CADRE_TRY(make_room(rows));
    uint8_t *mask = rows->end; // zeroed, as all memory
    uint8_t *to = mask + rows->mask_bytes;
    for (int64_t w = 0; w < rows->n_words; w++) {
        uint64_t word;
        memcpy(&word, bytes + w * WORD, WORD);
        if (word != 0) {
            mask[w / 8] |= (uint8_t)(1u << w % 8);
            memcpy(to, &word, WORD);
            to += WORD;
        }
    }
    rows->rows[rows->n_appended++] = mask;
    rows->end = to;
    return CADRE_OK;
}

cadre_status cadre_sparse_rows_append(
    cadre_sparse_rows *rows, const uint8_t *bytes, int64_t nbytes)
{
    const int64_t row_bytes = rows->n_words * WORD;
    while (nbytes > 0) {
        int64_t lacking = row_bytes - rows->n_part;
        int64_t n = nbytes < lacking ? nbytes : lacking;
        memcpy(rows->part + rows->n_part, bytes, (size_t)n);
        bytes += n;
        nbytes -= n;
        rows->n_part = (rows->n_part + n) % row_bytes;
        if (n == lacking) {
            CADRE_TRY(store_row(rows, rows->part));
        }
    }
    return CADRE_OK;
}

// Without a branch that depends on the data: a word is always read, and counts
// only if it is stored.
void cadre_sparse_rows_read(
    const cadre_sparse_rows *rows, int64_t row, uint8_t *bytes)
{
    CADRE_ASSERT(row >= 0 && row < rows->n_appended);
    const uint8_t *mask = rows->rows[row];
    const uint8_t *from = mask + rows->mask_bytes;
    for (int64_t w = 0; w < rows->n_words; w++) {
        uint64_t stored = mask[w / 8] >> w % 8 & 1;
        uint64_t word;
        memcpy(&word, from, WORD);
        word &= 0 - stored;
        memcpy(bytes + w * WORD, &word, WORD);
        from += stored * WORD;
    }
}

void cadre_sparse_rows_expect(const cadre_sparse_rows *rows, int64_t row)
{
    CADRE_ASSERT(row >= 0 && row < rows->n_appended);
    const int64_t most = most_bytes(rows); // where it ends is in its mask
    for (int64_t at = 0; at < most; at += CADRE_CACHE_LINE) {
        __builtin_prefetch(rows->rows[row] + at);
    }
}

void cadre_sparse_rows_destroy(cadre_sparse_rows *rows)
{
    if (rows == NULL) {
        return;
    }
    for (block *b = rows->last; b != NULL;) {
        block *before = b->before;
        cadre_free(b);
        b = before;
    }
    cadre_free(rows->part);
    cadre_free(rows);
}
