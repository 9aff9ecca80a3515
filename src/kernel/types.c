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
    case CADRE_I8:
        return sizeof(int8_t);
    case CADRE_I32:
        return sizeof(int32_t);
    case CADRE_BF16:
    case CADRE_F16:
        return sizeof(uint16_t);
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
    case CADRE_I8:
        return "i8";
    case CADRE_I32:
        return "i32";
    case CADRE_BF16:
        return "bf16";
    case CADRE_F16:
        return "f16";
    }
    return "?";
}

const char *cadre_reduce_op_name(cadre_reduce_op op)
{
    switch (op) {
    case CADRE_SUM:
        return "sum";
    case CADRE_MEAN:
        return "mean";
    case CADRE_MIN:
        return "min";
    case CADRE_MAX:
        return "max";
    case CADRE_PRODUCT:
        return "product";
    }
    return "?";
}
