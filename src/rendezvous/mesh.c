// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/mesh.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/socket.h"
#include "rendezvous/door.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { DOOR = CADRE_MAX_RANKS }; // among the numbers of ranks

typedef struct peer {
    int socket; // -1: none yet
    bool connected;
    char address[CADRE_ADDRESS_BYTES];
} peer;

struct cadre_mesh {
    int rank;
    int world_size;
    int epoll;
    cadre_door *door;
    int n_connected;
    uint8_t job_id[CADRE_JOB_ID_BYTES];
    peer peers[]; // world_size of them
};

static bool watch(cadre_mesh *mesh, int fd, uint32_t events, int number)
{
    struct epoll_event event = {.events = events, .data.u32 = (uint32_t)number};
    return epoll_ctl(mesh->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static cadre_status open_door(
    cadre_mesh *mesh, int hub_socket, char address[CADRE_ADDRESS_BYTES])
{
    cadre_address own;
    int listener;
    char name[32];
    mesh->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (mesh->epoll < 0) {
        return cadre_fail_errno(CADRE_ERR_IO, errno, "no descriptor is left");
    }
    snprintf(name, sizeof(name), "rank %d", mesh->rank);
    CADRE_TRY(cadre_socket_own_address(hub_socket, &own));
    CADRE_TRY(cadre_socket_listen(&own, &listener, address));
    CADRE_TRY(
        cadre_door_open(listener, CADRE_MESSAGE_HELLO, name, &mesh->door));
    if (!watch(mesh, cadre_door_fd(mesh->door), EPOLLIN, DOOR)) {
        return cadre_fail_errno(
            CADRE_ERR_IO, errno, "%s cannot watch its door", name);
    }
    return CADRE_OK;
}

cadre_status cadre_mesh_open(int hub_socket, int rank, int world_size,
    char address[CADRE_ADDRESS_BYTES], cadre_mesh **out)
{
    cadre_mesh *mesh = cadre_alloc_flex(
        sizeof(*mesh), (size_t)world_size, sizeof(mesh->peers[0]));
    if (mesh == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    mesh->rank = rank;
    mesh->world_size = world_size;
    for (int r = 0; r < world_size; r++) {
        mesh->peers[r].socket = -1;
    }
    cadre_status status = open_door(mesh, hub_socket, address);
    if (status != CADRE_OK) {
        cadre_mesh_close(mesh);
        return status;
    }
    *out = mesh;
    return CADRE_OK;
}

void cadre_mesh_close(cadre_mesh *mesh)
{
    if (mesh == NULL) {
        return;
    }
    for (int r = 0; r < mesh->world_size; r++) {
        if (mesh->peers[r].socket >= 0) {
            close(mesh->peers[r].socket);
        }
    }
    if (mesh->epoll >= 0) {
        close(mesh->epoll);
    }
    cadre_door_close(mesh->door);
    cadre_free(mesh);
}

static cadre_status unreachable(const cadre_mesh *mesh, int rank, int error)
{
    return cadre_fail_errno(CADRE_ERR_PEER_LOST, error,
        "rank %d cannot connect to rank %d at %s", mesh->rank, rank,
        mesh->peers[rank].address);
}

cadre_status cadre_mesh_connect(cadre_mesh *mesh,
    const uint8_t job_id[CADRE_JOB_ID_BYTES], int rank,
    const char address[CADRE_ADDRESS_BYTES])
{
    memcpy(mesh->job_id, job_id, sizeof(mesh->job_id));
    if (rank >= mesh->rank) {
        return CADRE_OK; // comes to us
    }
    peer *p = &mesh->peers[rank];
    cadre_address to;
    memcpy(p->address, address, sizeof(p->address));
    if (!cadre_address_parse(address, &to)) {
        return unreachable(mesh, rank, EADDRNOTAVAIL);
    }
    p->socket = cadre_socket_connect(&to);
    if (p->socket < 0 || !watch(mesh, p->socket, EPOLLOUT, rank)) {
        return unreachable(mesh, rank, errno);
    }
    return CADRE_OK;
}

static void settle(cadre_mesh *mesh, int rank)
{
    mesh->peers[rank].connected = true;
    mesh->n_connected++;
}

// The connection to a lower rank is decided: says hello.
static cadre_status greet(cadre_mesh *mesh, int rank)
{
    peer *p = &mesh->peers[rank];
    int error = cadre_socket_error(p->socket);
    if (error != 0) {
        return unreachable(mesh, rank, error);
    }
    uint8_t data[CADRE_HELLO_BYTES];
    cadre_writer w = {.data = data, .capacity = sizeof(data), .ok = true};
    cadre_hello hello = {.from = mesh->rank, .to = rank};
    memcpy(hello.job_id, mesh->job_id, sizeof(hello.job_id));
    cadre_encode_hello(&w, &hello);
    ssize_t n = cadre_socket_send(p->socket, w.data, w.used, -1);
    if (n != (ssize_t)w.used) {
        // A fresh socket has room for so little, if it works at all.
        return unreachable(mesh, rank, n < 0 ? errno : EIO);
    }
    epoll_ctl(mesh->epoll, EPOLL_CTL_DEL, p->socket, NULL);
    settle(mesh, rank);
    return CADRE_OK;
}

static void receive_visitors(cadre_mesh *mesh)
{
    int socket;
    cadre_message m;
    while (cadre_door_next(mesh->door, &socket, &m)) {
        cadre_hello hello;
        if (!cadre_decode_hello(&m, &hello) || hello.to != mesh->rank ||
            memcmp(hello.job_id, mesh->job_id, sizeof(hello.job_id)) != 0 ||
            hello.from <= mesh->rank || hello.from >= mesh->world_size) {
            cadre_door_turn_away(
                mesh->door, socket, "it belongs to another job");
        } else if (mesh->peers[hello.from].connected) {
            cadre_door_turn_away(
                mesh->door, socket, "that rank is connected already");
        } else {
            mesh->peers[hello.from].socket = socket;
            settle(mesh, hello.from);
        }
    }
}

cadre_status cadre_mesh_run(cadre_mesh *mesh, int *failed_peer)
{
    struct epoll_event event;
    receive_visitors(mesh);
    while (epoll_wait(mesh->epoll, &event, 1, 0) == 1) {
        if (event.data.u32 == DOOR) {
            receive_visitors(mesh);
            continue;
        }
        cadre_status status = greet(mesh, (int)event.data.u32);
        if (status != CADRE_OK) {
            *failed_peer = (int)event.data.u32;
            return status;
        }
    }
    return CADRE_OK;
}

int cadre_mesh_fd(const cadre_mesh *mesh)
{
    return mesh->epoll;
}

bool cadre_mesh_is_complete(const cadre_mesh *mesh)
{
    return mesh->n_connected == mesh->world_size - 1;
}

void cadre_mesh_take_sockets(cadre_mesh *mesh, int *sockets)
{
    for (int r = 0; r < mesh->world_size; r++) {
        sockets[r] = mesh->peers[r].socket;
        mesh->peers[r].socket = -1;
    }
}
