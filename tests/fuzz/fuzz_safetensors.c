// SPDX-License-Identifier: Apache-2.0
//
// Model files.  The first byte says whether the rest is the file, or its header
// alone, to which length and tensors are added.

#include "fuzz.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "state/safetensors.h"
#include <string.h>

enum { LENGTH_BYTES = 8, DATA_BYTES = 64 };

static void read_model(const char *path)
{
    static const int64_t shape[] = {2, 3};
    // In memory of its own, so that a byte beyond it is noticed.
    float *matrix = cadre_alloc_array(6, sizeof(*matrix));
    float *scalar = cadre_alloc_array(1, sizeof(*scalar));
    FUZZ_CHECK(matrix != NULL && scalar != NULL);
    const cadre_tensor tensors[] = {
        {.name = "w",
            .shape = shape,
            .n_dims = 2,
            .count = 6,
            .values = matrix},
        {.name = "b",
            .shape = shape,
            .n_dims = 0,
            .count = 1,
            .values = scalar},
    };
    cadre_status status = cadre_safetensors_read(path, tensors, 2);
    FUZZ_CHECK(status == CADRE_OK || status == CADRE_ERR_CORRUPT);
    cadre_free(matrix);
    cadre_free(scalar);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    fuzz_input in = {data, nbytes};
    if (fuzz_byte(&in) % 2 == 0) {
        read_model(fuzz_file(in.data, in.left));
        return 0;
    }
    uint8_t *content = cadre_alloc(LENGTH_BYTES + in.left + DATA_BYTES);
    FUZZ_CHECK(content != NULL);
    cadre_store_u64(content, in.left);
    memcpy(content + LENGTH_BYTES, in.data, in.left);
    read_model(fuzz_file(content, LENGTH_BYTES + in.left + DATA_BYTES));
    cadre_free(content);
    return 0;
}
