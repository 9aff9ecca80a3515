// SPDX-License-Identifier: Apache-2.0

#include "kernel/exact.h"

#include <math.h>
#include <string.h>

enum {
    DIGIT_BITS = 32,
    UNIT_EXPONENT = -320, // of the lowest digit
    MANTISSA_BITS = 53,
    MOST_UNSETTLED = 1 << 28, // far below the 2^31 that a word holds
};

bool cadre_exact_add(cadre_exact *sum, double value)
{
    if (!(fabs(value) < 0x1p300)) {
        return false; // also NaN
    }
    if (value == 0.0) {
        return true;
    }

    // value = mantissa * 2^exponent, mantissa an integer of 53 bits.
    int exponent;
    double fraction = frexp(fabs(value), &exponent);
    uint64_t mantissa = (uint64_t)ldexp(fraction, MANTISSA_BITS);
    int position = exponent - MANTISSA_BITS - UNIT_EXPONENT;
    if (position < 0) {
        if (position <= -MANTISSA_BITS) {
            return true;
        }
        mantissa >>= -position;
        position = 0;
    }

    // 53 bits shifted by up to 31 touch three digits.
    int digit = position / DIGIT_BITS;
    int shift = position % DIGIT_BITS;
    uint64_t low = (mantissa & 0xffffffffu) << shift;
    uint64_t high = (mantissa >> DIGIT_BITS) << shift;
    high += low >> DIGIT_BITS;
    int64_t part[3] = {(int64_t)(low & 0xffffffffu),
        (int64_t)(high & 0xffffffffu), (int64_t)(high >> DIGIT_BITS)};
    for (int i = 0; i < 3 && digit + i < CADRE_EXACT_WORDS; i++) {
        sum->word[digit + i] += value < 0 ? -part[i] : part[i];
    }
    if (++sum->unsettled >= MOST_UNSETTLED) {
        cadre_exact_settle(sum);
    }
    return true;
}

void cadre_exact_settle(cadre_exact *sum)
{
    int64_t carry = 0;
    for (int i = 0; i < CADRE_EXACT_WORDS - 1; i++) {
        int64_t word = sum->word[i] + carry;
        int64_t digit = word & 0xffffffff; // also of a negative word
        carry = (word - digit) / ((int64_t)1 << DIGIT_BITS);
        sum->word[i] = digit;
    }
    sum->word[CADRE_EXACT_WORDS - 1] += carry;
    sum->unsettled = 0;
}

void cadre_exact_merge(cadre_exact *sum, const int64_t *words)
{
    for (int i = 0; i < CADRE_EXACT_WORDS; i++) {
        sum->word[i] += words[i];
    }
    cadre_exact_settle(sum);
}

double cadre_exact_value(const cadre_exact *sum)
{
    cadre_exact s = *sum;
    cadre_exact_settle(&s);
    bool negative = s.word[CADRE_EXACT_WORDS - 1] < 0;
    if (negative) {
        for (int i = 0; i < CADRE_EXACT_WORDS; i++) {
            s.word[i] = -s.word[i];
        }
        cadre_exact_settle(&s);
    }

    int top = CADRE_EXACT_WORDS - 1;
    while (top > 0 && s.word[top] == 0) {
        top--;
    }
    if (s.word[top] == 0) {
        return 0.0;
    }

    // The highest 64 bits, and whether anything is below them: converting that
    // integer to a double rounds as converting the whole number would.
    uint64_t digit[3] = {(uint64_t)s.word[top],
        top >= 1 ? (uint64_t)s.word[top - 1] : 0,
        top >= 2 ? (uint64_t)s.word[top - 2] : 0};
    uint64_t bits = (digit[0] << DIGIT_BITS) | digit[1];
    int room = __builtin_clzll(bits); // below 32, since digit[0] is not 0
    bits = (bits << room) | ((digit[2] << room) >> DIGIT_BITS);
    bool below = ((digit[2] << room) & 0xffffffffu) != 0;
    for (int i = top - 3; i >= 0; i--) {
        below = below || s.word[i] != 0;
    }
    bits |= below ? 1 : 0;
    int exponent = UNIT_EXPONENT + DIGIT_BITS * (top - 1) - room;
    double value = ldexp((double)bits, exponent);
    return negative ? -value : value;
}
