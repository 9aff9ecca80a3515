// SPDX-License-Identifier: Apache-2.0
//
// Who is let in, and who is not: strangers, and ranks of other jobs.

#include "support/afar.h"
#include "support/check.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/socket.h"
#include "rendezvous/applicant.h"
#include "rendezvous/door.h"
#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GENERATION = 55, OWN_RANK = 2, LIMIT_MS = 10000 };

static int n_lines; // that the log got
static char last_line[256];

static void count_line(
    cadre_log_level level, const char *component, const char *line, void *ctx)
{
    (void)level;
    (void)ctx;
    n_lines++;
    snprintf(last_line, sizeof(last_line), "%s: %s", component, line);
}

typedef struct house {
    cadre_door *door;
    cadre_address address;
    cadre_credentials credentials;
} house;

static cadre_credentials know(const char *secret)
{
    cadre_credentials c = {.proof = CADRE_PROOF_SECRET};
    CHECK_OK(cadre_key_derive(secret, strlen(secret), &c.key));
    return c;
}

static const char job[CADRE_JOB_ID_BYTES] = "this very job";

// The door of the hub, or of a rank.
static void build(house *h, cadre_proof proof, int to)
{
    int listener;
    char bound[CADRE_ADDRESS_BYTES];
    h->credentials = know(proof == CADRE_PROOF_SECRET ? "secret" : "");
    h->credentials.proof = proof;
    cadre_door_rules rules = {
        .credentials = &h->credentials, .to = to, .generation = GENERATION};
    if (to != CADRE_HUB) {
        memcpy(rules.job_id, job, sizeof(rules.job_id));
    }
    assert_true(cadre_address_parse("127.0.0.1:0", &h->address));
    CHECK_OK(cadre_socket_listen(&h->address, &listener, bound));
    assert_true(cadre_address_parse(bound, &h->address));
    CHECK_OK(cadre_door_open(listener, &rules, "hub", &h->door));
    n_lines = 0;
    cadre_log_set_sink(CADRE_LOG_WARN, count_line, NULL);
}

static void leave(house *h)
{
    cadre_log_set_sink(CADRE_LOG_OFF, NULL, NULL);
    cadre_door_close(h->door);
    cadre_credentials_drop(&h->credentials);
}

static int knock(const house *h)
{
    int fd = cadre_socket_connect(&h->address);
    assert_true(fd >= 0);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    assert_int_equal(poll(&p, 1, LIMIT_MS), 1);
    assert_int_equal(cadre_socket_error(fd), 0);
    return fd;
}

static void say(int fd, const void *bytes, size_t nbytes)
{
    assert_int_equal(cadre_socket_send(fd, bytes, nbytes, -1), (ssize_t)nbytes);
}

// Lets the door work until it has nothing to do, or somebody is there.
static bool answer(house *h, cadre_visitor *v)
{
    struct pollfd p = {.fd = cadre_door_fd(h->door), .events = POLLIN};
    while (poll(&p, 1, 100) == 1) {
        if (cadre_door_next(h->door, v)) {
            return true;
        }
    }
    return false;
}

// Nothing was said to it, and it is closed.
static void expect_closed(int fd)
{
    char byte;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, LIMIT_MS), 1);
    assert_true(recv(fd, &byte, 1, 0) <= 0);
    close(fd);
}

static cadre_hello hello_to(int to, int from)
{
    cadre_hello hello = {.from = from, .to = to};
    if (to != CADRE_HUB) {
        hello.generation = GENERATION;
        memcpy(hello.job_id, job, sizeof(hello.job_id));
    }
    return hello;
}

// Proves itself, with the door's help.  True if the visitor is handed out.
static bool prove(house *h, const cadre_credentials *c,
    const cadre_hello *hello, int fd, cadre_visitor *v)
{
    cadre_applicant a;
    CHECK_OK(cadre_applicant_begin(&a, c, hello, fd));
    assert_false(answer(h, v));
    cadre_status status = cadre_applicant_go_on(&a);
    if (status != CADRE_OK) {
        return false;
    }
    assert_true(a.admitted);
    assert_true(a.generation == GENERATION);
    return answer(h, v);
}

