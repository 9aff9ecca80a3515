// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/host.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/socket.h"
#include "base/thread.h"
#include "rendezvous/hub_loop.h"
#include "rendezvous/reach.h"
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MOST_ADDRESSES = 8 };

struct cadre_host {
    cadre_hub_loop *loop; // the thread's alone
    cadre_thread thread;
    int stop; // an eventfd: the thread may end ...
    // ... at this point, or before.  Its release, with the write to stop.
    _Atomic(cadre_deadline) deadline;
};

static cadre_status listen_at_store(const cadre_place *place, int *listener)
{
    cadre_address addresses[MOST_ADDRESSES];
    int n = 0;
    cadre_status status = cadre_address_resolve(
        place->store + strlen("tcp:"), addresses, MOST_ADDRESSES, &n);
    for (int i = 0; i < n; i++) {
        status = cadre_socket_listen(&addresses[i], listener, NULL);
        if (status == CADRE_OK) {
            return CADRE_OK;
        }
    }
    return cadre_fail(status, "%s (given by %s, where rank 0 listens)",
        cadre_error_text(), cadre_hub_named_by(place));
}

static void serve(void *ctx)
{
    cadre_host *host = ctx;
    bool stopping = false;
    for (;;) {
        struct pollfd fds[2] = {
            {.fd = cadre_hub_loop_fd(host->loop), .events = POLLIN},
            // Asked once: it stays readable.
            {.fd = stopping ? -1 : host->stop, .events = POLLIN}};
        (void)poll(fds, 2, CADRE_HUB_TICK_MS);
        stopping = stopping || fds[1].revents != 0;
        cadre_hub_loop_run(host->loop);
        if (stopping && (cadre_hub_loop_is_empty(host->loop) ||
                            cadre_now_ns() >= atomic_load(&host->deadline))) {
            return;
        }
    }
}

static void release(cadre_host *host)
{
    cadre_hub_loop_close(host->loop);
    if (host->stop >= 0) {
        close(host->stop);
    }
    cadre_free(host);
}

cadre_status cadre_host_start(const cadre_place *place,
    const cadre_credentials *credentials, cadre_host **out)
{
    int listener = -1;
    CADRE_TRY(listen_at_store(place, &listener));
    cadre_host *host = cadre_alloc(sizeof(*host));
    if (host == NULL) {
        close(listener);
        return CADRE_ERR_NO_MEMORY;
    }
    atomic_init(&host->deadline, CADRE_NO_DEADLINE);
    host->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    cadre_status status = CADRE_OK;
    if (host->stop < 0) {
        status = cadre_fail_errno(CADRE_ERR_IO, errno, "no eventfd is left");
        close(listener);
    } else {
        status = cadre_hub_loop_listen(
            place->world_size, listener, credentials, &host->loop);
    }
    if (status == CADRE_OK) {
        status = cadre_thread_start(&host->thread, "cadre/hub", serve, host);
    }
    if (status != CADRE_OK) {
        release(host);
        return status;
    }
    *out = host;
    return CADRE_OK;
}

void cadre_host_stop(cadre_host *host, cadre_deadline deadline)
{
    if (host == NULL) {
        return;
    }
    uint64_t one = 1;
    atomic_store(&host->deadline, deadline);
    (void)!write(host->stop, &one, sizeof(one));
    cadre_thread_join(&host->thread);
    release(host);
}
