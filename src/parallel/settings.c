// SPDX-License-Identifier: Apache-2.0

#include "parallel/settings.h"

#include "base/fail.h"
#include "state/leaf.h"
#include "state/placement.h"
#include <string.h>

enum {
    // As PyTorch's bucket_cap_mb: large enough that latency does not matter,
    // small enough that the last one is short.
    DEFAULT_BUCKET_BYTES = 25 << 20,
};

// 0 means the default, CADRE_ZERO means 0.
static double or_default(double value, double by_default)
{
    if (value == CADRE_ZERO) {
        return 0.0;
    }
    return value == 0.0 ? by_default : value;
}

static void fill_in(cadre_engine_options *o)
{
    bool adamw = o->optimizer == CADRE_ADAMW;
    o->threads = o->threads == 0 ? 1 : o->threads;
    o->fold = o->fold == 0 ? CADRE_FOLD_DEFERRED : o->fold;
    o->bucket_bytes =
        o->bucket_bytes == 0 ? DEFAULT_BUCKET_BYTES : o->bucket_bytes;
    o->lr = or_default(o->lr, adamw ? 1e-3 : 1e-1);
    o->weight_decay = or_default(o->weight_decay, adamw ? 1e-2 : 0.0);
    o->momentum = or_default(o->momentum, 0.0);
    o->beta1 = or_default(o->beta1, 0.9);
    o->beta2 = or_default(o->beta2, 0.999);
    o->eps = or_default(o->eps, 1e-8);
    o->clip = or_default(o->clip, 0.0);
    o->min_lr_factor = or_default(o->min_lr_factor, 0.0);
    o->step_factor = or_default(o->step_factor, 0.1);
}

static cadre_status check_numbers(const cadre_engine_options *o)
{
    const struct {
        const char *name;
        double value;
        double most;
    } numbers[] = {
        {"lr", o->lr, 1e30},
        {"weight_decay", o->weight_decay, 1e30},
        {"momentum", o->momentum, 0.999999},
        {"beta1", o->beta1, 0.999999},
        {"beta2", o->beta2, 0.9999999},
        {"eps", o->eps, 1e30},
        {"clip", o->clip, 1e30},
        {"min_lr_factor", o->min_lr_factor, 1.0},
        {"step_factor", o->step_factor, 1.0},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (!(numbers[i].value >= 0.0 && numbers[i].value <= numbers[i].most)) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "engine: %s is %.12g, it must be from 0 to %.12g",
                numbers[i].name, numbers[i].value, numbers[i].most);
        }
    }
    // As it is computed with.
    if (o->optimizer == CADRE_ADAMW && (float)o->eps == 0.0f) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "engine: eps is %g: adamw would divide 0 by 0 where a gradient is "
            "0; give more, such as 1e-8",
            o->eps);
    }
    return CADRE_OK;
}

static cadre_status check_schedule(const cadre_engine_options *o)
{
    const struct {
        const char *name;
        int64_t value;
        bool needed;
    } counts[] = {
        {"warmup_steps", o->warmup_steps, false},
        {"total_steps", o->total_steps,
            o->schedule == CADRE_COSINE || o->schedule == CADRE_LINEAR},
        {"step_every", o->step_every, o->schedule == CADRE_STEP},
    };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        int64_t lowest = counts[i].needed ? 1 : 0;
        if (counts[i].value < lowest) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "engine: %s is %lld, %s at least %lld", counts[i].name,
                (long long)counts[i].value,
                lowest == 1 ? "this schedule needs" : "it must be",
                (long long)lowest);
        }
    }
    return CADRE_OK;
}

static cadre_status check_mode(const cadre_engine_options *o)
{
    const cadre_placement_row *row = cadre_placement_of((int)o->mode);
    if (row == NULL) {
        return cadre_fail(
            CADRE_ERR_INVALID_ARG, "engine: there is no mode %d", (int)o->mode);
    }
    if (row->optimizer == CADRE_SHARDED && o->optimizer == CADRE_NONE) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "engine: mode %s shards the optimizer's state, and there is no "
            "optimizer: choose one, or the mode ddp",
            row->mode);
    }
    if (o->overlap != CADRE_OVERLAP_ON && o->overlap != CADRE_OVERLAP_OFF) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "engine: overlap is %d, it must be on or off", (int)o->overlap);
    }
    return CADRE_OK;
}

static cadre_status check_options(const cadre_engine_options *o)
{
    CADRE_TRY(check_mode(o));
    if (o->optimizer > CADRE_ADAMW || o->schedule > CADRE_STEP) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "engine: there is no optimizer %d or no schedule %d",
            (int)o->optimizer, (int)o->schedule);
    }
    if (o->leaves < 0 || o->leaves > CADRE_MAX_LEAVES) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "engine: leaves is %d, it must be from 1 to %d (0: ranks x "
            "threads)",
            o->leaves, CADRE_MAX_LEAVES);
    }
    if (o->threads < 1 || o->threads > CADRE_MAX_THREADS) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "engine: threads is %d, it must be from 1 to %d", o->threads,
            CADRE_MAX_THREADS);
    }
    bool power = o->fold > 0 && (o->fold & (o->fold - 1)) == 0;
    if (o->fold != CADRE_FOLD_DEFERRED && o->fold != CADRE_FOLD_EAGER &&
        !(power && o->fold <= CADRE_MAX_LEAVES)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "engine: fold is %d, it must be deferred, eager or a power of two "
            "up to %d",
            o->fold, CADRE_MAX_LEAVES);
    }
    CADRE_TRY(check_schedule(o));
    return check_numbers(o);
}

cadre_status cadre_settings_fill_in(cadre_engine_options *o)
{
    fill_in(o);
    return check_options(o);
}

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
