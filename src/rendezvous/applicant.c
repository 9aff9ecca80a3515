// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/applicant.h"

#include "base/fail.h"
#include "base/peer.h"
#include "base/socket.h"
#include <errno.h>

// A fresh socket has room for so little, if it works at all.
static cadre_status say(
    const cadre_applicant *a, const uint8_t *data, size_t nbytes)
{
    ssize_t n;
    do {
        n = cadre_socket_send(a->socket, data, nbytes, -1);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)nbytes) {
        return cadre_fail_errno(
            CADRE_ERR_PEER_LOST, n < 0 ? errno : EIO, "the connection broke");
    }
    return CADRE_OK;
}

cadre_status cadre_applicant_begin(cadre_applicant *a,
    const cadre_credentials *credentials, const cadre_hello *hello, int socket)
{
    if (credentials->proof == CADRE_PROOF_USER &&
        !cadre_peer_is_local(socket)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "it is on another host, and this job has no secret: give every "
            "rank the same CADRE_SECRET_FILE, or set CADRE_AUTH=none where "
            "the network keeps strangers away");
    }
    cadre_hello said = *hello;
    said.proof = credentials->proof;
    *a = (cadre_applicant){.credentials = credentials, .socket = socket};
    CADRE_TRY(cadre_proof_greet(&said, a->hello));
    return say(a, a->hello, sizeof(a->hello));
}

// The other side refuses without a word, so the likely reasons are named here.
static cadre_status closed(const cadre_applicant *a)
{
    if (a->heard > 0) {
        return cadre_fail(CADRE_ERR_PEER_LOST,
            "it closed the connection while it proved itself");
    }
    switch (a->credentials->proof) {
    case CADRE_PROOF_SECRET:
        return cadre_fail(CADRE_ERR_PEER_LOST,
            "it closed the connection: has it got no secret, or another job?");
    case CADRE_PROOF_NONE:
        return cadre_fail(CADRE_ERR_PEER_LOST,
            "it closed the connection: is CADRE_AUTH=none not set there?");
    case CADRE_PROOF_USER:
        break;
    }
    return cadre_fail(CADRE_ERR_PEER_LOST,
        "it closed the connection: has it got a secret (CADRE_SECRET_FILE) or "
        "CADRE_AUTH=none, and this rank has not?");
}

static cadre_status take_reply(cadre_applicant *a)
{
    uint8_t mac[CADRE_MAC_BYTES];
    if (!cadre_proof_check_reply(
            a->credentials, a->hello, a->reply, &a->generation)) {
        return cadre_fail(CADRE_ERR_DESYNC,
            "it does not know this job's secret: is its CADRE_SECRET_FILE "
            "another?");
    }
    if (!cadre_proof_check_peer(a->credentials, a->socket)) {
        return cadre_fail(CADRE_ERR_DESYNC,
            "it is not known to be a process of this user: start all ranks as "
            "one user, or give every rank the same CADRE_SECRET_FILE");
    }
    CADRE_TRY(cadre_proof_finish(a->credentials, a->hello, a->reply, mac));
    CADRE_TRY(say(a, mac, sizeof(mac)));
    a->admitted = true;
    return CADRE_OK;
}

cadre_status cadre_applicant_go_on(cadre_applicant *a)
{
    while (a->heard < sizeof(a->reply)) {
        ssize_t n = recv(
            a->socket, a->reply + a->heard, sizeof(a->reply) - a->heard, 0);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return CADRE_OK;
        }
        if (n <= 0) {
            return closed(a);
        }
        a->heard += (size_t)n;
        if (!cadre_reply_begins(a->reply, a->heard)) {
            return cadre_fail(CADRE_ERR_DESYNC,
                "its answer does not come from a hub of this version");
        }
    }
    return a->admitted ? CADRE_OK : take_reply(a);
}
