// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "base/log.h"
#include "base/socket.h"
#include "rendezvous/door.h"
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

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
} house;

static void build(house *h)
{
    int listener;
    char bound[CADRE_ADDRESS_BYTES];
    assert_true(cadre_address_parse("127.0.0.1:0", &h->address));
    CHECK_OK(cadre_socket_listen(&h->address, &listener, bound));
    assert_true(cadre_address_parse(bound, &h->address));
    CHECK_OK(cadre_door_open(listener, CADRE_MESSAGE_HELLO, "hub", &h->door));
    n_lines = 0;
    cadre_log_set_sink(CADRE_LOG_WARN, count_line, NULL);
}

static int knock(const house *h)
{
    int fd = cadre_socket_connect(&h->address);
    assert_true(fd >= 0);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    assert_int_equal(poll(&p, 1, 10000), 1);
    assert_int_equal(cadre_socket_error(fd), 0);
    return fd;
}

static void say(int fd, const void *bytes, size_t nbytes)
{
    assert_int_equal(cadre_socket_send(fd, bytes, nbytes, -1), (ssize_t)nbytes);
}

// Lets the door work until it has nothing to do, or somebody is there.
static bool answer(house *h, int *socket, cadre_message *m)
{
    struct pollfd p = {.fd = cadre_door_fd(h->door), .events = POLLIN};
    while (poll(&p, 1, 100) == 1) {
        if (cadre_door_next(h->door, socket, m)) {
            return true;
        }
    }
    return false;
}

static void expect_closed(int fd)
{
    char byte;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 10000), 1);
    assert_true(recv(fd, &byte, 1, 0) <= 0);
    close(fd);
}

static size_t write_hello(uint8_t *data, int from)
{
    cadre_writer w = {.data = data, .capacity = 100, .ok = true};
    cadre_encode_hello(&w, &(cadre_hello){.from = from, .to = 0});
    return w.used;
}

static void hands_out_who_says_hello(void **state)
{
    (void)state;
    house h;
    uint8_t data[100];
    cadre_message m;
    cadre_hello hello;
    int socket;
    build(&h);
    int fd = knock(&h);
    size_t n = write_hello(data, 4);
    say(fd, data, 5); // in two pieces, and something after it
    assert_false(answer(&h, &socket, &m));
    memcpy(data + n, "more", 4);
    say(fd, data + 5, n - 5 + 4);
    assert_true(answer(&h, &socket, &m));
    assert_true(cadre_decode_hello(&m, &hello));
    assert_int_equal(hello.from, 4);
    assert_int_equal(recv(socket, data, sizeof(data), 0), 4); // not lost
    assert_memory_equal(data, "more", 4);
    assert_int_equal(n_lines, 0);
    close(fd);
    close(socket);
    cadre_door_close(h.door);
}

static void sends_strangers_away_with_one_line(void **state)
{
    (void)state;
    house h;
    uint8_t join[CADRE_JOIN_BYTES];
    cadre_writer w = {.data = join, .capacity = sizeof(join), .ok = true};
    cadre_message m;
    int socket;
    build(&h);
    cadre_encode_join(&w, &(cadre_hub_join){.rank = 0}); // not hello
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    int fds[12];
    for (int i = 0; i < 12; i++) {
        fds[i] = knock(&h);
        if (i % 3 == 0) {
            say(fds[i], http, sizeof(http) - 1);
        } else if (i % 3 == 1) {
            say(fds[i], join, CADRE_HELLO_BYTES);
        } else {
            assert_int_equal(shutdown(fds[i], SHUT_WR), 0); // says nothing
        }
    }
    assert_false(answer(&h, &socket, &m));
    for (int i = 0; i < 12; i++) {
        expect_closed(fds[i]);
    }
    assert_int_equal(n_lines, 1); // within a second
    assert_non_null(strstr(last_line, "hub: closed a connection"));
    cadre_door_close(h.door);
}

static void stays_open_for_ranks_while_many_wait(void **state)
{
    (void)state;
    enum { MANY = 100 }; // more than it has room for
    house h;
    uint8_t data[100];
    cadre_message m;
    int socket;
    int fds[MANY];
    build(&h);
    for (int i = 0; i < MANY; i++) {
        fds[i] = knock(&h);
        assert_false(cadre_door_next(h.door, &socket, &m));
    }
    int fd = knock(&h);
    say(fd, data, write_hello(data, 1));
    assert_true(answer(&h, &socket, &m));
    close(socket);
    close(fd);
    expect_closed(fds[0]); // the oldest made room
    for (int i = 1; i < MANY; i++) {
        close(fds[i]);
    }
    cadre_door_close(h.door);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hands_out_who_says_hello),
        cmocka_unit_test(sends_strangers_away_with_one_line),
        cmocka_unit_test(stays_open_for_ranks_while_many_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
