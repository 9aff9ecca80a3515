// SPDX-License-Identifier: Apache-2.0
//
// Messages and mailboxes: what is written is read back; what is cut, spoilt or
// too long is not.

#include "support/check.h"

#include "base/socket.h"
#include "rendezvous/mailbox.h"
#include <stdio.h>
#include <unistd.h>

enum { ROOM = CADRE_SMALL_MESSAGE_BYTES };

static cadre_writer writer_on(uint8_t *data)
{
    return (cadre_writer){.data = data, .capacity = ROOM, .ok = true};
}

// A message that is known to be whole.
static cadre_message read_message(const uint8_t *data, size_t used)
{
    cadre_message m;
    size_t nbytes = 0;
    assert_true(cadre_message_peek(data, used, &m, &nbytes));
    assert_int_equal(nbytes, used);
    return m;
}

static cadre_hub_join sample_join(void)
{
    return (cadre_hub_join){.rank = 3,
        .world_size = 4096,
        .timeout_ms = 30000,
        .patience_ms = 0x7fffffff,
        .pid = 12,
        .host = "node-1",
        .address = "[fe80::1%eth0]:40000",
        .offer = {.wish = CADRE_LINK_SHM,
            .machine = "0123/4026531840/4026531837",
            .local = "unix:0000a"}};
}

static void reads_back_a_join(void **state)
{
    (void)state;
    uint8_t data[ROOM];
    cadre_writer w = writer_on(data);
    cadre_hub_join in = sample_join();
    cadre_hub_join out;
    cadre_encode_join(&w, &in);
    assert_true(w.ok);
    assert_int_equal(w.used, CADRE_JOIN_BYTES);
    cadre_message m = read_message(data, w.used);
    assert_true(cadre_decode_join(&m, &out));
    assert_int_equal(out.rank, 3);
    assert_int_equal(out.world_size, 4096);
    assert_int_equal(out.timeout_ms, 30000);
    assert_int_equal(out.patience_ms, 0x7fffffff);
    assert_int_equal(out.pid, 12);
    assert_string_equal(out.host, "node-1");
    assert_string_equal(out.address, "[fe80::1%eth0]:40000");
    assert_int_equal(out.offer.wish, CADRE_LINK_SHM);
    assert_string_equal(out.offer.machine, in.offer.machine);
    assert_string_equal(out.offer.local, "unix:0000a");
}

static void reads_back_a_verdict(void **state)
{
    (void)state;
    uint8_t data[ROOM];
    cadre_writer w = writer_on(data);
    cadre_verdict out;
    cadre_encode_verdict(
        &w, CADRE_MESSAGE_VERDICT, CADRE_ERR_PEER_LOST, 7, "gone\n\033[2J");
    cadre_message m = read_message(data, w.used);
    assert_true(cadre_decode_verdict(&m, &out));
    assert_int_equal(out.status, CADRE_ERR_PEER_LOST);
    assert_int_equal(out.rank, 7);
    assert_string_equal(out.text, "gone??[2J"); // nothing for a terminal to do

    w = writer_on(data);
    cadre_encode_verdict(&w, CADRE_MESSAGE_REPORT, (cadre_status)-999, -1, "");
    m = read_message(data, w.used);
    assert_true(cadre_decode_verdict(&m, &out));
    assert_int_equal(out.status, CADRE_ERR_ABORTED); // none that we know
    assert_int_equal(out.rank, -1);
    assert_string_equal(out.text, "");

    w = writer_on(data);
    cadre_encode_verdict(&w, CADRE_MESSAGE_REPORT, CADRE_OK, 99999, "");
    m = read_message(data, w.used);
    assert_true(cadre_decode_verdict(&m, &out));
    assert_int_equal(out.status, CADRE_ERR_ABORTED); // a verdict is no success
    assert_int_equal(out.rank, -1);
}

