// SPDX-License-Identifier: Apache-2.0
//
// Values of our JSON files: numbers that read back to the same bits and are
// never NaN or infinite, hashes as 16 hex digits.  NULL without memory, which
// jansson's calls take for a failure.

#ifndef CADRE_TRAIN_VALUES_H
#define CADRE_TRAIN_VALUES_H

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

static inline json_t *cadre_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static inline json_t *cadre_json_hash(uint64_t value)
{
    char digits[17];
    snprintf(digits, sizeof(digits), "%016" PRIx64, value);
    return json_string(digits);
}

#endif // CADRE_TRAIN_VALUES_H