static void hands_a_rank_out_to_a_rank(void **state)
{
    (void)state;
    static const cadre_proof proofs[] = {
        CADRE_PROOF_USER, CADRE_PROOF_SECRET, CADRE_PROOF_NONE};
    for (int i = 0; i < 3; i++) {
        house h;
        cadre_visitor v;
        char data[8];
        build(&h, proofs[i], OWN_RANK);
        int fd = knock(&h);
        cadre_hello hello = hello_to(OWN_RANK, 4);
        assert_true(prove(&h, &h.credentials, &hello, fd, &v));
        assert_int_equal(v.from, 4);
        say(fd, "more", 4); // what follows is not lost
        struct pollfd p = {.fd = v.socket, .events = POLLIN};
        assert_int_equal(poll(&p, 1, LIMIT_MS), 1);
        assert_int_equal(recv(v.socket, data, sizeof(data), 0), 4);
        assert_memory_equal(data, "more", 4);
        assert_int_equal(n_lines, 0);
        close(fd);
        close(v.socket);
        leave(&h);
    }
}

static void hands_a_rank_out_to_the_hub_once_it_has_joined(void **state)
{
    (void)state;
    house h;
    uint8_t join[CADRE_JOIN_BYTES + 4];
    cadre_writer w = {.data = join, .capacity = sizeof(join), .ok = true};
    cadre_visitor v;
    cadre_hub_join said;
    build(&h, CADRE_PROOF_SECRET, CADRE_HUB);
    cadre_encode_join(&w, &(cadre_hub_join){.rank = 6, .world_size = 9});
    cadre_write_bytes(&w, "more", 4);
    int fd = knock(&h);
    cadre_hello hello = hello_to(CADRE_HUB, 6);
    assert_false(prove(&h, &h.credentials, &hello, fd, &v));
    say(fd, join, 5); // in two pieces, and something after it
    assert_false(answer(&h, &v));
    say(fd, join + 5, w.used - 5);
    assert_true(answer(&h, &v));
    assert_int_equal(v.from, 6);
    assert_true(cadre_decode_join(&v.join, &said));
    assert_int_equal(said.rank, 6);
    assert_int_equal(said.world_size, 9);
    assert_int_equal(recv(v.socket, join, sizeof(join), 0), 4);
    assert_memory_equal(join, "more", 4);
    assert_int_equal(n_lines, 0);
    close(fd);
    close(v.socket);
    leave(&h);
}

static void says_nothing_to_strangers(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t nbytes;
    } words[] = {
        {"", 0}, // a port scan
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27},
        {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11}, // TLS
        {"\xff\xff\xff\xff", 4},                              // 4 GiB to come
        {"CDH2\x01\0\0\0\xff\xff\xff\xff", 12}, // a message of 4 GiB
        {"CDA2", 4}, {"CDA1\x01", 5},           // a hello that ends
    };
    house h;
    cadre_visitor v;
    build(&h, CADRE_PROOF_SECRET, CADRE_HUB);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        int fd = knock(&h);
        say(fd, words[i].bytes, words[i].nbytes);
        if (i == 0 || i == 6) {
            assert_int_equal(shutdown(fd, SHUT_WR), 0);
        }
        assert_false(answer(&h, &v));
        expect_closed(fd);
    }
    // A hello of the right length, of numbers that cannot be.
    uint8_t hello[CADRE_HELLO_BYTES] = "CDA1";
    memset(hello + 4, 0xff, sizeof(hello) - 4);
    int fd = knock(&h);
    say(fd, hello, sizeof(hello));
    assert_false(answer(&h, &v));
    expect_closed(fd);
    assert_int_equal(n_lines, 1); // for all of them
    leave(&h);
}

