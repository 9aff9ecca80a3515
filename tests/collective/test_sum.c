// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "base/alloc.h"
#include "collective/sum.h"

// The test vectors of docs/numerics.md section 10: rank i brings
// (float)((4 i - 16) / 13.0).
static float vector_value(int i)
{
    return (float)((4 * i - 16) / 13.0);
}

// The sum of n ranks as the owner `rank` makes it, in every element of out.
static void sum_vectors(
    int n, int rank, size_t count, const float *own, float *out)
{
    size_t nbytes = cadre_parts_bytes(n, count * sizeof(float));
    void *memory = cadre_alloc(nbytes);
    cadre_parts parts =
        cadre_parts_lay_out(memory, n, rank, count * sizeof(float));
    for (int peer = 0; peer < n; peer++) {
        if (peer != rank) {
            float *part = cadre_parts_of(&parts, peer);
            assert_int_equal((uintptr_t)part % CADRE_CACHE_LINE, 0);
            assert_true((char *)(part + count) <= (char *)memory + nbytes);
            for (size_t i = 0; i < count; i++) {
                part[i] = vector_value(peer);
            }
        }
    }
    cadre_parts_sum(&parts, CADRE_F32, own, out, count);
    cadre_free(memory);
}

static void the_vectors_of_the_contract_come_out(void **state)
{
    (void)state;
    static const struct {
        int n;
        uint32_t bits;
    } vectors[] = {
        {6, 0xc0313b15},
        {8, 0xbf9d89db},
        {12, 0x40b13b13},
        {13, 0x40ffffff},
        {16, 0x4189d89d},
    };
    for (size_t v = 0; v < sizeof(vectors) / sizeof(vectors[0]); v++) {
        for (int rank = 0; rank < vectors[v].n; rank++) {
            float own = vector_value(rank);
            float out = 0;
            uint32_t bits;
            sum_vectors(vectors[v].n, rank, 1, &own, &out);
            memcpy(&bits, &out, sizeof(bits));
            assert_int_equal(bits, vectors[v].bits);
        }
    }
}

// Around the size of a block, and past it.
static const size_t counts[] = {0, 1, 1023, 1024, 1025, 5000};
enum { N_COUNTS = sizeof(counts) / sizeof(counts[0]), MOST = 5000 };

static void every_element_is_summed_and_own_is_kept(void **state)
{
    (void)state;
    float *own = cadre_alloc_array(MOST, sizeof(*own));
    float *out = cadre_alloc_array(MOST + 1, sizeof(*out));
    for (size_t i = 0; i < MOST; i++) {
        own[i] = vector_value(5);
    }
    for (size_t c = 0; c < N_COUNTS; c++) {
        for (size_t i = 0; i <= MOST; i++) {
            out[i] = -1;
        }
        sum_vectors(13, 5, counts[c], own, out);
        for (size_t i = 0; i < counts[c]; i++) {
            assert_true(out[i] == 0x1.fffffep2F);
            assert_true(own[i] == vector_value(5));
        }
        assert_true(out[counts[c]] == -1);
    }
    cadre_free(own);
    cadre_free(out);
}

static void the_result_may_lie_on_or_before_the_own_part(void **state)
{
    (void)state;
    for (size_t distance = 0; distance < 2100; distance += 300) {
        float *memory = cadre_alloc_array(2 * MOST, sizeof(*memory));
        for (size_t i = 0; i < MOST; i++) {
            memory[distance + i] = vector_value(3);
        }
        sum_vectors(8, 3, MOST, memory + distance, memory);
        for (size_t i = 0; i < MOST; i++) {
            assert_true(memory[i] == -0x1.3b13b6p0F);
        }
        cadre_free(memory);
    }
}

static void sizes_past_all_memory_are_noticed(void **state)
{
    (void)state;
    assert_true(cadre_parts_bytes(2, SIZE_MAX - 10) == SIZE_MAX);
    assert_true(cadre_parts_bytes(9, SIZE_MAX / 8) == SIZE_MAX);
    assert_true(cadre_parts_bytes(2, SIZE_MAX - 100) == SIZE_MAX);
    assert_true(cadre_parts_bytes(3, 100) >= 200);
    assert_true(cadre_parts_bytes(1, 100) < 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_of_the_contract_come_out),
        cmocka_unit_test(every_element_is_summed_and_own_is_kept),
        cmocka_unit_test(the_result_may_lie_on_or_before_the_own_part),
        cmocka_unit_test(sizes_past_all_memory_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
