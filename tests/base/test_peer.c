// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "base/peer.h"
#include "base/socket.h"
#include "base/thread.h"
#include "launch/bind.h"
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

// Both ways to find out of TCP say the same.
static bool find_user(int fd, uid_t *user)
{
    uid_t listed;
    bool found = cadre_peer_user(fd, user);
    assert_int_equal(cadre_peer_user_listed(fd, &listed), found);
    if (found) {
        assert_int_equal(listed, *user);
    }
    return found;
}

typedef struct pair {
    int listener;
    int near; // that accepted
    int far;  // that connected
} pair;

static bool open_pair(pair *p, const char *where)
{
    cadre_address address;
    char bound[CADRE_ADDRESS_BYTES];
    assert_true(cadre_address_parse(where, &address));
    if (cadre_socket_listen(&address, &p->listener, bound) != CADRE_OK) {
        return false;
    }
    assert_true(cadre_address_parse(bound, &address));
    p->far = cadre_socket_connect(&address);
    assert_true(p->far >= 0);
    struct pollfd waiting = {.fd = p->listener, .events = POLLIN};
    assert_int_equal(poll(&waiting, 1, 10000), 1);
    p->near = cadre_socket_accept(p->listener);
    assert_true(p->near >= 0);
    return true;
}

static void close_pair(pair *p)
{
    close(p->near);
    close(p->far);
    close(p->listener);
}

static void knows_both_ends_of_a_loopback_connection(void **state)
{
    (void)state;
    static const char *const places[] = {
        "127.0.0.1:0", "127.0.1.1:0", "[::1]:0"};
    for (int i = 0; i < 3; i++) {
        pair p;
        if (!open_pair(&p, places[i])) {
            continue; // not every machine has ::1
        }
        uid_t user = 12345;
        assert_true(cadre_peer_is_local(p.near));
        assert_true(find_user(p.near, &user));
        assert_int_equal(user, geteuid());
        user = 12345;
        assert_true(cadre_peer_is_local(p.far));
        assert_true(find_user(p.far, &user));
        assert_int_equal(user, geteuid());
        close_pair(&p);
    }
}

static void knows_the_owner_of_a_unix_socket(void **state)
{
    (void)state;
    int ends[2];
    uid_t user = 12345;
    CHECK_OK(cadre_socket_pair(ends));
    assert_true(cadre_peer_is_local(ends[0]));
    assert_true(cadre_peer_user(ends[0], &user));
    assert_int_equal(user, geteuid());
    close(ends[0]);
    close(ends[1]);
}

// In a process that is bound to the first of its CPUs: what it counts alone,
// with a peer that cannot be seen, and with its parent, which made the pair.
static void count_bound(const int ends[2], int tcp, int counted[3])
{
    const int nobody[] = {-1, tcp};
    int child_pipe[2];
    assert_int_equal(pipe(child_pipe), 0);
    pid_t child = fork();
    if (child == 0) {
        bool bound = cadre_bind_to_cores(0, 1);
        int seen[] = {bound ? cadre_peers_cpu_count(NULL, 0) : 0,
            cadre_peers_cpu_count(nobody, 2), cadre_peers_cpu_count(ends, 1)};
        ssize_t n = write(child_pipe[1], seen, sizeof(seen));
        _exit(n == (ssize_t)sizeof(seen) ? 0 : 1);
    }
    int how = -1;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    assert_int_equal(
        read(child_pipe[0], counted, 3 * sizeof(int)), 3 * sizeof(int));
    close(child_pipe[0]);
    close(child_pipe[1]);
}

static void counts_the_cpus_of_both_ends(void **state)
{
    (void)state;
    int ends[2];
    int counted[3];
    pair p;
    CHECK_OK(cadre_socket_pair(ends));
    assert_true(open_pair(&p, "127.0.0.1:0"));
    count_bound(ends, p.near, counted);
    assert_int_equal(counted[0], 1);
    assert_int_equal(counted[1], 1);
    assert_int_equal(counted[2], cadre_cpu_count());
    close_pair(&p);
    close(ends[0]);
    close(ends[1]);
}

static void one_who_has_gone_is_nobody(void **state)
{
    (void)state;
    pair p;
    uid_t user;
    assert_true(open_pair(&p, "127.0.0.1:0"));
    assert_int_equal(send(p.far, "x", 1, MSG_NOSIGNAL), 1);
    close(p.far);
    p.far = dup(p.listener);
    struct pollfd waiting = {.fd = p.near, .events = POLLIN};
    assert_int_equal(poll(&waiting, 1, 10000), 1);
    assert_false(find_user(p.near, &user));
    close_pair(&p);
    assert_false(cadre_peer_is_local(-1));
    assert_false(find_user(-1, &user));
}

// Nobody has accepted it yet: whoever listens there is not known.
static void a_connection_that_waits_has_no_owner(void **state)
{
    (void)state;
    pair p;
    uid_t user;
    cadre_address address;
    assert_true(open_pair(&p, "127.0.0.1:0"));
    address.nbytes = sizeof(address.storage);
    assert_int_equal(getsockname(p.listener,
                         (struct sockaddr *)&address.storage, &address.nbytes),
        0);
    int waiting = cadre_socket_connect(&address);
    assert_true(waiting >= 0);
    struct pollfd decided = {.fd = waiting, .events = POLLOUT};
    assert_int_equal(poll(&decided, 1, 10000), 1);
    assert_false(find_user(waiting, &user));
    close(waiting);
    close_pair(&p);
}

static void tells_another_user(void **state)
{
    (void)state;
    enum { OTHER = 4711 };
    if (geteuid() != 0) {
        print_message("only root can become another user\n");
        skip();
    }
    pair p;
    cadre_address address;
    uid_t user = 0;
    assert_true(open_pair(&p, "127.0.0.1:0"));
    address.nbytes = sizeof(address.storage);
    assert_int_equal(getsockname(p.listener,
                         (struct sockaddr *)&address.storage, &address.nbytes),
        0);
    pid_t child = fork();
    if (child == 0) {
        int fd = setuid(OTHER) == 0 ? cadre_socket_connect(&address) : -1;
        (void)send(fd, "x", 1, MSG_NOSIGNAL);
        pause();
        _exit(0);
    }
    struct pollfd waiting = {.fd = p.listener, .events = POLLIN};
    assert_int_equal(poll(&waiting, 1, 10000), 1);
    int fd = cadre_socket_accept(p.listener);
    assert_true(find_user(fd, &user));
    assert_int_equal(user, OTHER);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(fd);
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_both_ends_of_a_loopback_connection),
        cmocka_unit_test(knows_the_owner_of_a_unix_socket),
        cmocka_unit_test(counts_the_cpus_of_both_ends),
        cmocka_unit_test(one_who_has_gone_is_nobody),
        cmocka_unit_test(a_connection_that_waits_has_no_owner),
        cmocka_unit_test(tells_another_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
