// SPDX-License-Identifier: Apache-2.0
//
// Data files of the idx format, gzipped or not.  The first byte says how many
// dimensions are wanted, the rest is the file.  Its elements are read, and kept
// and read by place: both find the same, and the same faults.

#include "fuzz.h"

#include "base/fail.h"
#include "data/idx_file.h"
#include <string.h>

enum { MOST_ELEMENTS = 4096 };

// As many elements as the header announces, if they are few.
static int64_t count_elements(const cadre_idx_file *file, int n_dims)
{
    int64_t count = 1;
    for (int d = 0; d < n_dims; d++) {
        FUZZ_CHECK(file->extents[d] >= 0 && file->extents[d] <= UINT32_MAX);
        count = count <= MOST_ELEMENTS ? count * file->extents[d] : count;
    }
    return count <= MOST_ELEMENTS ? count : MOST_ELEMENTS;
}

static cadre_status read_once(
    const char *name, int n_dims, uint8_t *elements, int64_t *count)
{
    cadre_idx_file file;
    CADRE_TRY(cadre_idx_open("/proc/self/fd", name, n_dims, &file));
    *count = count_elements(&file, n_dims);
    cadre_status status = cadre_idx_read(&file, elements, *count);
    cadre_idx_close(&file);
    return status;
}

static cadre_status read_kept(
    const char *name, int n_dims, uint8_t *elements, int64_t count)
{
    cadre_idx_file file;
    uint64_t hash;
    CADRE_TRY(cadre_idx_open("/proc/self/fd", name, n_dims, &file));
    cadre_status status = cadre_idx_keep(&file, count, &hash);
    if (status == CADRE_OK) {
        status = cadre_idx_read_at(&file, 0, elements, (size_t)count);
    }
    cadre_idx_close(&file);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    fuzz_input in = {data, nbytes};
    int n_dims = 1 + fuzz_byte(&in) % CADRE_IDX_MAX_DIMS;
    const char *path = fuzz_file(in.data, in.left);
    const char *name = strrchr(path, '/') + 1;
    uint8_t elements[MOST_ELEMENTS];
    uint8_t kept[MOST_ELEMENTS];
    int64_t count = 0;
    cadre_status status = read_once(name, n_dims, elements, &count);
    FUZZ_CHECK(status == CADRE_OK || status == CADRE_ERR_CORRUPT);
    if (count > 0) {
        FUZZ_CHECK(read_kept(name, n_dims, kept, count) == status);
        FUZZ_CHECK(
            status != CADRE_OK || memcmp(kept, elements, (size_t)count) == 0);
    }
    return 0;
}
