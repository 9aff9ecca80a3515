// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "transport/frame.h"

static const cadre_frame example = {
    .generation = 0x1122334455667788,
    .call =
        {
            .operation = CADRE_OP_BROADCAST,
            .dtype = CADRE_U8,
            .reduce_op = CADRE_SUM,
            .root = -1,
            .sequence = 12,
            .count = 0x0102030405060708,
            .detail = 9,
        },
    .nbytes = 77,
    .sender = 5,
};

static void the_header_is_what_the_document_says(void **state)
{
    (void)state;
    static const uint8_t wanted[60] = {
        'C', 'D', 'F', 'R', 1, 0, 0, 0,                 // 0
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, // 8
        4, 3, 0, 0, 0xff, 0xff, 0xff, 0xff,             // 16
        12, 0, 0, 0, 0, 0, 0, 0,                        // 24
        8, 7, 6, 5, 4, 3, 2, 1,                         // 32
        9, 0, 0, 0, 0, 0, 0, 0,                         // 40
        77, 0, 0, 0, 0, 0, 0, 0,                        // 48
        5, 0, 0, 0,                                     // 56
    };
    uint8_t header[CADRE_FRAME_BYTES];
    cadre_frame_encode(&example, header);
    assert_memory_equal(header, wanted, sizeof(wanted));

    cadre_frame checked = example;
    cadre_frame back;
    checked.checked = true;
    cadre_frame_encode(&checked, header);
    assert_int_equal(header[19], 1);
    CHECK_OK(cadre_frame_decode(header, &back));
    assert_true(back.checked);
    assert_false(back.call.ring);

    checked.call.ring = true;
    cadre_frame_encode(&checked, header);
    assert_int_equal(header[19], 5);
    CHECK_OK(cadre_frame_decode(header, &back));
    assert_true(back.checked);
    assert_true(back.call.ring);
}

static void orders_that_differ_are_told_before_all_else(void **state)
{
    (void)state;
    cadre_frame theirs = example;
    theirs.call.ring = true;
    theirs.call.count = 1;
    CHECK_FAILS(cadre_frame_compare(&theirs, 2, &example.call, 77),
        CADRE_ERR_DESYNC,
        "rank 2 reduces in order 'canonical', rank 5 in order 'ring'");
}

static void flags_that_nobody_knows_are_refused(void **state)
{
    (void)state;
    for (int flags = 8; flags < 256; flags++) {
        uint8_t header[CADRE_FRAME_BYTES];
        cadre_frame back;
        cadre_frame_encode(&example, header);
        header[19] = (uint8_t)flags;
        cadre_store_u32(header + 60, (uint32_t)cadre_hash(header, 60, 0));
        CHECK_FAILS(cadre_frame_decode(header, &back), CADRE_ERR_CORRUPT,
            "unknown flags");
    }
}

static void headers_come_back(void **state)
{
    (void)state;
    uint8_t header[CADRE_FRAME_BYTES];
    cadre_frame back;
    cadre_frame_encode(&example, header);
    CHECK_OK(cadre_frame_decode(header, &back));
    assert_true(back.generation == example.generation);
    assert_int_equal(back.call.operation, CADRE_OP_BROADCAST);
    assert_int_equal(back.call.dtype, CADRE_U8);
    assert_int_equal(back.call.reduce_op, CADRE_SUM);
    assert_int_equal(back.call.root, -1);
    assert_int_equal(back.call.sequence, 12);
    assert_true(back.call.count == example.call.count);
    assert_int_equal(back.call.detail, 9);
    assert_int_equal(back.nbytes, 77);
    assert_int_equal(back.sender, 5);
    assert_false(back.checked);
    CHECK_OK(cadre_frame_compare(&back, 0, &example.call, 77));
}

