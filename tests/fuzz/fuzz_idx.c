// SPDX-License-Identifier: Apache-2.0
//
// Data files of the idx format, gzipped or not.  The first byte says how many
// dimensions are wanted, the rest is the file.

#include "fuzz.h"

#include "base/alloc.h"
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    fuzz_input in = {data, nbytes};
    int n_dims = 1 + fuzz_byte(&in) % CADRE_IDX_MAX_DIMS;
    const char *path = fuzz_file(in.data, in.left);
    const char *name = strrchr(path, '/') + 1;
    cadre_idx_file file;
    cadre_status status = cadre_idx_open("/proc/self/fd", name, n_dims, &file);
    if (status == CADRE_OK) {
        int64_t count = count_elements(&file, n_dims);
        uint8_t *elements = cadre_alloc((size_t)count);
        FUZZ_CHECK(elements != NULL);
        status = cadre_idx_read(&file, elements, count);
        cadre_free(elements);
        cadre_idx_close(&file);
    }
    FUZZ_CHECK(status == CADRE_OK || status == CADRE_ERR_CORRUPT);
    return 0;
}
