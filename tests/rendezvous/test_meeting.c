// SPDX-License-Identifier: Apache-2.0
//
// Ranks meet: over TCP with rank 0's hub, and over what a launcher hands out.
// Each rank is a thread here; the sockets are real.

#include "support/check.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/socket.h"
#include "base/thread.h"
#include "rendezvous/hub_loop.h"
#include "rendezvous/member.h"
#include "rendezvous/message.h"
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 8, TIMEOUT_MS = 10000, LIMIT_MS = 30000 };

typedef struct guest {
    cadre_place place;
    int timeout_ms;
    int limit_ms;
    cadre_link link; // wished, then chosen
    int sockets[MOST];
    cadre_member *member;
    cadre_status status;
    char text[1024];
    atomic_bool over; // the attempt to join
    cadre_thread thread;
} guest;

static void join(void *ctx)
{
    guest *g = ctx;
    g->status = cadre_member_join(&g->place, g->timeout_ms,
        cadre_deadline_in_ms(g->limit_ms), &g->link, g->sockets, &g->member);
    snprintf(g->text, sizeof(g->text), "%s", cadre_error_text());
    atomic_store(&g->over, true);
}

static void invite(guest *g, int rank, int world_size, const char *store)
{
    memset(g, 0, sizeof(*g));
    g->place = (cadre_place){.rank = rank,
        .world_size = world_size,
        .hosts_hub = rank == 0 && store[0] == 't',
        .source = "RANK and WORLD_SIZE"};
    snprintf(g->place.store, sizeof(g->place.store), "%s", store);
    g->timeout_ms = TIMEOUT_MS;
    g->limit_ms = LIMIT_MS;
}

static void start(guest *g)
{
    CHECK_OK(cadre_thread_start(&g->thread, "guest", join, g));
}

static void expect_joined(guest *g)
{
    cadre_thread_join(&g->thread);
    if (g->status != CADRE_OK) {
        fail_msg("rank %d: %s: %s", g->place.rank, cadre_status_name(g->status),
            g->text);
    }
}

static void expect_refused(guest *g, cadre_status status, const char *words)
{
    cadre_thread_join(&g->thread);
    assert_int_equal(g->status, status);
    if (strstr(g->text, words) == NULL) {
        fail_msg("'%s' is not in '%s'", words, g->text);
    }
}

static void leave(void *ctx)
{
    guest *g = ctx;
    for (int r = 0; r < g->place.world_size; r++) {
        if (g->sockets[r] >= 0) {
            close(g->sockets[r]);
        }
    }
    cadre_member_leave(g->member);
}

static void all_leave(guest *guests, int n)
{
    for (int r = 0; r < n; r++) {
        CHECK_OK(
            cadre_thread_start(&guests[r].thread, "guest", leave, &guests[r]));
    }
    for (int r = 0; r < n; r++) {
        cadre_thread_join(&guests[r].thread);
    }
}

static int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    int n = 0;
    while (readdir(folder) != NULL) {
        n++;
    }
    closedir(folder);
    return n;
}

// "tcp:HOST:PORT" with a port that is free just now.
static const char *free_store(const char *host)
{
    static char store[64];
    int fd;
    int port;
    CHECK_OK(cadre_socket_reserve_port(&fd, &port));
    close(fd);
    snprintf(store, sizeof(store), "tcp:%s:%d", host, port);
    return store;
}

static void read_byte(int fd, unsigned char *byte)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, LIMIT_MS), 1);
    assert_int_equal(recv(fd, byte, 1, 0), 1);
}

// Every two are connected to one another, and to nobody else.
static void check_connections(guest *guests, int n)
{
    for (int a = 0; a < n; a++) {
        assert_true(cadre_member_generation(guests[a].member) ==
                    cadre_member_generation(guests[0].member));
        assert_int_equal(guests[a].sockets[a], -1);
        for (int b = 0; b < n; b++) {
            unsigned char name = (unsigned char)(a * MOST + b);
            if (a != b) {
                assert_int_equal(send(guests[a].sockets[b], &name, 1, 0), 1);
            }
        }
    }
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) {
            unsigned char name = 0;
            if (a != b) {
                read_byte(guests[a].sockets[b], &name);
                assert_int_equal(name, b * MOST + a);
            }
        }
    }
}

