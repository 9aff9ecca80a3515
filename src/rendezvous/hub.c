// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/hub_impl.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

cadre_status cadre_hub_create(const cadre_hub_options *options, cadre_hub **out)
{
    CADRE_ASSERT(options->world_size > 0);
    size_t n = (size_t)options->world_size;
    cadre_hub *hub = cadre_alloc_flex(sizeof(*hub), n, sizeof(hub->members[0]));
    if (hub == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    hub->steps = cadre_alloc_array(n + 2, sizeof(hub->steps[0]));
    hub->offers = cadre_alloc_array(n, sizeof(hub->offers[0]));
    if (hub->steps == NULL || hub->offers == NULL) {
        cadre_hub_destroy(hub);
        return CADRE_ERR_NO_MEMORY;
    }
    hub->options = *options;
    hub->verdict.rank = -1;
    hub->witnessed = -1;
    *out = hub;
    return CADRE_OK;
}

void cadre_hub_destroy(cadre_hub *hub)
{
    if (hub != NULL) {
        cadre_free(hub->offers);
        cadre_free(hub->steps);
        cadre_free(hub);
    }
}

void hub_push(cadre_hub *hub, cadre_hub_action action, int rank)
{
    CADRE_ASSERT(hub->n_steps < hub->options.world_size + 2);
    hub->steps[hub->n_steps++] = (hub_step){action, rank};
}

cadre_hub_action cadre_hub_next(cadre_hub *hub, int *rank)
{
    if (hub->next_step == hub->n_steps) {
        return CADRE_HUB_NOTHING;
    }
    const hub_step *s = &hub->steps[hub->next_step++];
    *rank = s->rank;
    return s->action;
}

// Somebody cannot reach rank.  Where a launcher will say how its process
// ended, that is worth a moment's wait.
static void suspect_rank(cadre_hub *hub, int rank, int64_t now_ms)
{
    hub_member *m = &hub->members[rank];
    if (!hub->options.launched || m->has_ended) {
        hub_pronounce_lost(hub, rank);
    } else if (!m->suspected) {
        m->suspected = true;
        m->suspected_until_ms = now_ms + CADRE_HUB_EXIT_NOTICE_MS;
    }
}

// While the ranks gather, one that has ended without joining will never come.
static void check_gathering(cadre_hub *hub)
{
    if (hub->welcomed || hub->n_joined == 0) {
        return;
    }
    for (int r = 0; r < hub->options.world_size; r++) {
        if (hub->members[r].presence == HUB_ABSENT &&
            hub->members[r].has_ended) {
            hub_pronounce_lost(hub, r);
            return;
        }
    }
}

static cadre_status refuse(cadre_hub *hub, int64_t now_ms)
{
    hub->doubted_ms = hub->doubted_ms == 0 ? now_ms : hub->doubted_ms;
    snprintf(hub->refusal, sizeof(hub->refusal), "%s", cadre_error_text());
    return CADRE_ERR_DESYNC;
}

// Says why nothing connects the ranks.
static void pronounce_apart(cadre_hub *hub, int a, int b)
{
    char name_of_a[HUB_NAME_BYTES];
    char name_of_b[HUB_NAME_BYTES];
    char text[2 * (size_t)HUB_NAME_BYTES + 128];
    hub_name_rank(hub, a, name_of_a);
    hub_name_rank(hub, b, name_of_b);
    cadre_link wish_of_a = hub->offers[a].wish;
    cadre_link wish_of_b = hub->offers[b].wish;
    if (wish_of_a != CADRE_LINK_AUTO && wish_of_b != CADRE_LINK_AUTO &&
        wish_of_a != wish_of_b) {
        snprintf(text, sizeof(text),
            "ranks disagree: %s wants transport '%s', %s wants '%s'", name_of_a,
            cadre_link_name(wish_of_a), name_of_b, cadre_link_name(wish_of_b));
        hub_pronounce(hub, CADRE_ERR_DESYNC, -1, text);
        return;
    }
    snprintf(text, sizeof(text),
        "transport 'shm' is wanted, but %s and %s do not run on one host as "
        "one user: choose 'tcp' or 'auto'",
        name_of_a, name_of_b);
    hub_pronounce(hub, CADRE_ERR_UNSUPPORTED, -1, text);
}

static void welcome(cadre_hub *hub)
{
    int a;
    int b;
    hub->link = cadre_link_choose(
        hub->offers, hub->options.world_size, hub->options.launched, &a, &b);
    if (hub->link == CADRE_LINK_AUTO) {
        pronounce_apart(hub, a, b);
        return;
    }
    hub->welcomed = true;
    hub_push(hub, CADRE_HUB_WELCOME, -1);
    for (int r = 0; r < hub->options.world_size; r++) {
        hub->members[r].heard = true; // other limits may hold from now on
    }
}

cadre_status cadre_hub_join_rank(
    cadre_hub *hub, const cadre_hub_join *join, int64_t now_ms)
{
    if (hub->verdict.status != CADRE_OK) {
        return cadre_fail(hub->verdict.status, "%s", hub->verdict.text);
    }
    int n = hub->options.world_size;
    if (join->world_size != n || join->rank < 0 || join->rank >= n) {
        (void)cadre_fail(CADRE_ERR_DESYNC,
            "rank %d of %d (host %s, pid %d) does not belong to this job of %d "
            "ranks",
            join->rank, join->world_size, join->host, join->pid, n);
        return refuse(hub, now_ms);
    }
    hub_member *m = &hub->members[join->rank];
    if (m->presence != HUB_ABSENT) {
        char name[HUB_NAME_BYTES];
        hub_name_rank(hub, join->rank, name);
        (void)cadre_fail(CADRE_ERR_DESYNC,
            "host %s, pid %d wants to be rank %d, but there is %s already",
            join->host, join->pid, join->rank, name);
        return refuse(hub, now_ms);
    }

    m->presence = HUB_PRESENT;
    if (m->pid == 0) {
        m->pid = join->pid;
        memcpy(m->host, join->host, sizeof(m->host));
    }
    memcpy(m->address, join->address, sizeof(m->address));
    hub->offers[join->rank] = join->offer;
    m->timeout_ms = join->timeout_ms;
    m->patient_until_ms = now_ms + join->patience_ms;
    m->heard = true;
    hub->n_joined++;
    hub->doubted_ms = hub->doubted_ms == 0 ? 0 : now_ms;
    if (hub->n_joined == n) {
        welcome(hub);
    }
    check_gathering(hub);
    return CADRE_OK;
}

void cadre_hub_started(cadre_hub *hub, int rank, const char *host, int pid)
{
    hub_member *m = &hub->members[rank];
    m->pid = pid;
    snprintf(m->host, sizeof(m->host), "%s", host);
}

// A rank that took its leave and then says which signal stopped it was asked to
// end by somebody else than the launcher.
static bool ended_well(const hub_member *m)
{
    const cadre_ending *e = &m->ending;
    bool stopped =
        e->exit_status == 128 + SIGINT || e->exit_status == 128 + SIGTERM;
    return e->asked ||
           (e->signal == 0 &&
               (e->exit_status == 0 || (stopped && m->presence == HUB_LEFT)));
}

bool cadre_hub_ended(cadre_hub *hub, int rank, const cadre_ending *ending)
{
    hub_member *m = &hub->members[rank];
    m->has_ended = true;
    m->ending = *ending;
    bool well = ended_well(m);
    if (!well || m->needed) {
        hub_pronounce_lost(hub, rank);
        return well;
    }
    m->suspected = false;
    if (m->presence != HUB_ABSENT) {
        m->presence = HUB_LEFT;
    }
    check_gathering(hub);
    return true;
}

void cadre_hub_alive(cadre_hub *hub, int rank)
{
    hub->members[rank].heard = true;
}

void cadre_hub_report(cadre_hub *hub, int rank, cadre_status status,
    int suspect, const char *text, int64_t now_ms)
{
    hub->members[rank].heard = true;
    if (suspect < 0 || suspect >= hub->options.world_size || suspect == rank) {
        hub_pronounce(hub, status, -1, text);
        return;
    }
    hub->members[suspect].needed = true;
    if (hub->witnessed < 0) {
        hub->witnessed = suspect;
        snprintf(hub->witness, sizeof(hub->witness), " (rank %d: %.200s)", rank,
            text);
    }
    suspect_rank(hub, suspect, now_ms);
}

void cadre_hub_goodbye(cadre_hub *hub, int rank, int64_t now_ms)
{
    hub_member *m = &hub->members[rank];
    if (m->presence != HUB_PRESENT) {
        return;
    }
    m->presence = HUB_LEFT;
    hub_push(hub, CADRE_HUB_RELEASE, rank);
    if (m->needed || !hub->welcomed) {
        suspect_rank(hub, rank, now_ms);
    }
}

void cadre_hub_hangup(cadre_hub *hub, int rank, int64_t now_ms)
{
    hub_member *m = &hub->members[rank];
    if (m->presence != HUB_PRESENT) {
        return;
    }
    m->presence = HUB_LOST;
    suspect_rank(hub, rank, now_ms);
}

const cadre_verdict *cadre_hub_verdict(const cadre_hub *hub)
{
    return &hub->verdict;
}

bool cadre_hub_is_empty(const cadre_hub *hub)
{
    for (int r = 0; r < hub->options.world_size; r++) {
        if (hub->members[r].presence == HUB_PRESENT) {
            return false;
        }
    }
    return true;
}

const char *cadre_hub_address(const cadre_hub *hub, int rank)
{
    return hub->link == CADRE_LINK_SHM ? hub->offers[rank].local
                                       : hub->members[rank].address;
}

cadre_link cadre_hub_link(const cadre_hub *hub)
{
    return hub->link;
}

int cadre_hub_job_timeout_ms(const cadre_hub *hub)
{
    return hub->options.timeout_ms;
}
