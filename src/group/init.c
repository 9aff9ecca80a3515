// SPDX-License-Identifier: Apache-2.0
//
// The world group: from what the launcher said to ranks that are connected.

#include "group/group.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "rendezvous/place.h"
#include <string.h>
#include <unistd.h>

enum {
    DEFAULT_TIMEOUT_MS = 30000,
    MOST_TIMEOUT_MS = 24 * 3600 * 1000,
    TIMEOUTS_TO_JOIN = 10,
};

static cadre_status check_transport(const char *name, cadre_link *wish)
{
    if (name == NULL || strcmp(name, "auto") == 0) {
        *wish = CADRE_LINK_AUTO;
        return CADRE_OK;
    }
    if (strcmp(name, "tcp") == 0) {
        *wish = CADRE_LINK_TCP;
        return CADRE_OK;
    }
    if (strcmp(name, "shm") == 0) {
        *wish = CADRE_LINK_SHM;
        return CADRE_OK;
    }
    if (strcmp(name, "inproc") == 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "transport 'inproc' connects ranks that are threads of one "
            "process, which cadre_launch_threads() starts; these ranks are "
            "processes");
    }
    return cadre_fail(CADRE_ERR_UNSUPPORTED,
        "transport '%s' is not there: 'shm', 'tcp' and 'auto' are", name);
}

static cadre_status check_options(const cadre_init_options *options,
    cadre_link *wish, int *timeout_ms, cadre_order *order)
{
    CADRE_TRY(check_transport(options->transport, wish));
    CADRE_TRY(cadre_order_from_name(options->order, order));
    if (options->timeout_ms < 0 || options->timeout_ms > MOST_TIMEOUT_MS) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "timeout_ms is %d, but it goes from 1 to %d", options->timeout_ms,
            MOST_TIMEOUT_MS);
    }
    *timeout_ms =
        options->timeout_ms == 0 ? DEFAULT_TIMEOUT_MS : options->timeout_ms;
    return CADRE_OK;
}

// Joins the others and puts transport and watch over the connections.
static cadre_status connect_world(const cadre_place *place, cadre_link link,
    int timeout_ms, int *sockets, cadre_transport **transport,
    cadre_watch **watch)
{
    cadre_deadline deadline =
        cadre_deadline_in_ms((int64_t)TIMEOUTS_TO_JOIN * timeout_ms);
    cadre_member *member;
    CADRE_TRY(cadre_member_join(
        place, timeout_ms, deadline, &link, sockets, &member));
    uint64_t generation = cadre_member_generation(member);
    cadre_status status = link == CADRE_LINK_SHM
                              ? cadre_shm_open(place->rank, place->world_size,
                                    generation, sockets, transport)
                              : cadre_tcp_open(place->rank, place->world_size,
                                    generation, sockets, transport);
    if (status != CADRE_OK) {
        status =
            cadre_fail(status, "rank %d: %s", place->rank, cadre_error_text());
        cadre_member_report(member, status, -1, cadre_error_text());
        cadre_member_leave(member);
        return status;
    }
    status = cadre_watch_start(member, *transport, watch);
    if (status != CADRE_OK) {
        cadre_transport_close(*transport);
    }
    return status;
}

static cadre_status create_world(const cadre_place *place, cadre_link wish,
    int timeout_ms, cadre_group **out)
{
    if (place->world_size == 1) {
        return cadre_group_create(0, 1, timeout_ms, NULL, NULL, out);
    }

    int *sockets =
        cadre_alloc_array((size_t)place->world_size, sizeof(sockets[0]));
    if (sockets == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_transport *transport;
    cadre_watch *watch;
    cadre_status status =
        connect_world(place, wish, timeout_ms, sockets, &transport, &watch);
    cadre_free(sockets);
    CADRE_TRY(status);
    return cadre_group_create(
        place->rank, place->world_size, timeout_ms, transport, watch, out);
}

cadre_status cadre_init(const cadre_init_options *options, cadre_group **out)
{
    static const cadre_init_options defaults;
    cadre_place place;
    cadre_link wish = CADRE_LINK_AUTO;
    int timeout_ms = 0;
    cadre_order order;
    cadre_group *world;
    if (out == NULL) {
        return cadre_fail(CADRE_ERR_INVALID_ARG, "cadre_init: out is NULL");
    }
    CADRE_TRY(check_options(
        options == NULL ? &defaults : options, &wish, &timeout_ms, &order));
    CADRE_TRY(cadre_place_from_environment(&place));
    CADRE_TRY(create_world(&place, wish, timeout_ms, &world));
    cadre_group_set_order(world, order);
    *out = world;
    return CADRE_OK;
}

void cadre_finalize(cadre_group *world)
{
    cadre_group_release(world);
}
