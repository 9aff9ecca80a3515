// SPDX-License-Identifier: Apache-2.0

#include "nn/narrow_matrix.h"

#include "kernel/narrow.h"

static void narrow_row(
    cadre_matrix_view from, cadre_narrow_matrix to, int64_t n)
{
    cadre_narrow(CADRE_BF16, to.data + n * to.stride,
        cadre_matrix_view_row(from, n), (size_t)to.columns);
}

static void widen_row(cadre_narrow_view from, cadre_matrix to, int64_t n)
{
    cadre_widen(CADRE_BF16, cadre_matrix_row(to, n),
        from.data + n * from.stride, (size_t)to.columns);
}

void cadre_matrix_narrow(cadre_matrix_view from, cadre_narrow_matrix to)
{
    for (int64_t n = 0; n < to.rows; n++) {
        narrow_row(from, to, n);
    }
}

// Row by row, so that it is still in the cache.
void cadre_matrix_round(cadre_matrix from, cadre_narrow_matrix to)
{
    for (int64_t n = 0; n < to.rows; n++) {
        narrow_row(cadre_matrix_read(from), to, n);
        widen_row(cadre_narrow_read(to), from, n);
    }
}

void cadre_matrix_widen(cadre_narrow_view from, cadre_matrix to)
{
    for (int64_t n = 0; n < to.rows; n++) {
        widen_row(from, to, n);
    }
}
