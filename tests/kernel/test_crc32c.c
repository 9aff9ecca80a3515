// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "kernel/crc32c.h"

typedef uint32_t (*checksum)(uint32_t crc, const void *data, size_t nbytes);
static const checksum both[] = {cadre_crc32c, cadre_crc32c_plain};

// RFC 3720, B.4, and the check value of the catalogues.
static void has_the_published_values(void **state)
{
    (void)state;
    uint8_t data[32];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(both[i](0, "123456789", 9), 0xe3069283);
        assert_int_equal(both[i](0, "", 0), 0);
        memset(data, 0, sizeof(data));
        assert_int_equal(both[i](0, data, sizeof(data)), 0x8a9136aa);
        memset(data, 0xff, sizeof(data));
        assert_int_equal(both[i](0, data, sizeof(data)), 0x62a8ab43);
        for (size_t k = 0; k < sizeof(data); k++) {
            data[k] = (uint8_t)k;
        }
        assert_int_equal(both[i](0, data, sizeof(data)), 0x46dd794e);
        for (size_t k = 0; k < sizeof(data); k++) {
            data[k] = (uint8_t)(31 - k);
        }
        assert_int_equal(both[i](0, data, sizeof(data)), 0x113fdb5c);
    }
}

static void is_the_same_in_pieces_of_any_size_and_place(void **state)
{
    (void)state;
    enum { N = 100 };
    uint8_t data[N];
    for (size_t i = 0; i < N; i++) {
        data[i] = (uint8_t)(i * i + 7);
    }
    for (size_t from = 0; from < 9; from++) {
        for (size_t to = from; to <= N; to++) {
            uint32_t wanted = cadre_crc32c_plain(0, data + from, to - from);
            assert_int_equal(cadre_crc32c(0, data + from, to - from), wanted);
            size_t cut = from + (to - from) / 3;
            for (int i = 0; i < 2; i++) {
                uint32_t crc = both[i](0, data + from, cut - from);
                assert_int_equal(both[i](crc, data + cut, to - cut), wanted);
            }
        }
    }
}

// Long runs are taken in stripes: these lengths lie around one, two and three
// times what is taken at once.
static void is_the_same_for_long_runs(void **state)
{
    (void)state;
    enum { AT_ONCE = 3072, N = 3 * AT_ONCE + 40 };
    static uint8_t data[N];
    uint32_t random = 1;
    for (size_t i = 0; i < N; i++) {
        random = random * 1664525 + 1013904223;
        data[i] = (uint8_t)(random >> 24);
    }
    for (size_t times = 1; times <= 3; times++) {
        for (size_t more = 0; more < 40; more++) {
            size_t nbytes = times * AT_ONCE - 20 + more;
            const uint8_t *at = data + more % 9;
            uint32_t wanted = cadre_crc32c_plain(77, at, nbytes);
            assert_int_equal(cadre_crc32c(77, at, nbytes), wanted);
        }
    }
}

static void finds_every_bit_that_is_wrong(void **state)
{
    (void)state;
    uint8_t data[50] = "some data that is not all zeros";
    uint32_t right = cadre_crc32c(0, data, sizeof(data));
    for (size_t bit = 0; bit < 8 * sizeof(data); bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(cadre_crc32c(0, data, sizeof(data)), right);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_the_published_values),
        cmocka_unit_test(is_the_same_in_pieces_of_any_size_and_place),
        cmocka_unit_test(is_the_same_for_long_runs),
        cmocka_unit_test(finds_every_bit_that_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