// Over what was chosen, which all of them were told.
static void check_link(const guest *guests, int n, cadre_link wanted)
{
    for (int r = 0; r < n; r++) {
        assert_int_equal(guests[r].link, wanted);
        for (int peer = 0; peer < n; peer++) {
            if (peer != r) {
                assert_int_equal(cadre_socket_is_unix(guests[r].sockets[peer]),
                    wanted == CADRE_LINK_SHM);
            }
        }
    }
}

static void meet_as(const char *host, cadre_link wish, cadre_link wanted)
{
    for (int n = 2; n <= MOST; n += 3) {
        guest guests[MOST];
        int before = count_descriptors();
        const char *store = free_store(host);
        for (int r = n - 1; r >= 0; r--) { // rank 0 comes last
            invite(&guests[r], r, n, store);
            // One wish is enough.
            guests[r].link = r == 1 ? wish : CADRE_LINK_AUTO;
            start(&guests[r]);
        }
        for (int r = 0; r < n; r++) {
            expect_joined(&guests[r]);
        }
        check_link(guests, n, wanted);
        check_connections(guests, n);
        all_leave(guests, n);
        assert_int_equal(count_descriptors(), before);
    }
}

static void meet_at(const char *host)
{
    meet_as(host, CADRE_LINK_AUTO, CADRE_LINK_SHM);
    meet_as(host, CADRE_LINK_SHM, CADRE_LINK_SHM);
    meet_as(host, CADRE_LINK_TCP, CADRE_LINK_TCP);
}

static void meets_over_ipv4(void **state)
{
    (void)state;
    meet_at("127.0.0.1");
    meet_at("localhost");
}

static void meets_over_ipv6(void **state)
{
    (void)state;
    cadre_address address;
    int fd = -1;
    assert_true(cadre_address_parse("[::1]:0", &address));
    if (cadre_socket_listen(&address, &fd, NULL) != CADRE_OK) {
        print_message("there is no ::1 on this machine\n");
        skip();
    }
    close(fd);
    meet_at("::1");
    meet_at("[::1]");
}

// A launcher's hub in a thread.
typedef struct launcher {
    cadre_hub_loop *loop;
    cadre_thread thread;
    atomic_bool stop;
} launcher;

static void serve(void *ctx)
{
    launcher *l = ctx;
    while (!atomic_load(&l->stop)) {
        struct pollfd p = {.fd = cadre_hub_loop_fd(l->loop), .events = POLLIN};
        (void)poll(&p, 1, 10);
        cadre_hub_loop_run(l->loop);
    }
}

// As after exec.
static void inherit(int fd)
{
    assert_int_equal(fcntl(fd, F_SETFD, 0), 0);
}

static void launch(launcher *l, guest *guests, int n)
{
    CHECK_OK(cadre_hub_loop_launch(n, 0, &l->loop));
    atomic_init(&l->stop, false);
    for (int r = 0; r < n; r++) {
        int fd;
        char store[32];
        CHECK_OK(cadre_hub_loop_connect(l->loop, r, &fd));
        cadre_hub_loop_started(l->loop, r, "a", 800 + r);
        inherit(fd);
        snprintf(store, sizeof(store), "fd:%d", fd);
        invite(&guests[r], r, n, store);
    }
    l->thread = (cadre_thread){0};
    CHECK_OK(cadre_thread_start(&l->thread, "launcher", serve, l));
}

static void land(launcher *l)
{
    atomic_store(&l->stop, true);
    cadre_thread_join(&l->thread);
    cadre_hub_loop_close(l->loop);
}

static void meets_over_what_a_launcher_hands_out(void **state)
{
    (void)state;
    for (int n = 2; n <= MOST; n++) {
        guest guests[MOST];
        launcher l;
        int before = count_descriptors();
        launch(&l, guests, n);
        for (int r = 0; r < n; r++) {
            start(&guests[r]);
        }
        for (int r = 0; r < n; r++) {
            expect_joined(&guests[r]);
        }
        check_connections(guests, n);
        all_leave(guests, n);
        assert_true(cadre_hub_loop_verdict(l.loop)->status == CADRE_OK);
        land(&l);
        assert_int_equal(count_descriptors(), before);
    }
}

