// SPDX-License-Identifier: Apache-2.0

#include "data/dataset.h"

#include "base/check.h"
#include "base/fail.h"
#include "data/fashion.h"
#include "data/images.h"
#include "data/masked.h"
#include "data/text.h"
#include <string.h>

static const cadre_dataset_ops *const kinds[] = {
    &cadre_fashion, &cadre_images, &cadre_masked_text, &cadre_text};

cadre_status cadre_dataset_open(
    const char *kind, const cadre_dataset_options *options, cadre_dataset **out)
{
    cadre_dataset_options o = *options;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i]->kind, kind) == 0) {
            o.path = o.path == NULL ? kinds[i]->default_path : o.path;
            return kinds[i]->open(&o, out);
        }
    }
    return cadre_fail(CADRE_ERR_NOT_FOUND,
        "there is no kind of data set '%s'; there are fashion, images, "
        "masked_text and text",
        kind);
}

cadre_status cadre_dataset_read(
    const cadre_dataset *dataset, cadre_place place, float *x, int32_t *labels)
{
    CADRE_ASSERT(place.sample >= 0 && place.sample < dataset->n_samples);
    return dataset->ops->read(dataset, place, x, labels);
}

void cadre_dataset_expect(const cadre_dataset *dataset, cadre_place place)
{
    CADRE_ASSERT(place.sample >= 0 && place.sample < dataset->n_samples);
    if (dataset->ops->expect != NULL) {
        dataset->ops->expect(dataset, place);
    }
}

void cadre_dataset_close(cadre_dataset *dataset)
{
    if (dataset != NULL) {
        dataset->ops->close(dataset);
    }
}