static void any_flipped_bit_is_noticed(void **state)
{
    (void)state;
    for (int bit = 0; bit < 8 * CADRE_FRAME_BYTES; bit++) {
        uint8_t header[CADRE_FRAME_BYTES];
        cadre_frame back;
        cadre_frame_encode(&example, header);
        header[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(cadre_frame_decode(header, &back), CADRE_ERR_CORRUPT);
    }
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    uint8_t header[CADRE_FRAME_BYTES] = "GET / HTTP/1.1\r\n";
    cadre_frame back;
    CHECK_FAILS(
        cadre_frame_decode(header, &back), CADRE_ERR_CORRUPT, "is no frame");
    cadre_frame_encode(&example, header);
    header[4] = 2;
    CHECK_FAILS(cadre_frame_decode(header, &back), CADRE_ERR_CORRUPT,
        "frame of version 2, this program speaks version 1");
    header[4] = 1;
    header[33] ^= 1;
    CHECK_FAILS(
        cadre_frame_decode(header, &back), CADRE_ERR_CORRUPT, "is damaged");
}

static void check_text(cadre_call call, const char *wanted)
{
    char text[CADRE_CALL_TEXT_BYTES];
    cadre_call_text(&call, text);
    assert_string_equal(text, wanted);
}

static void calls_are_put_in_words(void **state)
{
    (void)state;
    cadre_call call = {
        .operation = CADRE_OP_ALLREDUCE,
        .dtype = CADRE_F32,
        .root = -1,
        .sequence = 12,
        .count = 100,
    };
    check_text(call, "allreduce #12 of 100 f32 (sum)");
    call.reduce_op = CADRE_PRODUCT;
    call.dtype = CADRE_BF16;
    check_text(call, "allreduce #12 of 100 bf16 (product)");
    call.reduce_op = (cadre_reduce_op)5;
    check_text(call, "allreduce #12 of 100 bf16 (?)");
    call.reduce_op = CADRE_SUM;
    call.dtype = CADRE_F32;
    call.operation = CADRE_OP_BROADCAST;
    call.root = 3;
    check_text(call, "broadcast #12 of 100 f32 from root 3");
    call.operation = CADRE_OP_BARRIER;
    check_text(call, "barrier #12");
    call.operation = CADRE_OP_ALLGATHER;
    call.detail = 0xab;
    check_text(call, "allgather #12 of 100 f32 (parts 00000000000000ab)");
    call.operation = CADRE_OP_REDUCE_SCATTER;
    call.dtype = (cadre_dtype)200;
    check_text(
        call, "reduce_scatter #12 of 100 ? (sum, parts 00000000000000ab)");
    call.operation = CADRE_OP_FOLD;
    call.dtype = CADRE_F64;
    check_text(call, "fold #12 of 100 f64 (layout 00000000000000ab)");
    call.operation = (cadre_operation)99;
    call.detail = 0;
    check_text(call, "unknown operation #12 of 100 f64");
    call.operation = CADRE_OP_REDUCE_SCATTER;
    call.sequence = UINT64_MAX;
    call.count = UINT64_MAX;
    call.detail = UINT64_MAX;
    call.dtype = CADRE_BF16;
    call.reduce_op = CADRE_PRODUCT;
    check_text(call,
        "reduce_scatter #18446744073709551615 of 18446744073709551615 bf16 "
        "(product, parts ffffffffffffffff)");
}

static void each_field_of_the_call_is_compared(void **state)
{
    (void)state;
    cadre_call calls[7];
    for (int i = 0; i < 7; i++) {
        calls[i] = example.call;
    }
    calls[0].operation = CADRE_OP_ALLREDUCE;
    calls[1].dtype = CADRE_F32;
    calls[2].reduce_op = (cadre_reduce_op)1;
    calls[3].root = 0;
    calls[4].sequence++;
    calls[5].count++;
    calls[6].detail++;
    for (int i = 0; i < 7; i++) {
        CHECK_FAILS(cadre_frame_compare(&example, 0, &calls[i], 77),
            CADRE_ERR_DESYNC, "ranks disagree: rank 0 called ");
    }
    CHECK_FAILS(cadre_frame_compare(&example, 0, &example.call, 76),
        CADRE_ERR_DESYNC, "rank 5 sends 77 bytes where rank 0 expects 76");
}

static void the_text_is_the_same_on_both_ranks(void **state)
{
    (void)state;
    char text[CADRE_FAIL_TEXT_BYTES];
    cadre_frame mine = example;
    cadre_frame theirs = example;
    mine.sender = 7;
    mine.call.operation = CADRE_OP_BARRIER;
    assert_int_equal(
        cadre_frame_compare(&theirs, 7, &mine.call, 77), CADRE_ERR_DESYNC);
    strcpy(text, cadre_error_text());
    assert_int_equal(
        cadre_frame_compare(&mine, 5, &theirs.call, 77), CADRE_ERR_DESYNC);
    assert_string_equal(text, cadre_error_text());
    assert_non_null(strstr(text, "rank 5 called broadcast #12 "));
    assert_non_null(strstr(text, ", rank 7 called barrier #12"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_header_is_what_the_document_says),
        cmocka_unit_test(orders_that_differ_are_told_before_all_else),
        cmocka_unit_test(flags_that_nobody_knows_are_refused),
        cmocka_unit_test(headers_come_back),
        cmocka_unit_test(any_flipped_bit_is_noticed),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(calls_are_put_in_words),
        cmocka_unit_test(each_field_of_the_call_is_compared),
        cmocka_unit_test(the_text_is_the_same_on_both_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
