// SPDX-License-Identifier: Apache-2.0

#include "support/isa.h"

#include "kernel/draw.h"

// Counters near and far, whose upper words count too.
static uint64_t counter(size_t i)
{
    uint32_t words[4];
    cadre_random_words(5, CADRE_STREAM_ORDER, 0, i, words);
    return i % 3 == 0 ? i : (uint64_t)words[0] << 32 | words[1];
}

static void runs_of_all_lengths_have_the_words_of_each(void **state)
{
    use_isa(state);
    enum { MOST = 70 };
    const uint64_t seed = UINT64_C(0xfedcba9876543210);
    uint64_t b[MOST];
    for (size_t i = 0; i < MOST; i++) {
        b[i] = i == 1 ? UINT64_MAX : counter(i);
    }
    for (size_t count = 0; count <= MOST; count++) {
        uint32_t words[4 * MOST + 1];
        words[4 * count] = 7;
        cadre_draw(seed, CADRE_STREAM_MASK, UINT32_MAX, b, count, words);
        for (size_t i = 0; i < count; i++) {
            uint32_t wanted[4];
            cadre_random_words(
                seed, CADRE_STREAM_MASK, UINT32_MAX, b[i], wanted);
            for (size_t w = 0; w < 4; w++) {
                assert_int_equal(words[w * count + i], wanted[w]);
            }
        }
        assert_int_equal(words[4 * count], 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_EVERY_ISA(runs_of_all_lengths_have_the_words_of_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