// Whoever speaks the language and is of no use here; a line a minute.
static void turns_away_who_does_not_belong_to_the_job(void **state)
{
    (void)state;
    house h;
    cadre_visitor v;
    build(&h, CADRE_PROOF_SECRET, OWN_RANK);
    cadre_credentials wrong = know("another");
    cadre_credentials none = know("");
    none.proof = CADRE_PROOF_NONE;
    cadre_credentials user = know("");
    user.proof = CADRE_PROOF_USER;
    const cadre_credentials *good = &h.credentials;
    cadre_hello right = hello_to(OWN_RANK, 3);
    cadre_hello other_rank = hello_to(1, 3);
    cadre_hello the_hub = hello_to(CADRE_HUB, 3);
    cadre_hello other_job = right;
    other_job.job_id[0] ^= 1;
    cadre_hello other_generation = right;
    other_generation.generation++;
    const struct {
        const cadre_credentials *credentials;
        const cadre_hello *hello;
    } cases[] = {{&wrong, &right}, {&none, &right}, {&user, &right},
        {good, &other_rank}, {good, &the_hub}, {good, &other_job},
        {good, &other_generation}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int fd = knock(&h);
        assert_false(prove(&h, cases[i].credentials, cases[i].hello, fd, &v));
        close(fd);
        assert_false(answer(&h, &v));
    }
    assert_int_equal(n_lines, 1);
    assert_non_null(strstr(last_line, "hub: closed a connection: it has not "
                                      "proved that it belongs to this job"));
    int fd = knock(&h); // and the next is welcome
    assert_true(prove(&h, good, &right, fd, &v));
    close(v.socket);
    close(fd);
    cadre_credentials_drop(&wrong);
    cadre_credentials_drop(&none);
    cadre_credentials_drop(&user);
    leave(&h);
}

static void a_wrong_proof_is_not_a_proof(void **state)
{
    (void)state;
    house h;
    cadre_visitor v;
    uint8_t bytes[CADRE_HELLO_BYTES + CADRE_MAC_BYTES];
    cadre_hello hello = hello_to(OWN_RANK, 3);
    hello.proof = CADRE_PROOF_SECRET;
    build(&h, CADRE_PROOF_SECRET, OWN_RANK);
    CHECK_OK(cadre_proof_greet(&hello, bytes));
    memset(bytes + CADRE_HELLO_BYTES, 0, CADRE_MAC_BYTES);
    int fd = knock(&h);
    say(fd, bytes, sizeof(bytes));
    assert_false(answer(&h, &v));
    assert_int_equal(recv(fd, bytes, sizeof(bytes), 0), CADRE_REPLY_BYTES);
    expect_closed(fd);
    assert_int_equal(n_lines, 1);
    assert_non_null(strstr(last_line, "does not know this job's secret"));
    leave(&h);
}

// Somebody has listened to a rank, and says the same.
static void a_replayed_handshake_is_refused(void **state)
{
    (void)state;
    house h;
    cadre_visitor v;
    cadre_applicant a;
    uint8_t heard[CADRE_HELLO_BYTES + CADRE_MAC_BYTES];
    cadre_hello hello = hello_to(OWN_RANK, 3);
    build(&h, CADRE_PROOF_SECRET, OWN_RANK);
    int fd = knock(&h);
    CHECK_OK(cadre_applicant_begin(&a, &h.credentials, &hello, fd));
    assert_false(answer(&h, &v));
    CHECK_OK(cadre_applicant_go_on(&a));
    assert_true(a.admitted);
    memcpy(heard, a.hello, CADRE_HELLO_BYTES);
    CHECK_OK(cadre_proof_finish(
        &h.credentials, a.hello, a.reply, heard + CADRE_HELLO_BYTES));
    assert_true(answer(&h, &v)); // the rank itself was let in
    close(v.socket);
    close(fd);
    for (int i = 0; i < 2; i++) {
        uint8_t reply[CADRE_REPLY_BYTES];
        fd = knock(&h);
        say(fd, heard, sizeof(heard));
        assert_false(answer(&h, &v));
        assert_int_equal(recv(fd, reply, sizeof(reply), 0), sizeof(reply));
        expect_closed(fd);
    }
    assert_int_equal(n_lines, 1);
    leave(&h);
}

