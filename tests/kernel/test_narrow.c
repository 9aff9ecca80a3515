// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"
#include "support/isa.h"
#include "support/reference.h"

#include "base/alloc.h"
#include "base/random.h"
#include "kernel/narrow.h"
#include <math.h>

static const cadre_dtype dtypes[] = {CADRE_BF16, CADRE_F16};

enum { N_NARROW = 65536 };

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// Narrows count numbers, and checks each.
static void check_narrow(cadre_dtype dtype, const float *wide, size_t count)
{
    uint16_t *narrow = cadre_alloc_array(count, sizeof(*narrow));
    cadre_narrow(dtype, narrow, wide, count);
    for (size_t i = 0; i < count; i++) {
        uint16_t wanted = reference_narrow(dtype, wide[i]);
        if (reference_difference(dtype, &narrow[i], &wanted, 1) != 1) {
            fail_msg("%a as %s: %04x, not %04x", (double)wide[i],
                cadre_dtype_name(dtype), narrow[i], wanted);
        }
    }
    cadre_free(narrow);
}

static void all_narrow_numbers_are_widened_and_come_back(void **state)
{
    use_isa(state);
    static uint16_t narrow[N_NARROW];
    static uint16_t back[N_NARROW];
    static float wide[N_NARROW];
    for (int i = 0; i < N_NARROW; i++) {
        narrow[i] = (uint16_t)i;
    }
    for (int d = 0; d < 2; d++) {
        cadre_widen(dtypes[d], wide, narrow, N_NARROW);
        cadre_narrow(dtypes[d], back, wide, N_NARROW);
        for (int i = 0; i < N_NARROW; i++) {
            float wanted = (float)reference_widen(dtypes[d], narrow[i]);
            assert_int_equal(
                reference_difference(CADRE_F32, &wide[i], &wanted, 1), 1);
        }
        assert_int_equal(
            reference_difference(dtypes[d], narrow, back, N_NARROW), N_NARROW);
    }
}

// Between any two neighbours: their middle, and what is just beside it.
static void numbers_between_are_rounded_to_nearest_even(void **state)
{
    use_isa(state);
    static float wide[3 * N_NARROW];
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < N_NARROW; i++) {
            uint16_t next = (uint16_t)((i & 0x7fff) == 0x7fff ? i : i + 1);
            float middle =
                (float)(0.5 * (reference_widen(dtypes[d], (uint16_t)i) +
                                  reference_widen(dtypes[d], next)));
            if (isinf(reference_widen(dtypes[d], next)) &&
                dtypes[d] == CADRE_F16) {
                middle = copysignf(65520.0F, middle); // as if there were 65536
            }
            wide[3 * i] = nextafterf(middle, -HUGE_VALF);
            wide[3 * i + 1] = middle;
            wide[3 * i + 2] = nextafterf(middle, HUGE_VALF);
        }
        check_narrow(dtypes[d], wide, 3 * (size_t)N_NARROW);
    }
}

static void any_number_at_all_is_rounded(void **state)
{
    use_isa(state);
    enum { N = 40000 };
    static float wide[N];
    for (size_t i = 0; i < N; i++) {
        uint32_t words[4];
        cadre_random_words(4, CADRE_STREAM_INITIAL, 1, i, words);
        wide[i] = float_of(words[0]);
    }
    // Around what bf16 still holds: half a unit above its largest number.
    wide[0] = float_of(0x7f7f7fff);
    wide[1] = float_of(0x7f7f8000);
    wide[2] = float_of(0x7f7fffff);
    wide[3] = float_of(0x00000001);
    wide[4] = float_of(0x80000000);
    wide[5] = float_of(0x7f800001); // NaNs whose payload is all below
    wide[6] = float_of(0xff80ffff);
    check_narrow(CADRE_BF16, wide, N);
    check_narrow(CADRE_F16, wide, N);
}

static void some_numbers_are_known(void **state)
{
    use_isa(state);
    static const struct {
        float wide;
        uint16_t bf16;
        uint16_t f16;
    } known[] = {
        {1.0F, 0x3f80, 0x3c00},
        {-2.0F, 0xc000, 0xc000},
        {65504.0F, 0x4780, 0x7bff},
        {65519.0F, 0x4780, 0x7bff},
        {65520.0F, 0x4780, 0x7c00},
        {0x1p-24F, 0x3380, 0x0001},
        {0x1p-25F, 0x3300, 0x0000},
        {0x1.8p-25F, 0x3340, 0x0001},
        {0x1.ffep-15F, 0x3880, 0x0400},
        {0x1p-133F, 0x0001, 0x0000},
        {-HUGE_VALF, 0xff80, 0xfc00},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        uint16_t narrow;
        cadre_narrow(CADRE_BF16, &narrow, &known[i].wide, 1);
        assert_int_equal(narrow, known[i].bf16);
        cadre_narrow(CADRE_F16, &narrow, &known[i].wide, 1);
        assert_int_equal(narrow, known[i].f16);
    }
}

static void runs_of_all_lengths_are_converted(void **state)
{
    use_isa(state);
    enum { MOST = 70, SHIFTS = 9, ROOM = MOST + SHIFTS };
    float wide[ROOM];
    uint16_t narrow[ROOM];
    reference_fill(CADRE_F32, 1, wide, ROOM);
    reference_fill(CADRE_F16, 1, narrow, ROOM);
    for (int d = 0; d < 2; d++) {
        for (size_t shift = 0; shift < SHIFTS; shift++) {
            for (size_t count = 0; count <= MOST; count++) {
                float widened[ROOM];
                uint16_t narrowed[ROOM];
                float wanted[ROOM];
                uint16_t narrow_wanted[ROOM];
                for (size_t i = 0; i < ROOM; i++) {
                    bool in = i >= shift && i - shift < count;
                    widened[i] = narrowed[i] = 7;
                    wanted[i] = narrow_wanted[i] = 7;
                    if (in) {
                        wanted[i] = (float)reference_widen(
                            dtypes[d], narrow[i - shift]);
                        narrow_wanted[i] =
                            reference_narrow(dtypes[d], wide[i - shift]);
                    }
                }
                cadre_widen(dtypes[d], widened + shift, narrow, count);
                cadre_narrow(dtypes[d], narrowed + shift, wide, count);
                assert_int_equal(
                    reference_difference(CADRE_F32, widened, wanted, ROOM),
                    ROOM);
                assert_int_equal(reference_difference(
                                     dtypes[d], narrowed, narrow_wanted, ROOM),
                    ROOM);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_EVERY_ISA(all_narrow_numbers_are_widened_and_come_back),
        ON_EVERY_ISA(numbers_between_are_rounded_to_nearest_even),
        ON_EVERY_ISA(any_number_at_all_is_rounded),
        ON_EVERY_ISA(some_numbers_are_known),
        ON_EVERY_ISA(runs_of_all_lengths_are_converted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
