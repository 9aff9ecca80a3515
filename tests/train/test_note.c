// SPDX-License-Identifier: Apache-2.0

#include "train/note.h"

#include "base/alloc.h"
#include "support/check.h"
#include <math.h>

static char settings[] = "numerics 1\noptim.lr 0.001\n";

static cadre_note make_note(void)
{
    return (cadre_note){
        .identity = 0xfedcba9876543210u,
        .identity_text = settings,
        .identity_since = 3,
        .total_steps = 20,
        .next = {.epoch = 2, .first = 640},
        .n_skipped = 1,
        .losses = {0.1, (double)NAN, 1.0 / 3},
        .n_losses = 3,
    };
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    const cadre_note note = make_note();
    char *text = cadre_note_write(&note);
    assert_non_null(text);
    cadre_note found;
    CHECK_OK(cadre_note_read(text, &found));
    assert_true(found.identity == note.identity);
    assert_string_equal(found.identity_text, settings);
    assert_int_equal(found.identity_since, 3);
    assert_int_equal(found.total_steps, 20);
    assert_int_equal(found.next.epoch, 2);
    assert_int_equal(found.next.first, 640);
    assert_int_equal(found.n_skipped, 1);
    assert_int_equal(found.n_losses, 3);
    assert_true(found.losses[0] == 0.1);
    assert_true(isnan(found.losses[1]));
    assert_true(found.losses[2] == 1.0 / 3);
    cadre_free(found.identity_text);
    cadre_free(text);
}

static void what_is_another_note_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {NULL, "", "mine", "[]", "{}",
        "{\"identity\": \"0123456789abcdef\", \"settings\": 3}",
        "{\"identity\": \"0123456789abcdef\", \"settings\": \"\", "
        "\"identity_since\": -1, "
        "\"total_steps\": 0, \"epoch\": 0, \"sample\": 0, \"skipped_steps\": "
        "0, \"losses\": []}",
        "{\"identity\": \"0123456789abcdef\", \"settings\": \"\", "
        "\"identity_since\": 0, "
        "\"total_steps\": 0, \"epoch\": 0, \"sample\": 0, \"skipped_steps\": "
        "0, \"losses\": [0,0,0,0,0,0,0,0,0,0,0]}",
        "{\"identity\": \"no\", \"settings\": \"\", \"identity_since\": 0, "
        "\"total_steps\": 0, \"epoch\": 0, \"sample\": 0, \"skipped_steps\": "
        "0, \"losses\": []}"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        cadre_note note;
        CHECK_FAILS(
            cadre_note_read(texts[i], &note), CADRE_ERR_CORRUPT, "another's");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(what_is_another_note_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