static void tells_everyone_the_same_verdict(void **state)
{
    (void)state;
    enum { N = 3 };
    guest guests[MOST];
    launcher l;
    launch(&l, guests, N);
    for (int r = 0; r < N; r++) {
        start(&guests[r]);
    }
    for (int r = 0; r < N; r++) {
        expect_joined(&guests[r]);
    }
    cadre_member_report(
        guests[1].member, CADRE_ERR_DESYNC, -1, "ranks disagree");
    for (int r = 0; r < N; r++) {
        cadre_verdict v;
        assert_true(cadre_member_listen(
            guests[r].member, cadre_deadline_in_ms(LIMIT_MS), &v));
        assert_int_equal(v.status, CADRE_ERR_DESYNC);
        assert_int_equal(v.rank, -1);
        assert_string_equal(v.text, "ranks disagree");
    }
    all_leave(guests, N);
    land(&l);
}

static void misses_a_rank_that_gives_no_sign_of_life(void **state)
{
    (void)state;
    guest guests[MOST];
    launcher l;
    cadre_verdict v;
    launch(&l, guests, 2);
    for (int r = 0; r < 2; r++) {
        guests[r].timeout_ms = 400;
        start(&guests[r]);
    }
    expect_joined(&guests[0]);
    expect_joined(&guests[1]);
    // Rank 0 listens, and so gives signs; rank 1 does nothing.
    assert_true(cadre_member_listen(
        guests[0].member, cadre_deadline_in_ms(LIMIT_MS), &v));
    assert_int_equal(v.status, CADRE_ERR_PEER_LOST);
    assert_int_equal(v.rank, 1);
    assert_string_equal(
        v.text, "rank 1 (host a, pid 801) gave no sign of life for 400 ms");
    all_leave(guests, 2);
    land(&l);
}

static void wakes_a_rank_that_listens(void **state)
{
    (void)state;
    guest guests[MOST];
    launcher l;
    cadre_verdict v;
    launch(&l, guests, 2);
    start(&guests[0]);
    start(&guests[1]);
    expect_joined(&guests[0]);
    expect_joined(&guests[1]);
    cadre_member_wake(guests[0].member);
    assert_false(cadre_member_listen(guests[0].member, CADRE_NO_DEADLINE, &v));
    assert_false(cadre_member_listen(guests[0].member, 0, &v));
    all_leave(guests, 2);
    land(&l);
}

static void names_the_missing_rank(void **state)
{
    (void)state;
    guest guests[MOST];
    const char *store = free_store("127.0.0.1");
    int before = count_descriptors();
    for (int r = 0; r < 3; r += 2) {
        invite(&guests[r], r, 3, store);
        guests[r].limit_ms = 400;
        start(&guests[r]);
    }
    expect_refused(&guests[0], CADRE_ERR_TIMEOUT,
        "rank 1 did not join in time: 2 of 3 ranks came");
    expect_refused(&guests[2], CADRE_ERR_TIMEOUT,
        "rank 1 did not join in time: 2 of 3 ranks came");
    assert_int_equal(count_descriptors(), before);
}

static void names_rank_0_if_that_is_missing(void **state)
{
    (void)state;
    guest g;
    invite(&g, 1, 2, free_store("127.0.0.1"));
    g.limit_ms = 200;
    start(&g);
    expect_refused(&g, CADRE_ERR_TIMEOUT,
        "(given by MASTER_ADDR and MASTER_PORT) in time: Connection refused");
}

// While the ranks gather.
static void refuses_a_second_process_of_a_rank(void **state)
{
    (void)state;
    guest guests[MOST];
    guest twins[2];
    const char *store = free_store("127.0.0.1");
    invite(&guests[0], 0, 3, store);
    start(&guests[0]);
    for (int i = 0; i < 2; i++) {
        invite(&twins[i], 1, 3, store);
        start(&twins[i]);
    }
    cadre_deadline deadline = cadre_deadline_in_ms(LIMIT_MS);
    while (!atomic_load(&twins[0].over) && !atomic_load(&twins[1].over)) {
        assert_true(cadre_now_ns() < deadline);
        cadre_sleep_ns(1000000);
    }
    int late = atomic_load(&twins[0].over) ? 0 : 1;
    expect_refused(&twins[late], CADRE_ERR_DESYNC, "wants to be rank 1");
    invite(&guests[2], 2, 3, store);
    start(&guests[2]);
    expect_joined(&twins[1 - late]);
    expect_joined(&guests[0]);
    expect_joined(&guests[2]);
    guests[1] = twins[1 - late];
    check_connections(guests, 3);
    all_leave(guests, 3);
}

