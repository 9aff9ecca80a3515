// SPDX-License-Identifier: Apache-2.0

#include "cadre/types.h"

#include <stdint.h>

size_t cadre_dtype_bytes(cadre_dtype dtype)
{
    switch (dtype) {
    case CADRE_F32:
        return sizeof(float);
    case CADRE_F64:
        return sizeof(double);
    case CADRE_I64:
        return sizeof(int64_t);
    case CADRE_U8:
        return sizeof(uint8_t);
    }
    return 0;
}

const char *cadre_dtype_name(cadre_dtype dtype)
{
    switch (dtype) {
    case CADRE_F32:
        return "f32";
    case CADRE_F64:
        return "f64";
    case CADRE_I64:
        return "i64";
    case CADRE_U8:
        return "u8";
    }
    return "?";
}
