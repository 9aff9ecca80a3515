// SPDX-License-Identifier: Apache-2.0

#include "rendezvous/hub_impl.h"

#include <signal.h>
#include <stdio.h>

// The most that one tick may add to a rank's silence: if the hub itself was not
// scheduled for longer, the ranks' signs of life may lie unread.
enum { MOST_MS_PER_TICK = 2 * CADRE_HUB_TICK_MS };

void hub_name_rank(const cadre_hub *hub, int rank, char text[HUB_NAME_BYTES])
{
    const hub_member *m = &hub->members[rank];
    if (m->pid == 0) {
        snprintf(text, HUB_NAME_BYTES, "rank %d", rank);
    } else {
        snprintf(text, HUB_NAME_BYTES, "rank %d (host %s, pid %d)", rank,
            m->host, m->pid);
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

void hub_pronounce(
    cadre_hub *hub, cadre_status status, int rank, const char *text)
{
    if (hub->verdict.status != CADRE_OK) {
        return; // the first cause stays
    }
    hub->verdict.status = status;
    hub->verdict.rank = rank;
    snprintf(hub->verdict.text, sizeof(hub->verdict.text), "%s", text);
    hub_push(hub, CADRE_HUB_VERDICT, -1);
}

void hub_pronounce_lost(cadre_hub *hub, int rank)
{
    const hub_member *m = &hub->members[rank];
    char name[HUB_NAME_BYTES];
    char text[2 * (size_t)HUB_NAME_BYTES + sizeof(hub->witness)];
    hub_name_rank(hub, rank, name);
    if (m->has_ended && m->ending.signal != 0) {
        char by[16];
        name_signal(m->ending.signal, by);
        snprintf(text, sizeof(text), "%s died: killed by %s", name, by);
    } else if (m->has_ended && m->ending.exit_status != 0) {
        snprintf(text, sizeof(text), "%s exited with status %d", name,
            m->ending.exit_status);
    } else if (m->has_ended || m->presence == HUB_LEFT) {
        snprintf(text, sizeof(text), "%s finished%s %s", name,
            m->has_ended ? " (exit status 0)" : "",
            hub->welcomed ? "while others still communicate with it"
                          : "without joining the others");
    } else {
        snprintf(text, sizeof(text), "connection to %s lost%s", name,
            hub->witnessed == rank ? hub->witness : "");
    }
    hub_pronounce(hub, CADRE_ERR_PEER_LOST, rank, text);
}

// The one whose suspicion is the oldest of those that have waited enough.
static void judge_suspects(cadre_hub *hub, int64_t now_ms)
{
    int oldest = -1;
    for (int r = 0; r < hub->options.world_size; r++) {
        const hub_member *m = &hub->members[r];
        if (m->suspected && m->suspected_until_ms <= now_ms &&
            (oldest < 0 || m->suspected_until_ms <
                               hub->members[oldest].suspected_until_ms)) {
            oldest = r;
        }
    }
    if (oldest >= 0) {
        hub_pronounce_lost(hub, oldest);
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
        hub_member *m = &hub->members[r];
        m->silent_ms = m->heard ? 0 : m->silent_ms + passed_ms;
        m->heard = false;
        if (m->presence == HUB_PRESENT && m->silent_ms >= timeout_ms(hub, r) &&
            (quietest < 0 || m->silent_ms > hub->members[quietest].silent_ms)) {
            quietest = r;
        }
    }
    if (quietest >= 0) {
        char name[HUB_NAME_BYTES];
        char text[HUB_NAME_BYTES + 64];
        hub_name_rank(hub, quietest, name);
        snprintf(text, sizeof(text), "%s gave no sign of life for %d ms", name,
            timeout_ms(hub, quietest));
        hub_pronounce(hub, CADRE_ERR_PEER_LOST, quietest, text);
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
        if (hub->members[r].presence != HUB_ABSENT || listed == MOST_LISTED) {
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
static int64_t waits_until_ms(const cadre_hub *hub, const hub_member *m)
{
    int64_t doubtful_ms = hub->doubted_ms + m->timeout_ms;
    return hub->doubted_ms > 0 && doubtful_ms < m->patient_until_ms
               ? doubtful_ms
               : m->patient_until_ms;
}

static void judge_patience(cadre_hub *hub, int64_t now_ms)
{
    for (int r = 0; !hub->welcomed && r < hub->options.world_size; r++) {
        const hub_member *m = &hub->members[r];
        if (m->presence != HUB_PRESENT || now_ms < waits_until_ms(hub, m)) {
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
        hub_pronounce(hub, CADRE_ERR_TIMEOUT, first, text);
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