// Once all are there, nobody listens any more.
static void is_not_there_for_one_who_comes_late(void **state)
{
    (void)state;
    guest guests[MOST];
    guest second;
    cadre_verdict v;
    const char *store = free_store("127.0.0.1");
    for (int r = 0; r < 2; r++) {
        invite(&guests[r], r, 2, store);
        start(&guests[r]);
    }
    expect_joined(&guests[0]);
    expect_joined(&guests[1]);
    invite(&second, 1, 2, store);
    second.limit_ms = 200;
    start(&second);
    expect_refused(&second, CADRE_ERR_TIMEOUT, "Connection refused");
    // The job goes on.
    check_connections(guests, 2);
    assert_false(cadre_member_listen(guests[0].member, 0, &v));
    all_leave(guests, 2);
}

static char folder[] = "/tmp/cadre-meeting-XXXXXX";
static char secret_files[2][64]; // of this user, and different

static int write_secrets(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 2; i++) {
        char secret[40] = "a secret that is no secret";
        secret[39] = (char)i;
        snprintf(secret_files[i], sizeof(secret_files[i]), "%s/%d", folder, i);
        int fd = open(secret_files[i], O_WRONLY | O_CREAT, 0600);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, secret, sizeof(secret)), sizeof(secret));
        close(fd);
    }
    return 0;
}

static int remove_secrets(void **state)
{
    (void)state;
    unlink(secret_files[0]);
    unlink(secret_files[1]);
    return rmdir(folder);
}

static void meets_with_a_secret(void **state)
{
    (void)state;
    enum { N = 3 };
    guest guests[MOST];
    int fd;
    CHECK_OK(cadre_secret_make(&fd));
    for (int by_file = 0; by_file < 2; by_file++) {
        const char *store = free_store("127.0.0.1");
        int before = count_descriptors();
        for (int r = 0; r < N; r++) {
            invite(&guests[r], r, N, store);
            guests[r].place.has_secret_fd = !by_file;
            guests[r].place.secret_fd = fd;
            guests[r].place.secret_file = by_file ? secret_files[0] : NULL;
            start(&guests[r]);
        }
        for (int r = 0; r < N; r++) {
            expect_joined(&guests[r]);
        }
        check_connections(guests, N);
        all_leave(guests, N);
        assert_int_equal(count_descriptors(), before);
    }
    close(fd);
}

// Rank 1 comes with this, and is refused; then it comes as rank 0 does.
static void check_refusal(const cadre_place *hubs, const cadre_place *others,
    cadre_status status, const char *words)
{
    guest guests[MOST];
    guest wrong;
    const char *store = free_store("127.0.0.1");
    int before = count_descriptors();
    for (int r = 0; r < 2; r++) {
        invite(&guests[r], r, 2, store);
        guests[r].place.secret_file = hubs->secret_file;
        guests[r].place.believes_all = hubs->believes_all;
    }
    start(&guests[0]);
    invite(&wrong, 1, 2, store);
    wrong.place.secret_file = others->secret_file;
    wrong.place.believes_all = others->believes_all;
    start(&wrong);
    expect_refused(&wrong, status, words);
    assert_non_null(strstr(wrong.text, "rank 1 found somebody at 127.0.0.1:"));
    start(&guests[1]);
    expect_joined(&guests[0]);
    expect_joined(&guests[1]);
    check_connections(guests, 2);
    all_leave(guests, 2);
    assert_int_equal(count_descriptors(), before);
}

