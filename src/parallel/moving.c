// SPDX-License-Identifier: Apache-2.0

#include "parallel/moving.h"

#include <stdio.h>
#include <string.h>

enum {
    // How long a thread that waits for another sleeps at most before it looks
    // again, while that one moves and while there is nothing to move.
    CLAIM_AGAIN_MS = 10,
    LOOK_AGAIN_MS = 1000,
};

void cadre_moving_fail(cadre_engine *e, cadre_status status)
{
    char text[CADRE_FAIL_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", cadre_error_text());
    pthread_mutex_lock(&e->leaves.mu);
    bool first = e->failure == CADRE_OK;
    if (first) {
        e->failure = status;
        memcpy(e->failure_text, text, sizeof(text));
    }
    cadre_leaves_signal(&e->leaves);
    pthread_mutex_unlock(&e->leaves.mu);
}

bool cadre_moving_has_failed(cadre_engine *e)
{
    pthread_mutex_lock(&e->leaves.mu);
    bool failed = e->failure != CADRE_OK;
    pthread_mutex_unlock(&e->leaves.mu);
    return failed;
}

static void signal_others(cadre_engine *e)
{
    pthread_mutex_lock(&e->leaves.mu);
    cadre_leaves_signal(&e->leaves);
    pthread_mutex_unlock(&e->leaves.mu);
}

void cadre_moving_go_on(cadre_engine *e, bool wait)
{
    int finished = cadre_fold_finished(e->fold);
    cadre_status status = cadre_fold_advance(e->fold, wait);
    if (status == CADRE_OK) {
        status = cadre_group_progress(e->group);
    }
    if (status != CADRE_OK) {
        cadre_moving_fail(e, status);
    }
    int now = cadre_fold_finished(e->fold);
    // Relaxed: to others it is a hint.
    atomic_store_explicit(
        &e->busy, cadre_fold_posted(e->fold) > now, memory_order_relaxed);
    if (now > finished) {
        signal_others(e);
    }
}

static bool has_work(cadre_engine *e)
{
    return atomic_load(&e->news) ||
           atomic_load_explicit(&e->busy, memory_order_relaxed);
}

// Takes the right to move, moves, and gives it back, as long as there is news.
// False if another thread has the right.
//
// Sequentially consistent: either this thread gets the right, or the one who has
// it sees the news after it has given it back.  And who gets it when a step is
// over sees that there is no work.
static bool move_if_free(cadre_engine *e, bool wait)
{
    do {
        if (atomic_exchange(&e->moving, true)) {
            return false;
        }
        if (has_work(e) && !cadre_moving_has_failed(e)) {
            atomic_store(&e->news, false);
            cadre_moving_go_on(e, wait);
        }
        atomic_store(&e->moving, false);
        wait = false;
    } while (atomic_load(&e->news) && !cadre_moving_has_failed(e));
    return true;
}

void cadre_moving_offer(cadre_engine *e, bool wait, bool news)
{
    if (news) {
        atomic_store(&e->news, true);
    }
    bool moved = !e->mover.running && move_if_free(e, wait);
    if (news && !moved) {
        if (e->mover.running) {
            signal_others(e);
        }
        cadre_group_wake(e->group);
    }
}

void cadre_moving_claim(cadre_engine *e)
{
    atomic_store(&e->claimed, true);
    cadre_group_wake(e->group);
    uint64_t seen = cadre_leaves_changes(&e->leaves);
    while (atomic_exchange(&e->moving, true)) {
        cadre_leaves_wait(
            &e->leaves, seen, cadre_deadline_in_ms(CLAIM_AGAIN_MS));
        seen = cadre_leaves_changes(&e->leaves);
    }
    atomic_store(&e->claimed, false);
}

void cadre_moving_release(cadre_engine *e)
{
    atomic_store(&e->news, false);
    atomic_store_explicit(&e->busy, false, memory_order_relaxed);
    atomic_store(&e->moving, false);
}

// The engine's own thread.
static void run_mover(void *ctx)
{
    cadre_engine *e = ctx;
    while (!atomic_load(&e->mover_ends)) {
        uint64_t seen = cadre_leaves_changes(&e->leaves);
        bool wanted = atomic_load(&e->news) ||
                      atomic_load_explicit(&e->busy, memory_order_relaxed);
        bool moved = wanted && !atomic_load(&e->claimed) &&
                     !cadre_moving_has_failed(e) && move_if_free(e, true);
        if (moved) {
            signal_others(e); // who claims may wait for this
        } else {
            cadre_leaves_wait(
                &e->leaves, seen, cadre_deadline_in_ms(LOOK_AGAIN_MS));
        }
    }
}

cadre_status cadre_moving_start(cadre_engine *e)
{
    if (!e->o.progress_thread || cadre_world_size(e->group) == 1) {
        return CADRE_OK;
    }
    return cadre_thread_start(&e->mover, "cadre/progress", run_mover, e);
}

void cadre_moving_stop(cadre_engine *e)
{
    if (!e->mover.running) {
        return;
    }
    atomic_store(&e->mover_ends, true);
    atomic_store(&e->claimed, true);
    signal_others(e);
    cadre_group_wake(e->group);
    cadre_thread_join(&e->mover);
}
