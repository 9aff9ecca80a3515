// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/place.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/number.h"
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIGHEST_PORT = 65535, HIGHEST_DESCRIPTOR = 1 << 20 };

// Two families of variables say the same things.
typedef struct family {
    const char *source;
    const char *rank;
    const char *world_size;
    const char *local_rank;
    const char *local_world_size;
} family;

static const family ours = {"cadre run", "CADRE_RANK", "CADRE_WORLD_SIZE",
    "CADRE_LOCAL_RANK", "CADRE_LOCAL_WORLD_SIZE"};
static const family theirs = {"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE",
    "LOCAL_RANK", "LOCAL_WORLD_SIZE"};

// Only digits: a sign has no place in what launchers say.
static bool parse_digits(
    const char *text, int lowest, int highest, int64_t *value)
{
    return isdigit((unsigned char)*text) &&
           cadre_parse_int(text, lowest, highest, value);
}

static cadre_status read_number(
    const char *name, int lowest, int highest, int *value)
{
    const char *text = getenv(name);
    int64_t n;
    CADRE_ASSERT(text != NULL);
    if (!parse_digits(text, lowest, highest, &n)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "%s is '%s', but a whole number from %d to %d is needed", name,
            text, lowest, highest);
    }
    *value = (int)n;
    return CADRE_OK;
}

// A rank and a size of which neither makes sense without the other.
static cadre_status read_pair(
    const char *rank_name, const char *size_name, int *rank, int *world_size)
{
    bool has_rank = getenv(rank_name) != NULL;
    bool has_size = getenv(size_name) != NULL;
    if (has_rank) {
        CADRE_TRY(read_number(rank_name, 0, CADRE_MAX_RANKS - 1, rank));
    }
    if (has_size) {
        CADRE_TRY(read_number(size_name, 1, CADRE_MAX_RANKS, world_size));
    }
    if (has_rank != has_size) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "%s is set, but %s is not: set both or neither",
            has_rank ? rank_name : size_name, has_rank ? size_name : rank_name);
    }
    if (has_rank && *rank >= *world_size) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "%s is %d, but %s is %d: ranks go from 0 to %d", rank_name, *rank,
            size_name, *world_size, *world_size - 1);
    }
    return CADRE_OK;
}

// Which rank of how many.  A launcher that says nothing of hosts is taken to
// start one rank on each.
static cadre_status read_family(const family *f, cadre_place *p)
{
    p->source = f->source;
    p->local_rank = 0;
    p->local_world_size = 1;
    CADRE_TRY(read_pair(f->rank, f->world_size, &p->rank, &p->world_size));
    if (getenv(f->local_rank) != NULL && getenv(f->local_world_size) == NULL) {
        CADRE_TRY(
            read_number(f->local_rank, 0, p->world_size - 1, &p->local_rank));
        p->local_world_size = p->local_rank + 1;
        return CADRE_OK;
    }
    CADRE_TRY(read_pair(f->local_rank, f->local_world_size, &p->local_rank,
        &p->local_world_size));
    if (p->local_world_size > p->world_size) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "%s is %d, but %s is %d: a host has no more ranks than there are",
            f->local_world_size, p->local_world_size, f->world_size,
            p->world_size);
    }
    return CADRE_OK;
}

// A RANK left in the shell from another job is an error that would be hard to
// find, so contradictions are told.
static cadre_status compare(
    const char *our_name, int our_value, const char *their_name)
{
    const char *text = getenv(their_name);
    int64_t n;
    if (text == NULL ||
        (cadre_parse_int(text, INT32_MIN, INT32_MAX, &n) && n == our_value)) {
        return CADRE_OK;
    }
    return cadre_fail(CADRE_ERR_INVALID_ARG,
        "%s is %d, but %s is '%s': unset one of them", our_name, our_value,
        their_name, text);
}