static void refuses_who_does_not_know_the_secret(void **state)
{
    (void)state;
    cadre_place first = {.secret_file = secret_files[0]};
    cadre_place second = {.secret_file = secret_files[1]};
    cadre_place user = {.secret_file = NULL};
    cadre_place none = {.believes_all = true};
    check_refusal(&first, &second, CADRE_ERR_DESYNC,
        "does not know this job's secret: is its CADRE_SECRET_FILE another?");
    check_refusal(&first, &user, CADRE_ERR_PEER_LOST,
        "has it got a secret (CADRE_SECRET_FILE)");
    check_refusal(&first, &none, CADRE_ERR_PEER_LOST,
        "is CADRE_AUTH=none not set there?");
    check_refusal(&user, &first, CADRE_ERR_PEER_LOST, "has it got no secret");
    check_refusal(&none, &user, CADRE_ERR_PEER_LOST, "CADRE_AUTH=none");
}

static void says_what_is_wrong_with_a_secret(void **state)
{
    (void)state;
    guest g;
    int before = count_descriptors();
    for (int rank = 0; rank < 2; rank++) {
        invite(&g, rank, 2, free_store("127.0.0.1"));
        g.place.secret_file = secret_files[0];
        assert_int_equal(chmod(g.place.secret_file, 0644), 0);
        start(&g);
        expect_refused(&g, CADRE_ERR_INVALID_ARG, "has mode 0644");
        assert_non_null(strstr(g.text, "(given by CADRE_SECRET_FILE)"));
        assert_int_equal(chmod(g.place.secret_file, 0600), 0);
    }
    assert_int_equal(count_descriptors(), before);
}

static void refuses_another_world_size(void **state)
{
    (void)state;
    guest guests[MOST];
    guest other;
    const char *store = free_store("127.0.0.1");
    invite(&guests[0], 0, 2, store);
    start(&guests[0]);
    invite(&other, 1, 3, store);
    start(&other);
    expect_refused(
        &other, CADRE_ERR_DESYNC, "does not belong to this job of 2 ranks");
    invite(&guests[1], 1, 2, store);
    start(&guests[1]);
    expect_joined(&guests[0]);
    expect_joined(&guests[1]);
    check_connections(guests, 2);
    all_leave(guests, 2);
}

static void says_which_variable_names_a_busy_port(void **state)
{
    (void)state;
    guest g;
    cadre_address address;
    char bound[CADRE_ADDRESS_BYTES];
    char store[120];
    int fd;
    assert_true(cadre_address_parse("127.0.0.1:0", &address));
    CHECK_OK(cadre_socket_listen(&address, &fd, bound));
    snprintf(store, sizeof(store), "tcp:%s", bound);
    invite(&g, 0, 2, store);
    start(&g);
    expect_refused(&g, CADRE_ERR_IO, "Address already in use");
    expect_refused(&g, CADRE_ERR_IO, "given by MASTER_ADDR and MASTER_PORT");
    close(fd);
}

static void says_that_a_name_cannot_be_resolved(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        guest g;
        invite(&g, rank, 2, "tcp:no-such-host.invalid:4000");
        start(&g);
        expect_refused(&g, CADRE_ERR_IO, "no-such-host.invalid:4000");
        assert_non_null(strstr(g.text, "MASTER_ADDR"));
    }
}

static void refuses_a_descriptor_that_is_no_socket(void **state)
{
    (void)state;
    guest g;
    char store[32];
    int file = open("/dev/null", O_RDWR);
    snprintf(store, sizeof(store), "fd:%d", file);
    invite(&g, 0, 2, store);
    start(&g);
    expect_refused(&g, CADRE_ERR_INVALID_ARG, "is not the launcher's socket");
    close(file);
    start(&g); // now it is no descriptor at all
    expect_refused(&g, CADRE_ERR_INVALID_ARG, "is not the launcher's socket");
}

// A second group over the same socket would talk into the first one's.
static void refuses_a_descriptor_that_is_taken(void **state)
{
    (void)state;
    guest guests[2];
    guest second;
    char store[CADRE_STORE_BYTES];
    launcher l;
    launch(&l, guests, 2);
    for (int r = 0; r < 2; r++) {
        start(&guests[r]);
    }
    for (int r = 0; r < 2; r++) {
        expect_joined(&guests[r]);
    }
    snprintf(store, sizeof(store), "%s", guests[1].place.store);
    invite(&second, 1, 2, store);
    start(&second);
    expect_refused(&second, CADRE_ERR_STATE, "taken by an earlier cadre_init");
    assert_int_equal(cadre_hub_loop_verdict(l.loop)->status, CADRE_OK);
    all_leave(guests, 2);
    land(&l);
}

