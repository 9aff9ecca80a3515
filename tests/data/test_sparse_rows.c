// SPDX-License-Identifier: Apache-2.0
//
// Rows without their blank words are read as they were appended.

#include "base/alloc.h"
#include "data/sparse_rows.h"
#include "support/check.h"
#include <stdbool.h>
#include <string.h>

// Of a row, in an order that has all kinds side by side: blank, without a blank
// word, and with words that are blank by chance or but for one byte.
static void fill(uint8_t *row, int64_t n, int64_t row_bytes)
{
    uint32_t x = (uint32_t)n * 2654435761u + 1;
    for (int64_t i = 0; i < row_bytes; i++) {
        x = x * 1664525u + 1013904223u;
        bool blank = n % 4 == 0 || (n % 4 == 2 && (i / 8 * 7 + n) % 3 > 0) ||
                     (n % 4 == 3 && i % 8 != (n + i / 8) % 8);
        row[i] = blank ? 0 : (uint8_t)(x >> 24 | 1);
    }
}

static void check(int64_t n_rows, int64_t row_bytes, int64_t piece)
{
    int64_t nbytes = n_rows * row_bytes;
    uint8_t *all = cadre_alloc((size_t)nbytes);
    uint8_t *row = cadre_alloc((size_t)row_bytes);
    assert_true(all != NULL && row != NULL);
    for (int64_t n = 0; n < n_rows; n++) {
        fill(all + n * row_bytes, n, row_bytes);
    }
    cadre_sparse_rows *rows = NULL;
    CHECK_OK(cadre_sparse_rows_create(n_rows, row_bytes, &rows));
    for (int64_t at = 0; at < nbytes; at += piece) {
        int64_t left = nbytes - at;
        CHECK_OK(cadre_sparse_rows_append(
            rows, all + at, left < piece ? left : piece));
    }
    for (int64_t n = n_rows - 1; n >= 0; n--) {
        cadre_sparse_rows_expect(rows, n);
        cadre_sparse_rows_read(rows, n, row);
        assert_memory_equal(row, all + n * row_bytes, (size_t)row_bytes);
    }
    cadre_sparse_rows_destroy(rows);
    cadre_free(row);
    cadre_free(all);
}

static void rows_are_read_as_they_were(void **state)
{
    (void)state;
    const int64_t widths[] = {8, 56, 64, 72, 784, 65536};
    for (int w = 0; w < 6; w++) {
        check(1, widths[w], widths[w]);
        check(37, widths[w], 1000);
    }
    check(0, 784, 1);
    check(5, 784, 1);
    check(5000, 784, 1 << 20); // several blocks
    check(100, 65536, 99999);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static uint8_t bytes[3 << 20];
    memset(bytes, 1, sizeof(bytes));
    cadre_status status = CADRE_ERR_NO_MEMORY;
    int failures = 0;
    for (; status != CADRE_OK; failures++) {
        cadre_sparse_rows *rows = NULL;
        cadre_alloc_fail_after(failures);
        status = cadre_sparse_rows_create(3 << 10, 1 << 10, &rows);
        if (status == CADRE_OK) {
            status = cadre_sparse_rows_append(rows, bytes, sizeof(bytes));
        }
        cadre_alloc_fail_after(-1);
        cadre_sparse_rows_destroy(rows);
        assert_true(status == CADRE_OK || status == CADRE_ERR_NO_MEMORY);
    }
    assert_in_range(failures, 4, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_read_as_they_were),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
