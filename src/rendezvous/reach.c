// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/reach.h"

#include "base/fail.h"
#include "base/number.h"
#include "base/peer.h"
#include "base/socket.h"
#include "rendezvous/applicant.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum {
    RETRY_MS = 50, // until a hub that is not there yet is tried again
    MOST_ADDRESSES = 8,
};

const char *cadre_hub_named_by(const cadre_place *place)
{
    return strcmp(place->source, "cadre run") == 0
               ? "CADRE_STORE"
               : "MASTER_ADDR and MASTER_PORT";
}

// The socket that the launcher passed on.
static cadre_status take_inherited(const cadre_place *place, int *socket)
{
    int64_t fd = -1;
    (void)cadre_parse_int(place->store + strlen("fd:"), 0, INT32_MAX, &fd);
    // What was inherited was not to be closed on exec; what is taken is, and
    // so is everything that this library opens.
    int flags = fcntl((int)fd, F_GETFD);
    bool is_socket = cadre_socket_adopt((int)fd);
    if (!is_socket || (flags & FD_CLOEXEC) != 0) {
        return cadre_fail(is_socket ? CADRE_ERR_STATE : CADRE_ERR_INVALID_ARG,
            "CADRE_STORE is '%s', but descriptor %d is not the launcher's "
            "socket: it was closed, or taken by an earlier cadre_init()",
            place->store, (int)fd);
    }
    uid_t user;
    // Root may do anything to this process as it is.
    if (!cadre_peer_user((int)fd, &user) || (user != geteuid() && user != 0)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "CADRE_STORE is '%s', but descriptor %d comes from a process of "
            "another user",
            place->store, (int)fd);
    }
    *socket = (int)fd;
    return CADRE_OK;
}

// One attempt at one address.  -1 with errno.
static int try_connect(const cadre_address *address, cadre_deadline deadline)
{
    int fd = cadre_socket_connect(address);
    if (fd < 0) {
        return -1;
    }
    enum { MOST_MS = 3000 }; // then the next address gets its turn
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int n = poll(&p, 1, cadre_deadline_left_ms(deadline, MOST_MS));
    int error = n > 0 ? cadre_socket_error(fd) : ETIMEDOUT;
    if (error != 0) {
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

// Rank 0 may come later than the others, so they try until the deadline.
static cadre_status connect_to_hub(
    const cadre_place *place, cadre_deadline deadline, int *socket)
{
    cadre_address addresses[MOST_ADDRESSES];
    const char *where = place->store + strlen("tcp:");
    int n;
    int error = 0;
    cadre_status status =
        cadre_address_resolve(where, addresses, MOST_ADDRESSES, &n);
    if (status != CADRE_OK) {
        return cadre_fail(status, "%s (given by %s)", cadre_error_text(),
            cadre_hub_named_by(place));
    }
    do {
        for (int i = 0; i < n; i++) {
            *socket = try_connect(&addresses[i], deadline);
            if (*socket >= 0) {
                return CADRE_OK;
            }
            error = errno;
        }
        int64_t pause = cadre_deadline_left_ms(deadline, RETRY_MS);
        cadre_sleep_ns(pause * 1000000);
    } while (cadre_now_ns() < deadline);
    return cadre_fail_errno(CADRE_ERR_TIMEOUT, error,
        "rank %d did not find rank 0 at %s (given by %s) in time", place->rank,
        where, cadre_hub_named_by(place));
}

// Who answers at the hub's address and this rank prove to each other.
static cadre_status prove(const cadre_place *place,
    const cadre_credentials *credentials, cadre_deadline deadline, int socket,
    uint64_t *generation)
{
    cadre_applicant a;
    cadre_hello hello = {.from = place->rank, .to = CADRE_HUB};
    CADRE_TRY(cadre_applicant_begin(&a, credentials, &hello, socket));
    for (;;) {
        CADRE_TRY(cadre_applicant_go_on(&a));
        if (a.admitted) {
            *generation = a.generation;
            return CADRE_OK;
        }
        if (cadre_now_ns() >= deadline) {
            return cadre_fail(CADRE_ERR_TIMEOUT, "it does not answer in time");
        }
        struct pollfd p = {.fd = socket, .events = POLLIN};
        (void)poll(&p, 1, cadre_deadline_left_ms(deadline, INT32_MAX));
    }
}

cadre_status cadre_reach_hub(const cadre_place *place,
    const cadre_credentials *credentials, cadre_deadline deadline, int *socket,
    uint64_t *generation)
{
    *generation = 0;
    if (strncmp(place->store, "fd:", 3) == 0) {
        return take_inherited(place, socket);
    }
    int fd = -1;
    CADRE_TRY(connect_to_hub(place, deadline, &fd));
    cadre_status status = prove(place, credentials, deadline, fd, generation);
    if (status != CADRE_OK) {
        close(fd);
        return cadre_fail(status,
            "rank %d found somebody at %s (given by %s), but %s", place->rank,
            place->store + strlen("tcp:"), cadre_hub_named_by(place),
            cadre_error_text());
    }
    *socket = fd;
    return CADRE_OK;
}
