// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/hub.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

// The most that one tick may add to a rank's silence: if the hub itself was not
// scheduled for longer, the ranks' signs of life may lie unread.
enum { MOST_MS_PER_TICK = 2 * CADRE_HUB_TICK_MS };

typedef enum presence {
    ABSENT,
    PRESENT,
    LEFT, // said goodbye, or ended well
    LOST, // hung up
} presence;

typedef struct member {
    presence presence;
    int pid;
    char host[CADRE_HOST_BYTES];
    char address[CADRE_ADDRESS_BYTES];
    int timeout_ms;
    int64_t patient_until_ms;

    bool heard; // since the last tick
    int64_t silent_ms;

    bool suspected;
    int64_t suspected_until_ms; // then there is no more waiting for its ending
    bool needed;                // another rank waits for this one
    bool has_ended;
    cadre_ending ending;
} member;

typedef struct step {
    cadre_hub_action action;
    int rank;
} step;

struct cadre_hub {
    cadre_hub_options options;
    bool welcomed;
    int n_joined;
    int64_t last_tick_ms; // 0: none yet
    cadre_verdict verdict;
    char refusal[256]; // of the last who was sent away; or ""
    // Since when nobody came, if somebody was refused: who is missing may be
    // who was refused.  0: nobody was.
    int64_t doubted_ms;
    int witnessed;     // the rank whose loss was first reported; or -1
    char witness[256]; // who reported it, and what was seen

    cadre_link link;
    cadre_link_offer *offers; // of all ranks

    // Every rank is released once at most; one welcome, one verdict.
    step *steps;
    int n_steps;
    int next_step;

    member members[]; // world_size of them
};

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

static void push(cadre_hub *hub, cadre_hub_action action, int rank)
{
    CADRE_ASSERT(hub->n_steps < hub->options.world_size + 2);
    hub->steps[hub->n_steps++] = (step){action, rank};
}

cadre_hub_action cadre_hub_next(cadre_hub *hub, int *rank)
{
    if (hub->next_step == hub->n_steps) {
        return CADRE_HUB_NOTHING;
    }
    const step *s = &hub->steps[hub->next_step++];
    *rank = s->rank;
    return s->action;
}

enum { NAME_BYTES = 160 };

// "rank 3 (host a, pid 812)"
static void name_rank(const cadre_hub *hub, int rank, char text[NAME_BYTES])
{
    const member *m = &hub->members[rank];
    if (m->pid == 0) {
        snprintf(text, NAME_BYTES, "rank %d", rank);
    } else {
        snprintf(text, NAME_BYTES, "rank %d (host %s, pid %d)", rank, m->host,
            m->pid);
    }
}