static void cuts_a_text_that_is_too_long(void **state)
{
    (void)state;
    uint8_t data[ROOM];
    char text[5000];
    cadre_writer w = writer_on(data);
    cadre_verdict out;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    cadre_encode_verdict(&w, CADRE_MESSAGE_REPORT, CADRE_ERR_TIMEOUT, -1, text);
    assert_true(w.ok);
    assert_int_equal(w.used, CADRE_SMALL_MESSAGE_BYTES);
    cadre_message m = read_message(data, w.used);
    assert_true(cadre_decode_verdict(&m, &out));
    assert_int_equal(strlen(out.text), sizeof(out.text) - 1);
}

static void reads_back_a_welcome(void **state)
{
    (void)state;
    uint8_t data[ROOM];
    cadre_writer w = writer_on(data);
    cadre_welcome in = {.job_id = "0123456789abcde",
        .generation = 0x1122334455667788,
        .timeout_ms = 5,
        .link = CADRE_LINK_TCP,
        .n_addresses = 2};
    cadre_welcome out;
    char address[CADRE_ADDRESS_BYTES] = "127.0.0.1:1";
    cadre_encode_welcome(&w, &in);
    cadre_encode_address(&w, address);
    cadre_encode_address(&w, (char[CADRE_ADDRESS_BYTES]){"[::1]:2"});
    cadre_message m = read_message(data, w.used);
    assert_true(cadre_decode_welcome(&m, &out));
    assert_memory_equal(out.job_id, in.job_id, sizeof(in.job_id));
    assert_true(out.generation == in.generation);
    assert_int_equal(out.timeout_ms, 5);
    assert_int_equal(out.link, CADRE_LINK_TCP);
    assert_int_equal(out.n_addresses, 2);
    assert_true(cadre_decode_address(&m, address));
    assert_string_equal(address, "127.0.0.1:1");
    assert_true(cadre_decode_address(&m, address));
    assert_string_equal(address, "[::1]:2");
    assert_false(cadre_decode_address(&m, address));

    m = read_message(data, w.used);
    m.payload.nbytes--; // not what the number of addresses says
    assert_false(cadre_decode_welcome(&m, &out));

    // Something must have been chosen.
    for (uint32_t link = 0; link < 4; link++) {
        m = read_message(data, w.used);
        cadre_store_u32(data + 12 + 16 + 8 + 4, link);
        assert_int_equal(cadre_decode_welcome(&m, &out),
            link == CADRE_LINK_TCP || link == CADRE_LINK_SHM);
    }
}

static void knows_garbage_from_its_first_bytes(void **state)
{
    (void)state;
    static const char *const garbage[] = {
        "G", "GET / HTTP/1.1\r\n", "CDH1", "CDH3", "CDX", "\x16\x03\x01"};
    cadre_message m;
    size_t nbytes;
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
        const uint8_t *data = (const uint8_t *)garbage[i];
        assert_false(cadre_message_peek(data, strlen(garbage[i]), &m, &nbytes));
    }
    // A type or a length that no message has.
    uint8_t header[CADRE_MESSAGE_HEADER_BYTES] = "CDH2";
    cadre_store_u32(header + 4, CADRE_MESSAGE_VERDICT + 1);
    assert_false(cadre_message_peek(header, sizeof(header), &m, &nbytes));
    cadre_store_u32(header + 4, CADRE_MESSAGE_REPORT);
    cadre_store_u32(header + 8, UINT32_MAX);
    assert_false(cadre_message_peek(header, sizeof(header), &m, &nbytes));
}

static void refuses_payloads_of_any_other_length(void **state)
{
    (void)state;
    uint8_t data[ROOM];
    for (size_t n = 0; n < 400; n++) {
        cadre_message m = {.type = CADRE_MESSAGE_JOIN,
            .payload = {.data = data, .nbytes = n, .ok = true}};
        cadre_hub_join join;
        memset(data, 0, sizeof(data));
        assert_int_equal(cadre_decode_join(&m, &join),
            n == CADRE_JOIN_BYTES - CADRE_MESSAGE_HEADER_BYTES);
        int rank;
        m = (cadre_message){.type = CADRE_MESSAGE_PEER,
            .payload = {.data = data, .nbytes = n, .ok = true}};
        assert_int_equal(cadre_decode_peer(&m, &rank), n == 4);
        cadre_verdict verdict;
        m = (cadre_message){.type = CADRE_MESSAGE_VERDICT,
            .payload = {.data = data, .nbytes = n, .ok = true}};
        assert_int_equal(cadre_decode_verdict(&m, &verdict), n >= 8);
    }
}

