// SPDX-License-Identifier: Apache-2.0

#include "nn/layer.h"

#include "base/fail.h"
#include <string.h>

static const cadre_layer_ops *const kinds[] = {&cadre_linear, &cadre_relu};

cadre_status cadre_layer_find(const char *kind, const cadre_layer_ops **out)
{
    const char *asked = kind == NULL ? "" : kind;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i]->kind, asked) == 0) {
            *out = kinds[i];
            return CADRE_OK;
        }
    }
    return cadre_fail(CADRE_ERR_INVALID_ARG,
        "there is no kind '%s'; there are linear and relu", asked);
}
