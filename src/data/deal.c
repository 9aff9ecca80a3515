// SPDX-License-Identifier: Apache-2.0

#include "data/deal.h"

#include "base/check.h"
#include "kernel/draw.h"

// Four rounds make a permutation that looks random in a large domain; more are
// for small ones, where halves have few bits.
enum { ROUNDS = 6 };

// Positions that are permuted together (kernel/draw.h).
enum { AT_ONCE = 64 };

// Bits of half a position: the smallest for which 4^bits reaches n, which is
// at most 2^62.
static int half_bits(int64_t n_samples)
{
    int bits = 0;
    while (bits < 31 && (INT64_C(1) << (2 * bits)) < n_samples) {
        bits++;
    }
    return bits;
}

// Permutes n positions, AT_ONCE at most.
static void permute(
    uint64_t seed, int64_t epoch, int bits, size_t n, uint64_t *positions)
{
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t counters[AT_ONCE];
        uint32_t words[4 * AT_ONCE];
        for (size_t i = 0; i < n; i++) {
            counters[i] = round << 32 | (positions[i] & mask);
        }
        cadre_draw(
            seed, CADRE_STREAM_ORDER, (uint32_t)epoch, counters, n, words);
        for (size_t i = 0; i < n; i++) {
            uint64_t left = positions[i] >> bits;
            uint64_t right = positions[i] & mask;
            positions[i] = right << bits | (left ^ (words[i] & mask));
        }
    }
}

// The samples at n positions from first on, AT_ONCE at most.
static void deal(uint64_t seed, int64_t epoch, int64_t n_samples, int64_t first,
    size_t n, int64_t *samples)
{
    const int bits = half_bits(n_samples);
    uint64_t at[AT_ONCE];
    int64_t *to[AT_ONCE];
    for (size_t i = 0; i < n; i++) {
        at[i] = (uint64_t)first + i;
        to[i] = &samples[i];
    }
    // Those that are still no sample go on together.
    while (n > 0) {
        permute(seed, epoch, bits, n, at);
        size_t n_out = 0;
        for (size_t i = 0; i < n; i++) {
            if (at[i] < (uint64_t)n_samples) {
                *to[i] = (int64_t)at[i];
            } else {
                at[n_out] = at[i];
                to[n_out++] = to[i];
            }
        }
        n = n_out;
    }
}

void cadre_deal_samples(uint64_t seed, int64_t epoch, int64_t n_samples,
    int64_t first, int64_t count, int64_t *samples)
{
    CADRE_ASSERT(first >= 0 && count >= 0 && first <= n_samples - count);
    for (int64_t i = 0; i < count; i += AT_ONCE) {
        int64_t left = count - i;
        deal(seed, epoch, n_samples, first + i,
            (size_t)(left < AT_ONCE ? left : AT_ONCE), samples + i);
    }
}

int64_t cadre_deal_steps(
    int64_t n_samples, int64_t global_batch, bool drop_last)
{
    int64_t full = n_samples / global_batch;
    return drop_last || n_samples % global_batch == 0 ? full : full + 1;
}

cadre_batch cadre_deal_batch(
    int64_t n_samples, int64_t global_batch, bool drop_last, int64_t step)
{
    CADRE_ASSERT(global_batch >= 1 && global_batch <= n_samples);
    int64_t steps = cadre_deal_steps(n_samples, global_batch, drop_last);
    int64_t first = step % steps * global_batch;
    int64_t left = n_samples - first;
    return (cadre_batch){
        .epoch = step / steps,
        .first = first,
        .n_samples = left < global_batch ? left : global_batch,
    };
}