static void refuses_numbers_and_texts_that_cannot_be(void **state)
{
    (void)state;
    uint8_t data[ROOM];
    cadre_hub_join join = sample_join();
    static const size_t texts[] = {36, 100, 180, 260};
    for (int field = 0; field < 10; field++) {
        cadre_writer w = writer_on(data);
        cadre_encode_join(&w, &join);
        if (field < 6) { // a number with its highest bit
            cadre_store_u32(data + 12 + 4 * field, 0x80000000u);
        } else { // a text without an end
            memset(data + texts[field - 6], 'x', 80);
        }
        cadre_message m = read_message(data, w.used);
        cadre_hub_join out;
        assert_false(cadre_decode_join(&m, &out));
    }
    cadre_writer w = writer_on(data);
    cadre_encode_join(&w, &join);
    cadre_store_u32(data + 12 + 4 * 5, CADRE_LINK_SHM + 1);
    cadre_message m = read_message(data, w.used);
    assert_false(cadre_decode_join(&m, &join));
}

typedef struct wire {
    int far;
    cadre_mailbox near;
    uint8_t in[ROOM];
} wire;

static void open_wire(wire *x)
{
    int ends[2];
    CHECK_OK(cadre_socket_pair(ends));
    x->far = ends[0];
    cadre_mailbox_open(&x->near, ends[1], x->in, sizeof(x->in));
}

static void close_wire(wire *x)
{
    close(x->far);
    cadre_mailbox_close(&x->near);
    cadre_mailbox_close(&x->near); // once more does no harm
}

static void takes_messages_out_of_any_pieces(void **state)
{
    (void)state;
    uint8_t data[ROOM];
    cadre_writer w = writer_on(data);
    cadre_message m;
    wire x;
    open_wire(&x);
    cadre_encode_plain(&w, CADRE_MESSAGE_ALIVE);
    cadre_encode_verdict(
        &w, CADRE_MESSAGE_REPORT, CADRE_ERR_TIMEOUT, 1, "late");
    cadre_encode_plain(&w, CADRE_MESSAGE_GOODBYE);
    cadre_message_type got[3] = {0};
    int n = 0;
    for (size_t i = 0; i < w.used; i++) { // byte by byte
        assert_int_equal(cadre_mailbox_receive(&x.near, &m), CADRE_MAIL_NONE);
        assert_int_equal(cadre_socket_send(x.far, data + i, 1, -1), 1);
        if (cadre_mailbox_receive(&x.near, &m) == CADRE_MAIL_MESSAGE) {
            got[n++] = m.type;
        }
    }
    assert_int_equal(n, 3);
    assert_int_equal(
        cadre_socket_send(x.far, data, w.used, -1), (ssize_t)w.used);
    for (int i = 0; i < 3; i++) { // all at once
        assert_int_equal(
            cadre_mailbox_receive(&x.near, &m), CADRE_MAIL_MESSAGE);
        assert_int_equal(m.type, got[i]);
    }
    assert_int_equal(cadre_mailbox_receive(&x.near, &m), CADRE_MAIL_NONE);
    close(x.far);
    assert_int_equal(cadre_mailbox_receive(&x.near, &m), CADRE_MAIL_ENDED);
    x.far = dup(0);
    close_wire(&x);
}

static void does_not_take_a_message_longer_than_its_buffer(void **state)
{
    (void)state;
    uint8_t header[CADRE_MESSAGE_HEADER_BYTES] = "CDH2";
    cadre_message m;
    wire x;
    open_wire(&x);
    cadre_store_u32(header + 4, CADRE_MESSAGE_WELCOME);
    cadre_store_u32(header + 8, ROOM);
    assert_int_equal(cadre_socket_send(x.far, header, sizeof(header), -1), 12);
    assert_int_equal(cadre_mailbox_receive(&x.near, &m), CADRE_MAIL_GARBAGE);
    close_wire(&x);
}

