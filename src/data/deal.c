// SPDX-License-Identifier: Apache-2.0

#include "data/deal.h"

#include "base/check.h"
#include "base/random.h"

// Four rounds make a permutation that looks random in a large domain; more are
// for small ones, where halves have few bits.
enum { ROUNDS = 6 };

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

static uint64_t permute(
    uint64_t seed, int64_t epoch, int bits, uint64_t position)
{
    uint64_t mask = (UINT64_C(1) << bits) - 1;
    uint64_t left = position >> bits;
    uint64_t right = position & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint32_t words[4];
        cadre_random_words(seed, CADRE_STREAM_ORDER, (uint32_t)epoch,
            round << 32 | right, words);
        uint64_t mixed = left ^ (words[0] & mask);
        left = right;
        right = mixed;
    }
    return left << bits | right;
}

int64_t cadre_deal_sample(
    uint64_t seed, int64_t epoch, int64_t n_samples, int64_t position)
{
    CADRE_ASSERT(position >= 0 && position < n_samples);
    int bits = half_bits(n_samples);
    uint64_t at = (uint64_t)position;
    do {
        at = permute(seed, epoch, bits, at);
    } while (at >= (uint64_t)n_samples);
    return (int64_t)at;
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
