// SPDX-License-Identifier: Apache-2.0

#include "state/placement.h"

// In the order of cadre_mode.
static const cadre_placement_row rows[] = {
    {
        .mode = "ddp",
        .params = CADRE_REPLICATED,
        .grads = CADRE_REPLICATED,
        .optimizer = CADRE_REPLICATED,
    },
    {
        .mode = "zero1",
        .params = CADRE_REPLICATED,
        .grads = CADRE_REPLICATED,
        .optimizer = CADRE_SHARDED,
    },
};

const cadre_placement_row *cadre_placement_of(int mode)
{
    size_t n = sizeof(rows) / sizeof(rows[0]);
    return mode >= 0 && (size_t)mode < n ? &rows[mode] : NULL;
}
