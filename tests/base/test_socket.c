// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "base/socket.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

static void writes_what_it_reads(void **state)
{
    (void)state;
    static const char *const texts[] = {"127.0.0.1:4000", "0.0.0.0:0",
        "[::1]:65535", "unix:0000a", "[fe80::1%1]:80"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        cadre_address address;
        char text[CADRE_ADDRESS_BYTES];
        assert_true(cadre_address_parse(texts[i], &address));
        cadre_address_text(&address, text);
        if (i < 4) { // zones are shown by their names
            assert_string_equal(text, texts[i]);
        }
    }
}

static void refuses_what_is_no_address(void **state)
{
    (void)state;
    static const char *const texts[] = {"", ":", "127.0.0.1",
        "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:80x", "127.0.0.1:65536",
        "127.0.0.1:-1", "localhost:80", "[::1:80", "300.0.0.1:1",
        "unix:", "unix"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        cadre_address address;
        if (cadre_address_parse(texts[i], &address)) {
            fail_msg("'%s' is taken for an address", texts[i]);
        }
    }
    char longer[400];
    cadre_address address;
    memset(longer, 'a', sizeof(longer));
    memcpy(longer, "unix:", 5);
    longer[399] = '\0';
    assert_false(cadre_address_parse(longer, &address));
    memset(longer, 'a', sizeof(longer));
    memcpy(longer + 390, ":80", 4);
    assert_false(cadre_address_parse(longer, &address));
}

static void resolves_names_and_numbers(void **state)
{
    (void)state;
    cadre_address found[4];
    int n = 0;
    CHECK_OK(cadre_address_resolve("localhost:80", found, 4, &n));
    assert_true(n >= 1);
    CHECK_OK(cadre_address_resolve("::1:80", found, 1, &n));
    assert_int_equal(n, 1);
    assert_int_equal(found[0].storage.ss_family, AF_INET6);
    CHECK_FAILS(cadre_address_resolve("no-such-host.invalid:80", found, 4, &n),
        CADRE_ERR_IO, "no-such-host.invalid:80");
}

static void connects_to_who_listens(void **state)
{
    (void)state;
    cadre_address address;
    char bound[CADRE_ADDRESS_BYTES];
    int listener;
    assert_true(cadre_address_parse("127.0.0.1:0", &address));
    CHECK_OK(cadre_socket_listen(&address, &listener, bound));
    assert_true(cadre_address_parse(bound, &address));
    CHECK_FAILS(cadre_socket_listen(&address, &listener, NULL), CADRE_ERR_IO,
        "Address already in use");

    int here = cadre_socket_connect(&address);
    assert_true(here >= 0);
    struct pollfd p = {.fd = here, .events = POLLOUT};
    assert_int_equal(poll(&p, 1, 10000), 1);
    assert_int_equal(cadre_socket_error(here), 0);
    int there = cadre_socket_accept(listener);
    assert_true(there >= 0);
    assert_true((fcntl(there, F_GETFD) & FD_CLOEXEC) != 0);
    assert_true((fcntl(there, F_GETFL) & O_NONBLOCK) != 0);
    cadre_address own;
    char text[CADRE_ADDRESS_BYTES];
    CHECK_OK(cadre_socket_own_address(here, &own));
    cadre_address_text(&own, text);
    assert_string_equal(text, "127.0.0.1:0");
    close(here);
    close(there);
    close(listener);

    here = cadre_socket_connect(&address); // nobody is there any more
    if (here >= 0) {
        p = (struct pollfd){.fd = here, .events = POLLOUT};
        assert_int_equal(poll(&p, 1, 10000), 1);
        assert_int_equal(cadre_socket_error(here), ECONNREFUSED);
        close(here);
    }
}

// TCP lets a socket connect to its own port, if nobody listens there.
// It gets a name that is in no file system, and nobody else's.
static void listens_without_a_file(void **state)
{
    (void)state;
    cadre_address address;
    char bound[2][CADRE_ADDRESS_BYTES];
    int listeners[2];
    cadre_address_unnamed(&address);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(cadre_socket_listen(&address, &listeners[i], bound[i]));
    }
    assert_string_not_equal(bound[0], bound[1]);
    assert_true(cadre_address_parse(bound[1], &address));
    int near = cadre_socket_connect(&address);
    assert_true(near >= 0);
    assert_int_equal(cadre_socket_error(near), 0);
    assert_true(cadre_socket_is_unix(near));
    assert_int_equal(cadre_socket_accept(listeners[0]), -1);
    int far = cadre_socket_accept(listeners[1]);
    assert_true(far >= 0);
    assert_int_equal(send(near, "x", 1, 0), 1);
    char byte = 0;
    assert_int_equal(recv(far, &byte, 1, 0), 1);
    assert_int_equal(byte, 'x');
    close(near);
    close(far);
    close(listeners[0]);
    close(listeners[1]);
    assert_int_equal(cadre_socket_connect(&address), -1); // and is gone
}