// One that has the secret, and yet does not say what a rank says.
static void a_join_of_4_gib_is_not_waited_for(void **state)
{
    (void)state;
    house h;
    cadre_visitor v;
    build(&h, CADRE_PROOF_SECRET, CADRE_HUB);
    int fd = knock(&h);
    cadre_hello hello = hello_to(CADRE_HUB, 1);
    assert_false(prove(&h, &h.credentials, &hello, fd, &v));
    say(fd, "CDH2\x01\0\0\0\xff\xff\xff\xff", 12);
    assert_false(answer(&h, &v));
    expect_closed(fd);
    leave(&h);
}

static void stays_open_for_ranks_while_many_wait(void **state)
{
    (void)state;
    enum { MANY = 100 }; // more than it has room for
    house h;
    cadre_visitor v;
    int fds[MANY];
    build(&h, CADRE_PROOF_SECRET, OWN_RANK);
    for (int i = 0; i < MANY; i++) {
        fds[i] = knock(&h);
        assert_false(cadre_door_next(h.door, &v));
    }
    int fd = knock(&h);
    cadre_applicant a;
    cadre_hello hello = hello_to(OWN_RANK, 3);
    CHECK_OK(cadre_applicant_begin(&a, &h.credentials, &hello, fd));
    bool in = false;
    cadre_deadline deadline = cadre_deadline_in_ms(LIMIT_MS);
    while (!in && cadre_now_ns() < deadline) {
        cadre_sleep_ns(10000000);
        in = cadre_door_next(h.door, &v);
        CHECK_OK(cadre_applicant_go_on(&a));
    }
    assert_true(in);
    close(v.socket);
    close(fd);
    expect_closed(fds[0]); // the oldest made room
    for (int i = 1; i < MANY; i++) {
        close(fds[i]);
    }
    assert_int_equal(n_lines, 0);
    leave(&h);
}

// Byte after byte, and never done.
static void a_slow_writer_is_not_waited_for(void **state)
{
    (void)state;
    house h;
    cadre_visitor v;
    uint8_t bytes[CADRE_HELLO_BYTES];
    cadre_hello hello = hello_to(OWN_RANK, 3);
    hello.proof = CADRE_PROOF_SECRET;
    build(&h, CADRE_PROOF_SECRET, OWN_RANK);
    CHECK_OK(cadre_proof_greet(&hello, bytes));
    int fd = knock(&h);
    int64_t began = cadre_now_ns();
    cadre_deadline deadline = cadre_deadline_in_ms(4 * LIMIT_MS);
    bool closed = false;
    for (size_t i = 0; !closed && cadre_now_ns() < deadline; i++) {
        if (i < sizeof(bytes) - 1) {
            (void)cadre_socket_send(fd, bytes + i, 1, -1);
        }
        struct pollfd p = {.fd = fd, .events = POLLIN};
        closed = poll(&p, 1, 50) == 1;
        assert_false(cadre_door_next(h.door, &v));
    }
    assert_true(closed);
    assert_true(cadre_now_ns() - began >= 2900000000);
    expect_closed(fd);
    assert_int_equal(n_lines, 1);
    leave(&h);
}