static void takes_a_descriptor_with_its_message(void **state)
{
    (void)state;
    uint8_t data[ROOM];
    cadre_message m;
    wire x;
    int pair[2];
    int rank;
    open_wire(&x);
    CHECK_OK(cadre_socket_pair(pair));
    cadre_writer w = writer_on(data);
    cadre_encode_peer(&w, 9);
    assert_int_equal(
        cadre_socket_send(x.far, data, w.used, pair[0]), (ssize_t)w.used);
    assert_int_equal(cadre_mailbox_receive(&x.near, &m), CADRE_MAIL_MESSAGE);
    assert_true(cadre_decode_peer(&m, &rank));
    assert_int_equal(rank, 9);
    int passed = cadre_mailbox_take_passed(&x.near);
    assert_true(passed >= 0);
    assert_int_equal(cadre_mailbox_take_passed(&x.near), -1);
    assert_int_equal(write(passed, "x", 1), 1); // it is that pair's
    assert_int_equal(read(pair[1], data, 1), 1);
    close(passed);
    close(pair[0]);
    close(pair[1]);
    close_wire(&x);
}

static void sends_what_was_lent_before_the_rest(void **state)
{
    (void)state;
    enum { LENT = 1 << 20 };
    static uint8_t lent[LENT];
    static uint8_t got[LENT + 100];
    wire x;
    open_wire(&x);
    for (size_t i = 0; i < LENT; i++) {
        lent[i] = (uint8_t)(i * 7 + i / 1000);
    }
    cadre_mailbox_lend(&x.near, lent, LENT);
    cadre_writer w = cadre_mailbox_writer(&x.near);
    cadre_encode_plain(&w, CADRE_MESSAGE_GOODBYE);
    assert_true(cadre_mailbox_post(&x.near, &w));
    assert_true(cadre_mailbox_has_unsent(&x.near));
    size_t n = 0;
    while (n < LENT + CADRE_MESSAGE_HEADER_BYTES) {
        ssize_t more = recv(x.far, got + n, sizeof(got) - n, 0);
        n += more > 0 ? (size_t)more : 0;
        cadre_mailbox_flush(&x.near);
    }
    assert_false(cadre_mailbox_has_unsent(&x.near));
    assert_memory_equal(got, lent, LENT);
    assert_memory_equal(got + LENT, "CDH2", 4);
    close_wire(&x);
}

static void refuses_more_than_it_can_keep(void **state)
{
    (void)state;
    wire x;
    int posted = 0;
    bool ok = true;
    open_wire(&x);
    char text[1000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    while (ok && posted < 100000) { // nobody reads
        cadre_writer w = cadre_mailbox_writer(&x.near);
        cadre_encode_verdict(
            &w, CADRE_MESSAGE_REPORT, CADRE_ERR_TIMEOUT, 0, text);
        ok = cadre_mailbox_post(&x.near, &w);
        posted += ok;
    }
    assert_false(ok);
    assert_true(posted > 2);
    close_wire(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back_a_join),
        cmocka_unit_test(reads_back_a_verdict),
        cmocka_unit_test(cuts_a_text_that_is_too_long),
        cmocka_unit_test(reads_back_a_welcome),
        cmocka_unit_test(knows_garbage_from_its_first_bytes),
        cmocka_unit_test(refuses_payloads_of_any_other_length),
        cmocka_unit_test(refuses_numbers_and_texts_that_cannot_be),
        cmocka_unit_test(takes_messages_out_of_any_pieces),
        cmocka_unit_test(does_not_take_a_message_longer_than_its_buffer),
        cmocka_unit_test(takes_a_descriptor_with_its_message),
        cmocka_unit_test(sends_what_was_lent_before_the_rest),
        cmocka_unit_test(refuses_more_than_it_can_keep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