static void does_not_take_itself_for_a_peer(void **state)
{
    (void)state;
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t nbytes = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, nbytes), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &nbytes), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, nbytes), 0);
    assert_int_equal(cadre_socket_error(fd), ECONNREFUSED);
    close(fd);
}

static void reserves_a_port_that_can_still_be_listened_at(void **state)
{
    (void)state;
    int fd;
    int port;
    int listener;
    char text[40];
    cadre_address address;
    CHECK_OK(cadre_socket_reserve_port(&fd, &port));
    assert_true(port > 0);
    snprintf(text, sizeof(text), "127.0.0.1:%d", port);
    assert_true(cadre_address_parse(text, &address));
    CHECK_OK(cadre_socket_listen(&address, &listener, NULL));
    close(listener);
    close(fd);
}

static void adopts_unix_sockets_only(void **state)
{
    (void)state;
    int ends[2];
    CHECK_OK(cadre_socket_pair(ends));
    assert_int_equal(fcntl(ends[0], F_SETFD, 0), 0);
    assert_int_equal(fcntl(ends[0], F_SETFL, 0), 0);
    assert_true(cadre_socket_adopt(ends[0]));
    assert_true((fcntl(ends[0], F_GETFD) & FD_CLOEXEC) != 0);
    assert_true((fcntl(ends[0], F_GETFL) & O_NONBLOCK) != 0);
    close(ends[0]);
    close(ends[1]);
    assert_false(cadre_socket_adopt(ends[0]));
    int file = open("/dev/null", O_RDONLY);
    assert_false(cadre_socket_adopt(file));
    close(file);
    int alone = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_false(cadre_socket_adopt(alone));
    close(alone);
}

static void passes_descriptors_with_bytes(void **state)
{
    (void)state;
    int ends[2];
    int passed = -1;
    char byte;
    CHECK_OK(cadre_socket_pair(ends));
    assert_int_equal(cadre_socket_send(ends[0], "x", 1, ends[0]), 1);
    assert_int_equal(cadre_socket_send(ends[0], "y", 1, -1), 1);
    assert_int_equal(cadre_socket_receive(ends[1], &byte, 1, &passed), 1);
    assert_true(passed >= 0);
    assert_true((fcntl(passed, F_GETFD) & FD_CLOEXEC) != 0);
    close(passed);
    assert_int_equal(cadre_socket_receive(ends[1], &byte, 1, &passed), 1);
    assert_int_equal(passed, -1);
    assert_int_equal(byte, 'y');
    close(ends[0]);
    assert_int_equal(cadre_socket_receive(ends[1], &byte, 1, &passed), 0);
    // No signal ends the program.
    assert_int_equal(cadre_socket_send(ends[1], "z", 1, -1), -1);
    assert_int_equal(errno, EPIPE);
    close(ends[1]);
}

static void takes_no_more_than_one_descriptor(void **state)
{
    (void)state;
    int ends[2];
    int passed = -1;
    char byte = 'x';
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr header;
    } control = {.bytes = {0}};
    struct iovec piece = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &piece,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes)};
    CHECK_OK(cadre_socket_pair(ends));
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(2 * sizeof(int));
    memcpy(CMSG_DATA(&control.header), ends, 2 * sizeof(int));
    int next = dup(0); // the number that a descriptor would get
    close(next);
    assert_int_equal(sendmsg(ends[0], &message, 0), 1);
    assert_int_equal(cadre_socket_receive(ends[1], &byte, 1, &passed), 1);
    assert_int_equal(passed, -1);
    assert_int_equal(fcntl(next, F_GETFD), -1);
    assert_int_equal(fcntl(next + 1, F_GETFD), -1);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_what_it_reads),
        cmocka_unit_test(refuses_what_is_no_address),
        cmocka_unit_test(resolves_names_and_numbers),
        cmocka_unit_test(connects_to_who_listens),
        cmocka_unit_test(listens_without_a_file),
        cmocka_unit_test(does_not_take_itself_for_a_peer),
        cmocka_unit_test(reserves_a_port_that_can_still_be_listened_at),
        cmocka_unit_test(adopts_unix_sockets_only),
        cmocka_unit_test(passes_descriptors_with_bytes),
        cmocka_unit_test(takes_no_more_than_one_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
