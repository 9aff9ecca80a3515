// SPDX-License-Identifier: Apache-2.0

#include "support/ranks.h"

#include "support/check.h"

#include "base/alloc.h"
#include "base/thread.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

_Noreturn void rank_check_failed(
    const char *what, const char *why, const char *file, int line)
{
    fprintf(
        stderr, "%s:%d: a rank's check failed: %s %s\n", file, line, what, why);
    abort();
}

static void check_system(bool fine, const char *what)
{
    if (!fine) {
        perror(what);
        abort();
    }
}

static void make_loopback_pair(int pair[2])
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    socklen_t nbytes = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    check_system(listener >= 0 && pair[0] >= 0, "socket");
    check_system(
        bind(listener, (struct sockaddr *)&address, nbytes) == 0, "bind");
    check_system(listen(listener, 1) == 0, "listen");
    check_system(
        getsockname(listener, (struct sockaddr *)&address, &nbytes) == 0,
        "getsockname");
    check_system(
        connect(pair[0], (struct sockaddr *)&address, nbytes) == 0, "connect");
    pair[1] = accept(listener, NULL, NULL);
    check_system(pair[1] >= 0, "accept");
    close(listener);
}

void connect_all(rank_link link, int n, int *sockets)
{
    for (int a = 0; a < n; a++) {
        sockets[a * n + a] = -1;
        for (int b = 0; b < a; b++) {
            int pair[2];
            if (link == LINK_TCP || link == LINK_CHECKED) {
                make_loopback_pair(pair);
            } else {
                check_system(
                    socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "pair");
            }
            check_system(fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0, "fcntl");
            check_system(fcntl(pair[1], F_SETFL, O_NONBLOCK) == 0, "fcntl");
            sockets[a * n + b] = pair[0];
            sockets[b * n + a] = pair[1];
        }
    }
}

cadre_status open_link(rank_link link, int rank, int n, uint64_t generation,
    const int *sockets, cadre_transport **out)
{
    if (link == LINK_SHM) {
        return cadre_shm_open(rank, n, generation, sockets, out);
    }
    cadre_status status = cadre_tcp_open(rank, n, generation, sockets, out);
    if (status == CADRE_OK && link == LINK_CHECKED) {
        cadre_tcp_check_all(*out);
    }
    return status;
}

typedef struct ranks {
    rank_link link;
    int n;
    int timeout_ms;
    rank_body body;
    void *ctx;
    int *sockets;              // or NULL
    cadre_inproc_world *world; // or NULL
    cadre_shared_verdict *verdict;
} ranks;

typedef struct one_rank {
    const ranks *all;
    int rank;
    cadre_thread thread;
} one_rank;

static void be_rank(void *ctx)
{
    const one_rank *me = ctx;
    const ranks *all = me->all;
    cadre_transport *transport = NULL;
    cadre_watch *watch = NULL;
    cadre_group *group = NULL;
    if (all->n > 1) {
        if (all->world != NULL) {
            RANK_OK(cadre_inproc_open(all->world, me->rank, &transport));
        } else {
            RANK_OK(open_link(all->link, me->rank, all->n, 1,
                &all->sockets[me->rank * all->n], &transport));
        }
        RANK_OK(cadre_watch_start_shared(
            all->verdict, me->rank, transport, &watch));
    }
    RANK_OK(cadre_group_create(
        me->rank, all->n, all->timeout_ms, transport, watch, &group));
    all->body(group, all->ctx);
    cadre_group_release(group);
}

static void make_links(ranks *all)
{
    size_t n = (size_t)all->n;
    CHECK_OK(cadre_shared_verdict_create(all->n, &all->verdict));
    if (all->link == LINK_INPROC) {
        CHECK_OK(cadre_inproc_world_create(all->n, &all->world));
    } else {
        all->sockets = cadre_alloc_array(n * n, sizeof(*all->sockets));
        connect_all(all->link, all->n, all->sockets);
    }
}

static void free_links(ranks *all)
{
    cadre_free(all->sockets);
    cadre_inproc_world_destroy(all->world);
    cadre_shared_verdict_destroy(all->verdict);
}

void run_as_threads(
    rank_link link, int n, int timeout_ms, rank_body body, void *ctx)
{
    ranks all = {.link = link,
        .n = n,
        .timeout_ms = timeout_ms,
        .body = body,
        .ctx = ctx};
    make_links(&all);
    one_rank *each = cadre_alloc_array((size_t)n, sizeof(*each));
    assert_non_null(each);
    for (int i = 0; i < n; i++) {
        each[i].all = &all;
        each[i].rank = i;
        CHECK_OK(
            cadre_thread_start(&each[i].thread, "rank", be_rank, &each[i]));
    }
    for (int i = 0; i < n; i++) {
        cadre_thread_join(&each[i].thread);
    }
    cadre_free(each);
    free_links(&all);
}

static void be_process(const ranks *all, int rank)
{
    enum { LIMIT_S = 60 };
    alarm(LIMIT_S);
    for (int i = 0; i < all->n * all->n; i++) {
        if (i / all->n != rank && all->sockets[i] >= 0) {
            close(all->sockets[i]);
        }
    }
    one_rank me = {.all = all, .rank = rank};
    be_rank(&me);
    _exit(0);
}

void run_as_processes(
    rank_link link, int n, int timeout_ms, rank_body body, void *ctx)
{
    ranks all = {.link = link,
        .n = n,
        .timeout_ms = timeout_ms,
        .body = body,
        .ctx = ctx};
    make_links(&all);
    pid_t *pids = cadre_alloc_array((size_t)n, sizeof(*pids));
    assert_non_null(pids);
    fflush(NULL); // else children print what is buffered once more
    for (int i = 0; i < n; i++) {
        pids[i] = fork();
        check_system(pids[i] >= 0, "fork");
        if (pids[i] == 0) {
            be_process(&all, i);
        }
    }
    for (int i = 0; i < n * n; i++) {
        if (all.sockets[i] >= 0) {
            close(all.sockets[i]);
        }
    }
    int n_failed = 0;
    for (int i = 0; i < n; i++) {
        int status = 0;
        check_system(waitpid(pids[i], &status, 0) == pids[i], "waitpid");
        if (status != 0) {
            print_error(
                "rank %d ended with wait status %#x\n", i, (unsigned)status);
            n_failed++;
        }
    }
    cadre_free(pids);
    free_links(&all);
    assert_int_equal(n_failed, 0);
}