static void does_not_mistake_another_server_for_the_hub(void **state)
{
    (void)state;
    guest g;
    cadre_address address;
    char bound[CADRE_ADDRESS_BYTES];
    char store[120];
    int fd;
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    assert_true(cadre_address_parse("127.0.0.1:0", &address));
    CHECK_OK(cadre_socket_listen(&address, &fd, bound));
    snprintf(store, sizeof(store), "tcp:%s", bound);
    invite(&g, 1, 2, store);
    start(&g);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, LIMIT_MS), 1);
    int peer = cadre_socket_accept(fd);
    assert_true(peer >= 0);
    assert_true(send(peer, answer, sizeof(answer), 0) > 0);
    expect_refused(
        &g, CADRE_ERR_DESYNC, "does not come from a hub of this version");
    assert_non_null(strstr(g.text, "MASTER_ADDR and MASTER_PORT"));
    close(peer);
    close(fd);
}

// A launcher that is killed says no goodbye.
static void judges_the_loss_of_the_hub(void **state)
{
    (void)state;
    guest g;
    cadre_verdict v;
    int hub[2];
    int link[2];
    uint8_t data[CADRE_SMALL_MESSAGE_BYTES];
    char store[32];
    CHECK_OK(cadre_socket_pair(hub));
    CHECK_OK(cadre_socket_pair(link));
    cadre_writer w = {.data = data, .capacity = sizeof(data), .ok = true};
    cadre_encode_welcome(
        &w, &(cadre_welcome){.generation = 5, .link = CADRE_LINK_TCP});
    assert_true(cadre_socket_send(hub[0], data, w.used, -1) > 0);
    w.used = 0;
    cadre_encode_peer(&w, 1);
    assert_true(cadre_socket_send(hub[0], data, w.used, link[0]) > 0);
    close(link[0]);
    inherit(hub[1]);
    snprintf(store, sizeof(store), "fd:%d", hub[1]);
    invite(&g, 0, 2, store);
    start(&g);
    expect_joined(&g);
    assert_true(cadre_member_generation(g.member) == 5);
    close(hub[0]);
    assert_true(
        cadre_member_listen(g.member, cadre_deadline_in_ms(LIMIT_MS), &v));
    assert_int_equal(v.status, CADRE_ERR_PEER_LOST);
    assert_int_equal(v.rank, -1);
    assert_string_equal(v.text, "the launcher is gone");
    // Said once; then there is nothing more to hear.
    assert_false(cadre_member_listen(g.member, cadre_deadline_in_ms(20), &v));
    all_leave(&g, 1);
    close(link[1]);
}

static atomic_int n_lines; // that the log got

static void count_line(
    cadre_log_level level, const char *component, const char *line, void *ctx)
{
    (void)level;
    (void)component;
    (void)line;
    (void)ctx;
    atomic_fetch_add(&n_lines, 1);
}

// Connects to the store and says something that no rank says.
static int disturb(const char *store, const char *bytes)
{
    cadre_address address;
    int fd;
    assert_true(cadre_address_parse(store + strlen("tcp:"), &address));
    do { // until somebody listens
        cadre_sleep_ns(1000000);
        fd = cadre_socket_connect(&address);
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        assert_true(fd >= 0 && poll(&p, 1, LIMIT_MS) == 1);
        if (cadre_socket_error(fd) != 0) {
            close(fd);
            fd = -1;
        }
    } while (fd < 0);
    (void)!send(fd, bytes, strlen(bytes), MSG_NOSIGNAL);
    return fd;
}

static void warns_once_where_nobody_has_to_prove(void **state)
{
    (void)state;
    enum { N = 3 };
    guest guests[MOST];
    const char *store = free_store("127.0.0.1");
    atomic_store(&n_lines, 0);
    cadre_log_set_sink(CADRE_LOG_WARN, count_line, NULL);
    for (int r = 0; r < N; r++) {
        invite(&guests[r], r, N, store);
        guests[r].place.believes_all = true;
        start(&guests[r]);
    }
    for (int r = 0; r < N; r++) {
        expect_joined(&guests[r]);
    }
    check_connections(guests, N);
    all_leave(guests, N);
    cadre_log_set_sink(CADRE_LOG_OFF, NULL, NULL);
    assert_int_equal(atomic_load(&n_lines), 1);
}