// A rank's process of another user, who is as clever as can be.
static void one_of_another_user_is_refused(void **state)
{
    (void)state;
    enum { OTHER = 4711 };
    if (geteuid() != 0) {
        print_message("only root can become another user\n");
        skip();
    }
    house h;
    cadre_visitor v;
    build(&h, CADRE_PROOF_USER, OWN_RANK);
    pid_t child = fork();
    if (child == 0) {
        uint8_t hello[CADRE_HELLO_BYTES];
        uint8_t reply[CADRE_REPLY_BYTES];
        uint8_t mac[CADRE_MAC_BYTES];
        cadre_hello said = hello_to(OWN_RANK, 3);
        said.proof = CADRE_PROOF_USER;
        int fd = setuid(OTHER) == 0 ? cadre_socket_connect(&h.address) : -1;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        bool fine =
            cadre_proof_greet(&said, hello) == CADRE_OK &&
            send(fd, hello, sizeof(hello), MSG_NOSIGNAL) > 0 &&
            poll(&p, 1, LIMIT_MS) == 1 &&
            recv(fd, reply, sizeof(reply), 0) == sizeof(reply) &&
            cadre_proof_finish(&h.credentials, hello, reply, mac) == CADRE_OK &&
            send(fd, mac, sizeof(mac), MSG_NOSIGNAL) > 0 &&
            poll(&p, 1, LIMIT_MS) == 1 && // closed
            recv(fd, reply, sizeof(reply), 0) <= 0;
        _exit(fine ? 0 : 1);
    }
    int status = -1;
    cadre_deadline deadline = cadre_deadline_in_ms(LIMIT_MS);
    while (waitpid(child, &status, WNOHANG) == 0) {
        assert_true(cadre_now_ns() < deadline);
        assert_false(answer(&h, &v));
    }
    assert_int_equal(status, 0);
    assert_int_equal(n_lines, 1);
    assert_non_null(
        strstr(last_line, "not known to be a process of this user"));
    leave(&h);
}

static void one_of_another_host_needs_a_secret(void **state)
{
    (void)state;
    house h;
    cadre_visitor v = {.socket = -1};
    cadre_applicant a;
    int listener;
    char bound[CADRE_ADDRESS_BYTES];
    uint8_t bytes[CADRE_HELLO_BYTES];
    cadre_hello hello = hello_to(OWN_RANK, 3);
    build(&h, CADRE_PROOF_USER, OWN_RANK);
    if (!find_afar(&h.address)) {
        leave(&h);
        print_message("this host has no address but the loopback's\n");
        skip();
    }
    cadre_door_close(h.door);
    cadre_door_rules rules = {.credentials = &h.credentials,
        .to = OWN_RANK,
        .generation = GENERATION};
    memcpy(rules.job_id, job, sizeof(rules.job_id));
    CHECK_OK(cadre_socket_listen(&h.address, &listener, bound));
    assert_true(cadre_address_parse(bound, &h.address));
    CHECK_OK(cadre_door_open(listener, &rules, "hub", &h.door));

    int fd = connect_from_afar(&h.address);
    CHECK_FAILS(cadre_applicant_begin(&a, &h.credentials, &hello, fd),
        CADRE_ERR_INVALID_ARG,
        "another host, and this job has no secret: give every rank the same "
        "CADRE_SECRET_FILE, or set CADRE_AUTH=none");
    hello.proof = CADRE_PROOF_USER;
    CHECK_OK(cadre_proof_greet(&hello, bytes));
    say(fd, bytes, sizeof(bytes));
    assert_false(answer(&h, &v));
    expect_closed(fd);
    assert_int_equal(n_lines, 1);
    assert_non_null(strstr(last_line, "another host, and this rank has no"));

    cadre_credentials_drop(&h.credentials);
    h.credentials = know("secret");
    cadre_door_close(h.door);
    CHECK_OK(cadre_socket_listen(&h.address, &listener, NULL));
    CHECK_OK(cadre_door_open(listener, &rules, "hub", &h.door));
    fd = connect_from_afar(&h.address);
    assert_true(prove(&h, &h.credentials, &hello, fd, &v));
    close(v.socket);
    close(fd);
    leave(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hands_a_rank_out_to_a_rank),
        cmocka_unit_test(hands_a_rank_out_to_the_hub_once_it_has_joined),
        cmocka_unit_test(says_nothing_to_strangers),
        cmocka_unit_test(turns_away_who_does_not_belong_to_the_job),
        cmocka_unit_test(a_wrong_proof_is_not_a_proof),
        cmocka_unit_test(a_replayed_handshake_is_refused),
        cmocka_unit_test(a_join_of_4_gib_is_not_waited_for),
        cmocka_unit_test(stays_open_for_ranks_while_many_wait),
        cmocka_unit_test(a_slow_writer_is_not_waited_for),
        cmocka_unit_test(one_of_another_user_is_refused),
        cmocka_unit_test(one_of_another_host_needs_a_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
