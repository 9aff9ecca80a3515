// SPDX-License-Identifier: Apache-2.0

#include "parallel/settings.h"

#include <string.h>

void cadre_update_settings(const cadre_engine_options *o,
    cadre_setting settings[CADRE_UPDATE_SETTINGS])
{
    const cadre_setting all[CADRE_UPDATE_SETTINGS] = {
        {"optimizer", (double)o->optimizer},
        {"lr", o->lr},
        {"weight_decay", o->weight_decay},
        {"momentum", o->momentum},
        {"beta1", o->beta1},
        {"beta2", o->beta2},
        {"eps", o->eps},
        {"clip", o->clip},
        {"schedule", (double)o->schedule},
        {"warmup_steps", (double)o->warmup_steps},
        {"total_steps", (double)o->total_steps},
        {"min_lr_factor", o->min_lr_factor},
        {"step_every", (double)o->step_every},
        {"step_factor", o->step_factor},
    };
    memcpy(settings, all, sizeof(all));
}