static void name_signal(int number, char text[16])
{
    static const struct {
        int number;
        const char *name;
    } known[] = {{SIGHUP, "SIGHUP"}, {SIGINT, "SIGINT"}, {SIGQUIT, "SIGQUIT"},
        {SIGILL, "SIGILL"}, {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"},
        {SIGBUS, "SIGBUS"}, {SIGFPE, "SIGFPE"}, {SIGKILL, "SIGKILL"},
        {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
        {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},
        {SIGSYS, "SIGSYS"}, {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].number == number) {
            snprintf(text, 16, "%s", known[i].name);
            return;
        }
    }
    snprintf(text, 16, "signal %d", number);
}

static void pronounce(
    cadre_hub *hub, cadre_status status, int rank, const char *text)
{
    if (hub->verdict.status != CADRE_OK) {
        return; // the first cause stays
    }
    hub->verdict.status = status;
    hub->verdict.rank = rank;
    snprintf(hub->verdict.text, sizeof(hub->verdict.text), "%s", text);
    push(hub, CADRE_HUB_VERDICT, -1);
}

// Says how a rank was lost, as well as it is known.
static void pronounce_lost(cadre_hub *hub, int rank)
{
    const member *m = &hub->members[rank];
    char name[NAME_BYTES];
    char text[2 * (size_t)NAME_BYTES + sizeof(hub->witness)];
    name_rank(hub, rank, name);
    if (m->has_ended && m->ending.signal != 0) {
        char by[16];
        name_signal(m->ending.signal, by);
        snprintf(text, sizeof(text), "%s died: killed by %s", name, by);
    } else if (m->has_ended && m->ending.exit_status != 0) {
        snprintf(text, sizeof(text), "%s exited with status %d", name,
            m->ending.exit_status);
    } else if (m->has_ended || m->presence == LEFT) {
        snprintf(text, sizeof(text), "%s finished%s %s", name,
            m->has_ended ? " (exit status 0)" : "",
            hub->welcomed ? "while others still communicate with it"
                          : "without joining the others");
    } else {
        snprintf(text, sizeof(text), "connection to %s lost%s", name,
            hub->witnessed == rank ? hub->witness : "");
    }
    pronounce(hub, CADRE_ERR_PEER_LOST, rank, text);
}

// Somebody cannot reach rank.  Where a launcher will say how its process
// ended, that is worth a moment's wait.
static void suspect_rank(cadre_hub *hub, int rank, int64_t now_ms)
{
    member *m = &hub->members[rank];
    if (!hub->options.launched || m->has_ended) {
        pronounce_lost(hub, rank);
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
        if (hub->members[r].presence == ABSENT && hub->members[r].has_ended) {
            pronounce_lost(hub, r);
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
    char name_of_a[NAME_BYTES];
    char name_of_b[NAME_BYTES];
    char text[2 * (size_t)NAME_BYTES + 128];
    name_rank(hub, a, name_of_a);
    name_rank(hub, b, name_of_b);
    cadre_link wish_of_a = hub->offers[a].wish;
    cadre_link wish_of_b = hub->offers[b].wish;
    if (wish_of_a != CADRE_LINK_AUTO && wish_of_b != CADRE_LINK_AUTO &&
        wish_of_a != wish_of_b) {
        snprintf(text, sizeof(text),
            "ranks disagree: %s wants transport '%s', %s wants '%s'", name_of_a,
            cadre_link_name(wish_of_a), name_of_b, cadre_link_name(wish_of_b));
        pronounce(hub, CADRE_ERR_DESYNC, -1, text);
        return;
    }
    snprintf(text, sizeof(text),
        "transport 'shm' is wanted, but %s and %s do not run on one host as "
        "one user: choose 'tcp' or 'auto'",
        name_of_a, name_of_b);
    pronounce(hub, CADRE_ERR_UNSUPPORTED, -1, text);
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
    push(hub, CADRE_HUB_WELCOME, -1);
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
    member *m = &hub->members[join->rank];
    if (m->presence != ABSENT) {
        char name[NAME_BYTES];
        name_rank(hub, join->rank, name);
        (void)cadre_fail(CADRE_ERR_DESYNC,
            "host %s, pid %d wants to be rank %d, but there is %s already",
            join->host, join->pid, join->rank, name);
        return refuse(hub, now_ms);
    }

    m->presence = PRESENT;
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
    member *m = &hub->members[rank];
    m->pid = pid;
    snprintf(m->host, sizeof(m->host), "%s", host);
}

// A rank that took its leave and then says which signal stopped it was asked to
// end by somebody else than the launcher.
static bool ended_well(const member *m)
{
    const cadre_ending *e = &m->ending;
    bool stopped =
        e->exit_status == 128 + SIGINT || e->exit_status == 128 + SIGTERM;
    return e->asked ||
           (e->signal == 0 &&
               (e->exit_status == 0 || (stopped && m->presence == LEFT)));
}

bool cadre_hub_ended(cadre_hub *hub, int rank, const cadre_ending *ending)
{
    member *m = &hub->members[rank];
    m->has_ended = true;
    m->ending = *ending;
    bool well = ended_well(m);
    if (!well || m->needed) {
        pronounce_lost(hub, rank);
        return well;
    }
    m->suspected = false;
    if (m->presence != ABSENT) {
        m->presence = LEFT;
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
        pronounce(hub, status, -1, text);
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
    member *m = &hub->members[rank];
    if (m->presence != PRESENT) {
        return;
    }
    m->presence = LEFT;
    push(hub, CADRE_HUB_RELEASE, rank);
    if (m->needed || !hub->welcomed) {
        suspect_rank(hub, rank, now_ms);
    }
}

void cadre_hub_hangup(cadre_hub *hub, int rank, int64_t now_ms)
{
    member *m = &hub->members[rank];
    if (m->presence != PRESENT) {
        return;
    }
    m->presence = LOST;
    suspect_rank(hub, rank, now_ms);
}

// The one whose suspicion is the oldest of those that have waited enough.
static void judge_suspects(cadre_hub *hub, int64_t now_ms)
{
    int oldest = -1;
    for (int r = 0; r < hub->options.world_size; r++) {
        const member *m = &hub->members[r];
        if (m->suspected && m->suspected_until_ms <= now_ms &&
            (oldest < 0 || m->suspected_until_ms <
                               hub->members[oldest].suspected_until_ms)) {
            oldest = r;
        }
    }
    if (oldest >= 0) {
        pronounce_lost(hub, oldest);
    }
}

// How long rank may be silent.  Until it is told the job's limit, a rank keeps
// to its own.
static int timeout_ms(const cadre_hub *hub, int rank)
{
    return hub->welcomed && hub->options.timeout_ms > 0
               ? hub->options.timeout_ms
               : hub->members[rank].timeout_ms;
}

static void judge_silence(cadre_hub *hub, int64_t passed_ms)
{
    int quietest = -1;
    for (int r = 0; r < hub->options.world_size; r++) {
        member *m = &hub->members[r];
        m->silent_ms = m->heard ? 0 : m->silent_ms + passed_ms;
        m->heard = false;
        if (m->presence == PRESENT && m->silent_ms >= timeout_ms(hub, r) &&
            (quietest < 0 || m->silent_ms > hub->members[quietest].silent_ms)) {
            quietest = r;
        }
    }
    if (quietest >= 0) {
        char name[NAME_BYTES];
        char text[NAME_BYTES + 64];
        name_rank(hub, quietest, name);
        snprintf(text, sizeof(text), "%s gave no sign of life for %d ms", name,
            timeout_ms(hub, quietest));
        pronounce(hub, CADRE_ERR_PEER_LOST, quietest, text);
    }
}

// Lists ranks that have not come, with the number of those left out.  Returns
// the first.
static int list_missing(const cadre_hub *hub, char *text, size_t nbytes)
{
    enum { MOST_LISTED = 16 };
    size_t used = 0;
    int listed = 0;
    int first = -1;
    text[0] = '\0';
    for (int r = 0; r < hub->options.world_size; r++) {
        if (hub->members[r].presence != ABSENT || listed == MOST_LISTED) {
            continue;
        }
        int n = snprintf(
            text + used, nbytes - used, "%s%d", listed == 0 ? "" : ", ", r);
        used += (size_t)n;
        first = listed == 0 ? r : first;
        listed++;
    }
    int left_out = hub->options.world_size - hub->n_joined - listed;
    if (left_out > 0) {
        snprintf(text + used, nbytes - used, " and %d more", left_out);
    }
    return first;
}

// Until when m waits for the others.
static int64_t waits_until_ms(const cadre_hub *hub, const member *m)
{
    int64_t doubtful_ms = hub->doubted_ms + m->timeout_ms;
    return hub->doubted_ms > 0 && doubtful_ms < m->patient_until_ms
               ? doubtful_ms
               : m->patient_until_ms;
}

static void judge_patience(cadre_hub *hub, int64_t now_ms)
{
    for (int r = 0; !hub->welcomed && r < hub->options.world_size; r++) {
        const member *m = &hub->members[r];
        if (m->presence != PRESENT || now_ms < waits_until_ms(hub, m)) {
            continue;
        }
        char missing[160];
        char text[512];
        int first = list_missing(hub, missing, sizeof(missing));
        bool one = hub->n_joined + 1 == hub->options.world_size;
        snprintf(text, sizeof(text),
            "%s %s did not join in time: %d of %d ranks came%s%s",
            one ? "rank" : "ranks", missing, hub->n_joined,
            hub->options.world_size,
            hub->refusal[0] == '\0' ? "" : "; refused: ", hub->refusal);
        pronounce(hub, CADRE_ERR_TIMEOUT, first, text);
        return;
    }
}

void cadre_hub_tick(cadre_hub *hub, int64_t now_ms)
{
    int64_t passed = hub->last_tick_ms == 0 ? 0 : now_ms - hub->last_tick_ms;
    hub->last_tick_ms = now_ms;
    judge_suspects(hub, now_ms);
    judge_silence(hub, passed < MOST_MS_PER_TICK ? passed : MOST_MS_PER_TICK);
    judge_patience(hub, now_ms);
}

const cadre_verdict *cadre_hub_verdict(const cadre_hub *hub)
{
    return &hub->verdict;
}

bool cadre_hub_is_empty(const cadre_hub *hub)
{
    for (int r = 0; r < hub->options.world_size; r++) {
        if (hub->members[r].presence == PRESENT) {
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
