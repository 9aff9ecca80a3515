// SPDX-License-Identifier: Apache-2.0
//
// What came of a job whose ranks have all ended.

#include "launch/launch_impl.h"

#include "base/fail.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>

enum {
    LOST_OUTPUT_STATUS = 1, // where it could not be written
    SILENT_RANK_STATUS = 3, // for a rank that failed but exited with 0
    LAST_LINES = 20,
};

static int status_of(const cadre_ending *e)
{
    if (e->signal != 0) {
        return 128 + e->signal;
    }
    return e->exit_status != 0 ? e->exit_status : SILENT_RANK_STATUS;
}

// The signal that all ranks say they were stopped by, if nobody here asked them
// to end; or 0.
static int agreed_signal(const launch *l)
{
    int agreed = l->processes[0].ending.exit_status - 128;
    if (l->stage > REPORTING || (agreed != SIGINT && agreed != SIGTERM)) {
        return 0;
    }
    for (int r = 0; r < l->n; r++) {
        if (l->processes[r].ending.exit_status != 128 + agreed) {
            return 0;
        }
    }
    return agreed;
}

// A rank that was stopped, while others finished as if nothing had happened.
static int stopped_alone(const launch *l)
{
    for (int r = 0; r < l->n; r++) {
        const cadre_ending *e = &l->processes[r].ending;
        if (!e->asked && e->exit_status != 0) {
            return r;
        }
    }
    return -1;
}

// Says which output was lost, and why, if any was.
static void describe_output(const launch *l, cadre_launch_result *result)
{
    bool is_error =
        l->unheard ? l->output.error != EPIPE : l->output.error == 0;
    int error = is_error ? l->error.error : l->output.error;
    const char *stream = is_error ? "standard error" : "standard output";
    if (l->unheard) {
        result->exit_status = 128 + SIGPIPE;
        snprintf(result->text, sizeof(result->text),
            "nobody reads the ranks' %s any more: the job is ended", stream);
    } else if (error != 0 && result->stopped_by == 0) {
        (void)cadre_fail_errno(CADRE_ERR_IO, error,
            "some of the ranks' %s could not be written", stream);
        result->exit_status = LOST_OUTPUT_STATUS;
        snprintf(result->text, sizeof(result->text), "%s", cadre_error_text());
    }
}

// Says who failed first, and how.
void cadre_launch_describe(launch *l, cadre_launch_result *result)
{
    const cadre_verdict *verdict = cadre_hub_loop_verdict(l->hub);
    if (l->unheard) {
        describe_output(l, result);
        return;
    }
    result->stopped_by = l->stopped_by;
    if (l->stopped_by == 0) {
        result->stopped_by = agreed_signal(l);
        if (result->stopped_by != 0) {
            return;
        }
    }
    if (l->first_bad < 0) {
        l->first_bad = stopped_alone(l);
    }
    result->rank = verdict->rank >= 0 ? verdict->rank : l->first_bad;
    if (result->rank < 0) {
        describe_output(l, result);
        return;
    }
    process *p = &l->processes[result->rank];
    result->exit_status = p->running ? 128 + SIGKILL : status_of(&p->ending);
    if (verdict->rank >= 0) {
        snprintf(result->text, sizeof(result->text), "%s", verdict->text);
    } else {
        // The ranks broke off together; this one ended first.
        snprintf(result->text, sizeof(result->text),
            "rank %d (host %s, pid %d) ended with status %d%s%.800s",
            result->rank, l->host, (int)p->pid, result->exit_status,
            verdict->text[0] == '\0' ? "" : ": ", verdict->text);
    }
    cadre_tail_lines(
        &p->tail, LAST_LINES, result->last_lines, sizeof(result->last_lines));
}