// "fd:N" or "tcp:HOST:PORT".
static cadre_status check_store(const char *store)
{
    int64_t n;
    if (strncmp(store, "fd:", 3) == 0 &&
        parse_digits(store + 3, 0, HIGHEST_DESCRIPTOR, &n)) {
        return CADRE_OK;
    }
    const char *port = strrchr(store, ':');
    if (strncmp(store, "tcp:", 4) == 0 && port > store + 4 &&
        parse_digits(port + 1, 1, HIGHEST_PORT, &n) &&
        strlen(store) < CADRE_STORE_BYTES) {
        return CADRE_OK;
    }
    return cadre_fail(CADRE_ERR_INVALID_ARG,
        "CADRE_STORE is '%s', but fd:N or tcp:HOST:PORT is needed", store);
}

static cadre_status place_from_ours(cadre_place *p)
{
    CADRE_TRY(read_family(&ours, p));
    CADRE_TRY(compare(ours.rank, p->rank, theirs.rank));
    CADRE_TRY(compare(ours.world_size, p->world_size, theirs.world_size));
    if (p->world_size == 1) {
        return CADRE_OK;
    }
    const char *store = getenv("CADRE_STORE");
    if (store == NULL) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "%s is %d, but CADRE_STORE is not set: it says where the ranks "
            "meet",
            ours.world_size, p->world_size);
    }
    CADRE_TRY(check_store(store));
    snprintf(p->store, sizeof(p->store), "%s", store);
    p->hosts_hub = p->rank == 0 && store[0] == 't';
    return CADRE_OK;
}

static cadre_status place_from_theirs(cadre_place *p)
{
    CADRE_TRY(read_family(&theirs, p));
    if (p->world_size == 1) {
        return CADRE_OK;
    }
    const char *host = getenv("MASTER_ADDR");
    if (host == NULL || *host == '\0' || getenv("MASTER_PORT") == NULL) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "WORLD_SIZE is %d, but %s is not set: it says where rank 0 listens",
            p->world_size,
            host == NULL || *host == '\0' ? "MASTER_ADDR" : "MASTER_PORT");
    }
    int port;
    CADRE_TRY(read_number("MASTER_PORT", 1, HIGHEST_PORT, &port));
    int n = snprintf(p->store, sizeof(p->store), "tcp:%s:%d", host, port);
    if (n >= (int)sizeof(p->store)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "MASTER_ADDR is longer than a host name can be");
    }
    p->hosts_hub = p->rank == 0;
    return CADRE_OK;
}

// What the rank is to prove with.
static cadre_status read_proof(cadre_place *p)
{
    if (getenv("CADRE_SECRET_FD") != NULL) {
        CADRE_TRY(read_number(
            "CADRE_SECRET_FD", 0, HIGHEST_DESCRIPTOR, &p->secret_fd));
        p->has_secret_fd = true;
    }
    p->secret_file = getenv("CADRE_SECRET_FILE");
    const char *auth = getenv("CADRE_AUTH");
    if (auth != NULL && strcmp(auth, "none") != 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "CADRE_AUTH is '%s', but it can only be 'none', or not set", auth);
    }
    p->believes_all = auth != NULL;
    return CADRE_OK;
}

cadre_status cadre_place_from_environment(cadre_place *out)
{
    cadre_place p = {.world_size = 1, .local_world_size = 1, .source = "alone"};
    if (getenv(ours.rank) != NULL || getenv(ours.world_size) != NULL ||
        getenv("CADRE_STORE") != NULL) {
        if (getenv(ours.rank) == NULL && getenv(ours.world_size) == NULL) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "CADRE_STORE is set, but %s and %s are not", ours.rank,
                ours.world_size);
        }
        CADRE_TRY(place_from_ours(&p));
    } else if (getenv(theirs.rank) != NULL ||
               getenv(theirs.world_size) != NULL) {
        CADRE_TRY(place_from_theirs(&p));
    }
    CADRE_TRY(read_proof(&p));
    *out = p;
    return CADRE_OK;
}