static void is_not_disturbed_by_strangers(void **state)
{
    (void)state;
    enum { N = 4, STRANGERS = 20 };
    static const char *const words[] = {
        "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02", "CDH2", "", "CDA1\x09"};
    guest guests[MOST];
    guest late;
    cadre_verdict v;
    int fds[STRANGERS];
    char store[64];
    snprintf(store, sizeof(store), "%s", free_store("127.0.0.1"));
    atomic_store(&n_lines, 0);
    cadre_log_set_sink(CADRE_LOG_WARN, count_line, NULL);
    for (int r = 0; r < N - 1; r++) {
        invite(&guests[r], r, N, store);
        start(&guests[r]);
    }
    for (int i = 0; i < STRANGERS; i++) { // while the ranks gather
        fds[i] = disturb(store, words[i % 5]);
    }
    invite(&guests[N - 1], N - 1, N, store);
    start(&guests[N - 1]);
    for (int r = 0; r < N; r++) {
        expect_joined(&guests[r]);
    }
    // While they work there is nobody to talk to.
    invite(&late, 1, N, store);
    late.limit_ms = 100;
    start(&late);
    expect_refused(&late, CADRE_ERR_TIMEOUT, "Connection refused");
    check_connections(guests, N);
    assert_false(cadre_member_listen(guests[0].member, 0, &v));
    // Of those whom the hub came to hear before all were there.
    assert_true(atomic_load(&n_lines) <= 1);
    all_leave(guests, N);
    cadre_log_set_sink(CADRE_LOG_OFF, NULL, NULL);
    for (int i = 0; i < STRANGERS; i++) {
        close(fds[i]);
    }
}

// The hub lives in rank 0; that it leaves first is no failure of its own.
static void lets_rank_0_leave_first(void **state)
{
    (void)state;
    guest guests[MOST];
    cadre_verdict v;
    const char *store = free_store("127.0.0.1");
    for (int r = 0; r < 2; r++) {
        invite(&guests[r], r, 2, store);
        start(&guests[r]);
    }
    expect_joined(&guests[0]);
    expect_joined(&guests[1]);
    all_leave(&guests[0], 1); // waits a second, since rank 1 stays
    assert_false(
        cadre_member_listen(guests[1].member, cadre_deadline_in_ms(20), &v));
    all_leave(&guests[1], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meets_over_ipv4),
        cmocka_unit_test(meets_over_ipv6),
        cmocka_unit_test(meets_over_what_a_launcher_hands_out),
        cmocka_unit_test(tells_everyone_the_same_verdict),
        cmocka_unit_test(misses_a_rank_that_gives_no_sign_of_life),
        cmocka_unit_test(wakes_a_rank_that_listens),
        cmocka_unit_test(names_the_missing_rank),
        cmocka_unit_test(names_rank_0_if_that_is_missing),
        cmocka_unit_test(refuses_a_second_process_of_a_rank),
        cmocka_unit_test(is_not_there_for_one_who_comes_late),
        cmocka_unit_test(meets_with_a_secret),
        cmocka_unit_test(refuses_who_does_not_know_the_secret),
        cmocka_unit_test(says_what_is_wrong_with_a_secret),
        cmocka_unit_test(refuses_another_world_size),
        cmocka_unit_test(says_which_variable_names_a_busy_port),
        cmocka_unit_test(says_that_a_name_cannot_be_resolved),
        cmocka_unit_test(refuses_a_descriptor_that_is_no_socket),
        cmocka_unit_test(refuses_a_descriptor_that_is_taken),
        cmocka_unit_test(does_not_mistake_another_server_for_the_hub),
        cmocka_unit_test(judges_the_loss_of_the_hub),
        cmocka_unit_test(warns_once_where_nobody_has_to_prove),
        cmocka_unit_test(is_not_disturbed_by_strangers),
        cmocka_unit_test(lets_rank_0_leave_first),
    };
    return cmocka_run_group_tests(tests, write_secrets, remove_secrets);
}
