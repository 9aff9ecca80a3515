// SPDX-License-Identifier: Apache-2.0

#include "data/dataset.h"

#include "base/check.h"
#include "base/fail.h"
#include "data/fashion.h"
#include "data/masked.h"
#include "data/text.h"
#include <string.h>

static const cadre_dataset_ops *const kinds[] = {
    &cadre_fashion, &cadre_masked_text, &cadre_text};

cadre_status cadre_dataset_open(const char *kind, const char *path,
    cadre_split split, int64_t context, cadre_dataset **out)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i]->kind, kind) == 0) {
            return kinds[i]->open(path == NULL ? kinds[i]->default_path : path,
                split, context, out);
        }
    }
    return cadre_fail(CADRE_ERR_NOT_FOUND,
        "there is no kind of data set '%s'; there are fashion, masked_text and "
        "text",
        kind);
}

void cadre_dataset_read(
    const cadre_dataset *dataset, int64_t index, float *x, int32_t *labels)
{
    CADRE_ASSERT(index >= 0 && index < dataset->n_samples);
    dataset->ops->read(dataset, index, x, labels);
}

void cadre_dataset_close(cadre_dataset *dataset)
{
    if (dataset != NULL) {
        dataset->ops->close(dataset);
    }
}
