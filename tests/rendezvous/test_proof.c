// SPDX-License-Identifier: Apache-2.0
//
// What two ends say to prove themselves: every bit of it counts.

#include "support/check.h"

#include "rendezvous/proof.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static cadre_credentials know(const char *secret)
{
    cadre_credentials c = {.proof = CADRE_PROOF_SECRET};
    CHECK_OK(cadre_key_derive(secret, strlen(secret), &c.key));
    return c;
}

typedef struct talk {
    uint8_t hello[CADRE_HELLO_BYTES];
    uint8_t reply[CADRE_REPLY_BYTES];
    uint8_t mac[CADRE_MAC_BYTES];
} talk;

enum { GENERATION = 77 };

static const cadre_hello greeting = {
    .proof = CADRE_PROOF_SECRET, .from = 3, .to = CADRE_HUB};

static void hold(talk *t, const cadre_credentials *c)
{
    CHECK_OK(cadre_proof_greet(&greeting, t->hello));
    CHECK_OK(cadre_proof_reply(c, t->hello, GENERATION, t->reply));
    CHECK_OK(cadre_proof_finish(c, t->hello, t->reply, t->mac));
}

static bool holds(const talk *t, const cadre_credentials *c)
{
    uint64_t generation;
    bool replied = cadre_proof_check_reply(c, t->hello, t->reply, &generation);
    return cadre_proof_check_finish(c, t->hello, t->reply, t->mac) && replied &&
           generation == GENERATION;
}

static void reads_back_a_hello(void **state)
{
    (void)state;
    uint8_t data[CADRE_HELLO_BYTES];
    uint8_t again[CADRE_HELLO_BYTES];
    cadre_hello out;
    cadre_hello in = {.proof = CADRE_PROOF_USER,
        .from = 4095,
        .to = 2,
        .generation = 0x1122334455667788,
        .job_id = "abcdefghijklmno"};
    CHECK_OK(cadre_proof_greet(&in, data));
    assert_true(cadre_hello_decode(data, &out));
    assert_int_equal(out.proof, in.proof);
    assert_int_equal(out.from, in.from);
    assert_int_equal(out.to, in.to);
    assert_true(out.generation == in.generation);
    assert_memory_equal(out.job_id, in.job_id, sizeof(in.job_id));
    CHECK_OK(cadre_proof_greet(&in, again));
    assert_memory_not_equal(data, again, sizeof(data)); // it is never the same

    in.to = CADRE_HUB;
    CHECK_OK(cadre_proof_greet(&in, data));
    assert_true(cadre_hello_decode(data, &out));
    assert_int_equal(out.to, CADRE_HUB);
}

static void refuses_a_hello_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint8_t value;
    } spoilt[] = {{0, 'X'}, {3, '2'}, {4, 0}, {4, 4}, {7, 1}, {9, 16},
        {11, 255}, {13, 16}, {40, 1}, {47, 128}};
    uint8_t data[CADRE_HELLO_BYTES];
    cadre_hello out;
    cadre_hello in = {.proof = CADRE_PROOF_USER, .from = 1, .to = 0};
    for (size_t i = 0; i < sizeof(spoilt) / sizeof(spoilt[0]); i++) {
        CHECK_OK(cadre_proof_greet(&in, data));
        assert_true(cadre_hello_decode(data, &out));
        data[spoilt[i].at] = spoilt[i].value;
        assert_false(cadre_hello_decode(data, &out));
    }
}

static void every_bit_is_proved(void **state)
{
    (void)state;
    cadre_credentials c = know("a secret of some length");
    talk t;
    hold(&t, &c);
    assert_true(holds(&t, &c));
    uint8_t *parts[] = {t.hello, t.reply, t.mac};
    const size_t lengths[] = {sizeof(t.hello), sizeof(t.reply), sizeof(t.mac)};
    for (int part = 0; part < 3; part++) {
        for (size_t bit = 0; bit < 8 * lengths[part]; bit++) {
            parts[part][bit / 8] ^= (uint8_t)(1 << bit % 8);
            assert_false(holds(&t, &c));
            parts[part][bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
    }
    assert_true(holds(&t, &c));
    cadre_credentials_drop(&c);
    cadre_credentials_drop(&c);
}

static void another_secret_proves_nothing(void **state)
{
    (void)state;
    cadre_credentials ours = know("ours");
    cadre_credentials theirs = know("theirs");
    uint64_t generation;
    talk t;
    hold(&t, &theirs);
    assert_true(holds(&t, &theirs));
    assert_false(cadre_proof_check_reply(&ours, t.hello, t.reply, &generation));
    assert_false(cadre_proof_check_finish(&ours, t.hello, t.reply, t.mac));
    cadre_credentials_drop(&ours);
    cadre_credentials_drop(&theirs);
}

// One who knows nothing has only what he was sent.
static void a_proof_cannot_be_sent_back_or_used_again(void **state)
{
    (void)state;
    enum { REPLY_MAC = 48 };
    cadre_credentials c = know("a secret");
    talk t;
    talk later;
    hold(&t, &c);
    assert_false(
        cadre_proof_check_finish(&c, t.hello, t.reply, t.reply + REPLY_MAC));
    memcpy(&later, &t, sizeof(later));
    CHECK_OK(cadre_proof_reply(&c, t.hello, GENERATION, later.reply));
    assert_false(holds(&later, &c)); // the same hello and proof, a new reply
    cadre_credentials_drop(&c);
}

static void the_place_says_what_proves(void **state)
{
    (void)state;
    cadre_credentials c;
    cadre_place place = {.world_size = 2};
    CHECK_OK(cadre_credentials_load(&place, CADRE_NO_DEADLINE, &c));
    assert_int_equal(c.proof, CADRE_PROOF_USER);
    cadre_credentials_drop(&c);

    place.believes_all = true;
    CHECK_OK(cadre_credentials_load(&place, CADRE_NO_DEADLINE, &c));
    assert_int_equal(c.proof, CADRE_PROOF_NONE);
    cadre_credentials_drop(&c);

    place.secret_file = "/no/such/file"; // comes before the above
    CHECK_FAILS(cadre_credentials_load(&place, CADRE_NO_DEADLINE, &c),
        CADRE_ERR_INVALID_ARG, "(given by CADRE_SECRET_FILE)");

    place.has_secret_fd = true; // and this before the file
    place.secret_fd = 99999;
    CHECK_FAILS(cadre_credentials_load(&place, CADRE_NO_DEADLINE, &c),
        CADRE_ERR_INVALID_ARG, "(given by CADRE_SECRET_FD)");
    CHECK_OK(cadre_secret_make(&place.secret_fd));
    CHECK_OK(cadre_credentials_load(&place, CADRE_NO_DEADLINE, &c));
    assert_int_equal(c.proof, CADRE_PROOF_SECRET);
    cadre_credentials_drop(&c);
    close(place.secret_fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back_a_hello),
        cmocka_unit_test(refuses_a_hello_that_cannot_be),
        cmocka_unit_test(every_bit_is_proved),
        cmocka_unit_test(another_secret_proves_nothing),
        cmocka_unit_test(a_proof_cannot_be_sent_back_or_used_again),
        cmocka_unit_test(the_place_says_what_proves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
