// SPDX-License-Identifier: Apache-2.0
//
// Rows of bytes held in memory without their blank words: eight bytes that are
// all zero, which are a quarter of Fashion-MNIST.
//
//     row:   bit w % 8 of byte w / 8 says whether word w is stored; then the
//            stored words, eight bytes each, in their order
//
// Rows lie one behind the other in large blocks of memory; none is cut by a
// block's end.
//
// Memory:  what is stored, a bit for each word and a pointer for each row.
// Threads: one appends; once all rows are there, any read.

#ifndef CADRE_DATA_SPARSE_ROWS_H
#define CADRE_DATA_SPARSE_ROWS_H

#include "cadre/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct cadre_sparse_rows cadre_sparse_rows;

/**
 * For n_rows rows of row_bytes each, which is a multiple of 8 and at most 64 KiB.
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_sparse_rows_create(
    int64_t n_rows, int64_t row_bytes, cadre_sparse_rows **out);

/**
 * Takes the next bytes of all rows' bytes in a line; a row may come in pieces.
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_sparse_rows_append(
    cadre_sparse_rows *rows, const uint8_t *bytes, int64_t nbytes);

/** Writes row_bytes bytes. */
void cadre_sparse_rows_read(
    const cadre_sparse_rows *rows, int64_t row, uint8_t *bytes);

/** Has the processor fetch a row that is read soon. */
void cadre_sparse_rows_expect(const cadre_sparse_rows *rows, int64_t row);

void cadre_sparse_rows_destroy(cadre_sparse_rows *rows); // NULL is allowed

#endif // CADRE_DATA_SPARSE_ROWS_H
