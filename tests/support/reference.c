// SPDX-License-Identifier: Apache-2.0

#include "support/reference.h"

#include "base/random.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// A number of any type: a real one, or an integer with its sign extended.
typedef union number {
    double real;
    int64_t whole;
} number;

bool reference_is_real(cadre_dtype dtype)
{
    return dtype == CADRE_F32 || dtype == CADRE_F64 || dtype == CADRE_BF16 ||
           dtype == CADRE_F16;
}

// --- 16 bits ---

typedef struct format {
    int mantissa_bits;
    int lowest;  // exponent of the smallest normal number
    int highest; // exponent of the largest finite one
} format;

static format format_of(cadre_dtype dtype)
{
    return dtype == CADRE_BF16 ? (format){7, -126, 127} : (format){10, -14, 15};
}

double reference_widen(cadre_dtype dtype, uint16_t narrow)
{
    format f = format_of(dtype);
    int mantissa = narrow & ((1 << f.mantissa_bits) - 1);
    int exponent = (narrow & 0x7fff) >> f.mantissa_bits;
    double value;
    if (exponent > f.highest - f.lowest + 1) {
        value = mantissa == 0 ? HUGE_VAL : (double)NAN;
    } else if (exponent == 0) {
        value = ldexp(mantissa, f.lowest - f.mantissa_bits);
    } else {
        value = ldexp(mantissa + (1 << f.mantissa_bits),
            f.lowest - f.mantissa_bits + exponent - 1);
    }
    return (narrow & 0x8000) != 0 ? -value : value;
}

uint16_t reference_narrow(cadre_dtype dtype, float wide)
{
    format f = format_of(dtype);
    int infinity = (f.highest - f.lowest + 2) << f.mantissa_bits;
    if (isnan(wide)) {
        return (uint16_t)(infinity + 1);
    }
    int bits = infinity;
    double magnitude = fabs((double)wide);
    if (!isinf(wide)) {
        int exponent;
        (void)frexp(magnitude, &exponent);
        exponent--; // frexp's fraction is below 1
        if (magnitude == 0.0 || exponent < f.lowest) {
            exponent = f.lowest;
        }
        // In units of the last place; a normal number has the highest bit.
        double units = rint(ldexp(magnitude, f.mantissa_bits - exponent));
        bits = ((exponent - f.lowest) << f.mantissa_bits) + (int)units;
        bits = bits < infinity ? bits : infinity;
    }
    return (uint16_t)(bits | (signbit(wide) ? 0x8000 : 0));
}

// --- elements ---

static number load(cadre_dtype dtype, const void *run, size_t i)
{
    size_t nbytes = cadre_dtype_bytes(dtype);
    const char *at = (const char *)run + i * nbytes;
    float f32;
    double f64;
    uint16_t narrow;
    int8_t i8;
    uint8_t u8;
    int32_t i32;
    int64_t i64;
    switch (dtype) {
    case CADRE_F32:
        memcpy(&f32, at, nbytes);
        return (number){.real = (double)f32};
    case CADRE_F64:
        memcpy(&f64, at, nbytes);
        return (number){.real = f64};
    case CADRE_BF16:
    case CADRE_F16:
        memcpy(&narrow, at, nbytes);
        return (number){.real = reference_widen(dtype, narrow)};
    case CADRE_I8:
        memcpy(&i8, at, nbytes);
        return (number){.whole = i8};
    case CADRE_U8:
        memcpy(&u8, at, nbytes);
        return (number){.whole = u8};
    case CADRE_I32:
        memcpy(&i32, at, nbytes);
        return (number){.whole = i32};
    case CADRE_I64:
        memcpy(&i64, at, nbytes);
        return (number){.whole = i64};
    }
    abort();
}

static void store(cadre_dtype dtype, void *run, size_t i, number value)
{
    size_t nbytes = cadre_dtype_bytes(dtype);
    char *at = (char *)run + i * nbytes;
    if (dtype == CADRE_F32) {
        float f32 = (float)value.real;
        memcpy(at, &f32, nbytes);
    } else if (dtype == CADRE_F64) {
        memcpy(at, &value.real, nbytes);
    } else if (reference_is_real(dtype)) {
        uint16_t narrow = reference_narrow(dtype, (float)value.real);
        memcpy(at, &narrow, nbytes);
    } else {
        memcpy(at, &value.whole, nbytes); // the low bytes come first
    }
}

