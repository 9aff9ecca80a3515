// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "support/isa.h"
#include "support/reference.h"

#include "base/alloc.h"
#include "collective/parts.h"

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
    size_t nbytes = cadre_parts_bytes(n, CADRE_F32, count);
    void *memory = cadre_alloc(nbytes);
    cadre_parts parts = cadre_parts_lay_out(memory, n, rank, CADRE_F32, count);
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
    cadre_parts_reduce(&parts, CADRE_SUM, own, out, count);
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

// Reduces runs[] as the owner `rank` does, with the own part and the result at
// odd addresses, and compares with the reference.
static void check_reduce(cadre_dtype dtype, cadre_reduce_op op, int n, int rank,
    const void *const runs[], size_t count, const void *wanted)
{
    size_t part_bytes = count * cadre_dtype_bytes(dtype);
    size_t nbytes = cadre_parts_bytes(n, dtype, count);
    char *memory = cadre_alloc(nbytes);
    char *own = cadre_alloc(part_bytes + 1);
    char *out = cadre_alloc(part_bytes + 2);
    cadre_parts parts = cadre_parts_lay_out(memory, n, rank, dtype, count);
    for (int peer = 0; peer < n; peer++) {
        char *part = peer == rank ? own + 1 : cadre_parts_of(&parts, peer);
        assert_true(peer == rank || part + part_bytes <= memory + nbytes);
        memcpy(part, runs[peer], part_bytes);
    }
    out[part_bytes + 1] = 7;
    cadre_parts_reduce(&parts, op, own + 1, out + 1, count);
    if (reference_difference(dtype, out + 1, wanted, count) != count) {
        fail_msg("%s of %zu %s over %d ranks by rank %d",
            cadre_reduce_op_name(op), count, cadre_dtype_name(dtype), n, rank);
    }
    assert_memory_equal(own + 1, runs[rank], part_bytes);
    assert_int_equal(out[part_bytes + 1], 7);
    cadre_free(out);
    cadre_free(own);
    cadre_free(memory);
}

static void check_type(cadre_dtype dtype, cadre_reduce_op op)
{
    enum { MOST_RANKS = 17, COUNT = 2100 };
    static char memory[MOST_RANKS][COUNT * 8];
    static char wanted[COUNT * 8];
    const void *runs[MOST_RANKS];
    for (int r = 0; r < MOST_RANKS; r++) {
        runs[r] = memory[r];
        reference_fill(dtype, (uint32_t)r, memory[r], COUNT);
    }
    for (int n = 2; n <= MOST_RANKS; n++) {
        // The longer runs, of several blocks, for some numbers of ranks only.
        size_t count = n % 5 == 2 ? COUNT : 33;
        for (size_t i = 0; i < count; i++) {
            reference_reduce(dtype, op, runs, n, i, wanted);
        }
        check_reduce(dtype, op, n, 0, runs, count, wanted);
        check_reduce(dtype, op, n, n / 2, runs, count, wanted);
        check_reduce(dtype, op, n, n - 1, runs, count, wanted);
    }
}

static void all_types_and_operations_agree_with_the_tree(void **state)
{
    use_isa(state);
    for (int dtype = 0; dtype < N_DTYPES; dtype++) {
        for (int op = 0; op < N_OPS; op++) {
            if (op != CADRE_MEAN || reference_is_real((cadre_dtype)dtype)) {
                check_type((cadre_dtype)dtype, (cadre_reduce_op)op);
            }
        }
    }
}

// Numbers whose sum would be another if a partial sum were rounded to 16 bits.
static void narrow_numbers_are_rounded_once(void **state)
{
    use_isa(state);
    static const struct {
        cadre_dtype dtype;
        uint16_t parts[4];
        uint16_t sum;
        uint16_t mean;
    } cases[] = {
        // 256 + 1 + 1 + 0: bf16 has no 257
        {CADRE_BF16, {0x4380, 0x3f80, 0x3f80, 0x0000}, 0x4381, 0x4281},
        // 2048 + 1 + 1 + 0: f16 has no 2049
        {CADRE_F16, {0x6800, 0x3c00, 0x3c00, 0x0000}, 0x6801, 0x6001},
        // 60000 + 60000 - 60000 - 60000: f16 has no 120000
        {CADRE_F16, {0x7b53, 0x7b53, 0xfb53, 0xfb53}, 0x0000, 0x0000},
        // 60000 four times: the sum is too large, the mean is not
        {CADRE_F16, {0x7b53, 0x7b53, 0x7b53, 0x7b53}, 0x7c00, 0x7b53},
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        const void *runs[4];
        for (int r = 0; r < 4; r++) {
            runs[r] = &cases[c].parts[r];
        }
        for (int rank = 0; rank < 4; rank++) {
            check_reduce(
                cases[c].dtype, CADRE_SUM, 4, rank, runs, 1, &cases[c].sum);
            check_reduce(
                cases[c].dtype, CADRE_MEAN, 4, rank, runs, 1, &cases[c].mean);
        }
    }
}

static void sizes_past_all_memory_are_noticed(void **state)
{
    (void)state;
    assert_true(cadre_parts_bytes(2, CADRE_U8, SIZE_MAX - 10) == SIZE_MAX);
    assert_true(cadre_parts_bytes(9, CADRE_U8, SIZE_MAX / 8) == SIZE_MAX);
    assert_true(cadre_parts_bytes(2, CADRE_U8, SIZE_MAX - 100) == SIZE_MAX);
    assert_true(cadre_parts_bytes(2, CADRE_F64, SIZE_MAX / 4) == SIZE_MAX);
    assert_true(cadre_parts_bytes(2, CADRE_BF16, SIZE_MAX / 2) == SIZE_MAX);
    assert_true(cadre_parts_bytes(3, CADRE_F32, 100) >= 800);
    assert_true(cadre_parts_bytes(1, CADRE_F32, 100) < 100000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_of_the_contract_come_out),
        cmocka_unit_test(every_element_is_summed_and_own_is_kept),
        cmocka_unit_test(the_result_may_lie_on_or_before_the_own_part),
        ON_EVERY_ISA(all_types_and_operations_agree_with_the_tree),
        ON_EVERY_ISA(narrow_numbers_are_rounded_once),
        cmocka_unit_test(sizes_past_all_memory_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
