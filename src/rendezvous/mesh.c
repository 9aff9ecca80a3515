// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/mesh.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/socket.h"
#include "rendezvous/applicant.h"
#include "rendezvous/door.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { DOOR = CADRE_MAX_RANKS }; // among the numbers of ranks

typedef struct peer {
    int socket; // -1: none yet
    bool greeted;
    bool connected; // and proved
    char address[CADRE_ADDRESS_BYTES];
    cadre_applicant applicant; // of a rank below, once greeted
} peer;

struct cadre_mesh {
    int rank;
    int world_size;
    int epoll;
    // What listens, -1: the door has it, or nobody.
    int listener;
    int local_listener;
    char address[CADRE_ADDRESS_BYTES];
    char local_address[CADRE_ADDRESS_BYTES];
    cadre_door *door; // NULL: not begun
    cadre_door_rules rules;
    int n_connected;
    peer peers[]; // world_size of them
};

static bool watch(cadre_mesh *mesh, int fd, uint32_t events, int number)
{
    struct epoll_event event = {.events = events, .data.u32 = (uint32_t)number};
    return epoll_ctl(mesh->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static cadre_status listen_for_peers(cadre_mesh *mesh, int hub_socket)
{
    cadre_address own;
    cadre_address unnamed;
    mesh->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (mesh->epoll < 0) {
        return cadre_fail_errno(CADRE_ERR_IO, errno, "no descriptor is left");
    }
    CADRE_TRY(cadre_socket_own_address(hub_socket, &own));
    // Without it the ranks share no memory, and are connected all the same.
    cadre_address_unnamed(&unnamed);
    if (cadre_socket_listen(
            &unnamed, &mesh->local_listener, mesh->local_address) != CADRE_OK) {
        mesh->local_address[0] = '\0';
    }
    return cadre_socket_listen(&own, &mesh->listener, mesh->address);
}

cadre_status cadre_mesh_open(
    int hub_socket, int rank, int world_size, cadre_mesh **out)
{
    cadre_mesh *mesh = cadre_alloc_flex(
        sizeof(*mesh), (size_t)world_size, sizeof(mesh->peers[0]));
    if (mesh == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    mesh->rank = rank;
    mesh->world_size = world_size;
    mesh->listener = -1;
    mesh->local_listener = -1;
    for (int r = 0; r < world_size; r++) {
        mesh->peers[r].socket = -1;
    }
    cadre_status status = listen_for_peers(mesh, hub_socket);
    if (status != CADRE_OK) {
        cadre_mesh_close(mesh);
        return status;
    }
    *out = mesh;
    return CADRE_OK;
}

void cadre_mesh_addresses(const cadre_mesh *mesh,
    char address[CADRE_ADDRESS_BYTES], char local[CADRE_ADDRESS_BYTES])
{
    memcpy(address, mesh->address, sizeof(mesh->address));
    memcpy(local, mesh->local_address, sizeof(mesh->local_address));
}

static void stop_listening(int *listener)
{
    if (*listener >= 0) {
        close(*listener);
        *listener = -1;
    }
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
    stop_listening(&mesh->listener);
    stop_listening(&mesh->local_listener);
    cadre_door_close(mesh->door);
    cadre_free(mesh);
}

cadre_status cadre_mesh_begin(cadre_mesh *mesh,
    const cadre_credentials *credentials,
    const uint8_t job_id[CADRE_JOB_ID_BYTES], uint64_t generation, bool local)
{
    char name[32];
    snprintf(name, sizeof(name), "rank %d", mesh->rank);
    mesh->rules = (cadre_door_rules){
        .credentials = credentials, .to = mesh->rank, .generation = generation};
    memcpy(mesh->rules.job_id, job_id, sizeof(mesh->rules.job_id));
    int *chosen = local ? &mesh->local_listener : &mesh->listener;
    int listener = *chosen;
    *chosen = -1;
    stop_listening(&mesh->listener);
    stop_listening(&mesh->local_listener);
    if (listener < 0) {
        return cadre_fail(
            CADRE_ERR_IO, "%s has no socket that peers can come to", name);
    }
    CADRE_TRY(cadre_door_open(listener, &mesh->rules, name, &mesh->door));
    if (!watch(mesh, cadre_door_fd(mesh->door), EPOLLIN, DOOR)) {
        return cadre_fail_errno(
            CADRE_ERR_IO, errno, "%s cannot watch its door", name);
    }
    return CADRE_OK;
}

// Says why rank is not reached, as the text has it.
static cadre_status unreachable(const cadre_mesh *mesh, int rank)
{
    return cadre_fail(CADRE_ERR_PEER_LOST,
        "rank %d cannot connect to rank %d at %s: %s", mesh->rank, rank,
        mesh->peers[rank].address, cadre_error_text());
}

static cadre_status unreachable_errno(
    const cadre_mesh *mesh, int rank, int error)
{
    return cadre_fail_errno(CADRE_ERR_PEER_LOST, error,
        "rank %d cannot connect to rank %d at %s", mesh->rank, rank,
        mesh->peers[rank].address);
}

cadre_status cadre_mesh_connect(
    cadre_mesh *mesh, int rank, const char address[CADRE_ADDRESS_BYTES])
{
    if (rank >= mesh->rank) {
        return CADRE_OK; // comes to us
    }
    peer *p = &mesh->peers[rank];
    cadre_address to;
    memcpy(p->address, address, sizeof(p->address));
    if (!cadre_address_parse(address, &to)) {
        return unreachable_errno(mesh, rank, EADDRNOTAVAIL);
    }
    p->socket = cadre_socket_connect(&to);
    if (p->socket < 0 || !watch(mesh, p->socket, EPOLLOUT, rank)) {
        return unreachable_errno(mesh, rank, errno);
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
        return unreachable_errno(mesh, rank, error);
    }
    cadre_hello hello = {
        .from = mesh->rank, .to = rank, .generation = mesh->rules.generation};
    memcpy(hello.job_id, mesh->rules.job_id, sizeof(hello.job_id));
    if (cadre_applicant_begin(&p->applicant, mesh->rules.credentials, &hello,
            p->socket) != CADRE_OK) {
        return unreachable(mesh, rank);
    }
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)rank};
    epoll_ctl(mesh->epoll, EPOLL_CTL_MOD, p->socket, &event);
    p->greeted = true;
    return CADRE_OK;
}

// A lower rank has something to say.
static cadre_status hear(cadre_mesh *mesh, int rank)
{
    peer *p = &mesh->peers[rank];
    if (cadre_applicant_go_on(&p->applicant) != CADRE_OK) {
        return unreachable(mesh, rank);
    }
    if (!p->applicant.admitted) {
        return CADRE_OK;
    }
    epoll_ctl(mesh->epoll, EPOLL_CTL_DEL, p->socket, NULL);
    settle(mesh, rank);
    return CADRE_OK;
}

static void receive_visitors(cadre_mesh *mesh)
{
    cadre_visitor v;
    while (cadre_door_next(mesh->door, &v)) {
        if (v.from <= mesh->rank || v.from >= mesh->world_size) {
            cadre_door_turn_away(
                mesh->door, v.socket, "that rank does not come here");
        } else if (mesh->peers[v.from].connected) {
            cadre_door_turn_away(
                mesh->door, v.socket, "that rank is connected already");
        } else {
            mesh->peers[v.from].socket = v.socket;
            settle(mesh, v.from);
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
        int rank = (int)event.data.u32;
        cadre_status status =
            mesh->peers[rank].greeted ? hear(mesh, rank) : greet(mesh, rank);
        if (status != CADRE_OK) {
            *failed_peer = rank;
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