void reference_fill(cadre_dtype dtype, uint32_t rank, void *run, size_t count)
{
    static const int smallest[N_DTYPES] = {[CADRE_F32] = -149,
        [CADRE_F64] = -1074,
        [CADRE_BF16] = -133,
        [CADRE_F16] = -24};
    for (size_t i = 0; i < count; i++) {
        uint32_t words[4];
        cadre_random_words(1, CADRE_STREAM_INITIAL, rank, i, words);
        double real =
            ldexp((double)(int32_t)words[0], (int)(words[1] % 8) - 31);
        switch (i % 16) {
        case 3:
            real = -0.0;
            break;
        case 5:
            real = rank % 2 == 0 ? 0.0 : -0.0;
            break;
        case 7:
            real = ldexp((double)(words[0] % 1000), smallest[dtype]);
            break;
        case 9:
            real = rank == 1 && i % 64 == 9 ? HUGE_VAL : 1.0;
            break;
        default:
            // More bits than f32 has.
            real *= 1.0 + 0x1p-40 * (double)i;
            break;
        }
        if (reference_is_real(dtype) && i % 16 != 13) {
            store(dtype, run, i, (number){.real = real});
        } else {
            size_t nbytes = cadre_dtype_bytes(dtype);
            memcpy((char *)run + i * nbytes, words, nbytes);
        }
    }
}

// Thirteen of them are at most 104 quarters: seven bits, which bf16 has.
void reference_fill_dyadic(
    cadre_dtype dtype, uint32_t rank, void *run, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int quarters = (int)((i * 7 + rank * 5) % 17) - 8;
        store(dtype, run, i,
            reference_is_real(dtype) ? (number){.real = quarters * 0.25}
                                     : (number){.whole = quarters});
    }
}

// --- reductions ---

static double combine_reals(cadre_reduce_op op, double a, double b)
{
    switch (op) {
    case CADRE_SUM:
    case CADRE_MEAN:
        return a + b;
    case CADRE_PRODUCT:
        return a * b;
    case CADRE_MIN:
    case CADRE_MAX:
        break;
    }
    if (isnan(a) || isnan(b)) {
        return (double)NAN;
    }
    bool a_is_below = a == b ? signbit(a) != 0 : a < b;
    return a_is_below == (op == CADRE_MIN) ? a : b;
}

static int64_t combine_integers(cadre_reduce_op op, int64_t a, int64_t b)
{
    switch (op) {
    case CADRE_SUM:
    case CADRE_MEAN:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case CADRE_PRODUCT:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case CADRE_MIN:
        return a < b ? a : b;
    case CADRE_MAX:
        return a > b ? a : b;
    }
    abort();
}

// Of two f32 numbers, f64 has room for the exact product and for more than
// enough of the sum and the quotient, so rounding that is rounding once.
static double rounded(cadre_dtype dtype, double value)
{
    return dtype == CADRE_F64 ? value : (double)(float)value;
}

static number combine(
    cadre_dtype dtype, cadre_reduce_op op, number left, number right)
{
    if (reference_is_real(dtype)) {
        return (number){
            .real = rounded(dtype, combine_reals(op, left.real, right.real))};
    }
    return (number){.whole = combine_integers(op, left.whole, right.whole)};
}

// The tree over the runs [lo, hi), which is split at the largest power of two
// below their number.
static number reduce_runs(cadre_dtype dtype, cadre_reduce_op op,
    const void *const runs[], int lo, int hi, size_t i)
{
    if (hi - lo == 1) {
        return load(dtype, runs[lo], i);
    }
    int half = 1;
    while (2 * half < hi - lo) {
        half *= 2;
    }
    number left = reduce_runs(dtype, op, runs, lo, lo + half, i);
    number right = reduce_runs(dtype, op, runs, lo + half, hi, i);
    return combine(dtype, op, left, right);
}

static void finish(cadre_dtype dtype, cadre_reduce_op op, number result, int n,
    size_t i, void *out)
{
    if (op == CADRE_MEAN) {
        result.real = rounded(dtype, result.real / n);
    }
    store(dtype, out, i, result);
}

void reference_reduce(cadre_dtype dtype, cadre_reduce_op op,
    const void *const runs[], int n, size_t i, void *out)
{
    finish(dtype, op, reduce_runs(dtype, op, runs, 0, n, i), n, i, out);
}

void reference_reduce_ring(cadre_dtype dtype, cadre_reduce_op op,
    const void *const runs[], int n, int owner, size_t i, void *out)
{
    number sum = load(dtype, runs[(owner + 1) % n], i);
    for (int step = 2; step <= n; step++) {
        number own = load(dtype, runs[(owner + step) % n], i);
        sum = combine(dtype, op, sum, own);
    }
    finish(dtype, op, sum, n, i, out);
}

double reference_value(cadre_dtype dtype, const void *run, size_t i)
{
    number value = load(dtype, run, i);
    return reference_is_real(dtype) ? value.real : (double)value.whole;
}

size_t reference_difference(
    cadre_dtype dtype, const void *a, const void *b, size_t count)
{
    size_t nbytes = cadre_dtype_bytes(dtype);
    if (count == 0 || memcmp(a, b, count * nbytes) == 0) {
        return count;
    }
    for (size_t i = 0; i < count; i++) {
        bool same = memcmp((const char *)a + i * nbytes,
                        (const char *)b + i * nbytes, nbytes) == 0;
        if (!same &&
            !(reference_is_real(dtype) && isnan(load(dtype, a, i).real) &&
                isnan(load(dtype, b, i).real))) {
            return i;
        }
    }
    return count;
}
