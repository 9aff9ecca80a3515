// SPDX-License-Identifier: Apache-2.0

#include "display.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { REDRAW_MS = 250, BAR_CELLS = 16 };

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// A mean over about the last twenty steps, and over all while they are fewer.
// The first step, in which memory is touched, does not count.
static void take_speed(display *d, const cadre_train_progress *p)
{
    d->n_seen++;
    if (d->n_seen <= 2) {
        d->mean_ms = p->step_ms;
        d->mean_rate = p->samples_per_second;
        return;
    }
    double share = 1.0 / (double)(d->n_seen - 1 < 20 ? d->n_seen - 1 : 20);
    d->mean_ms += share * (p->step_ms - d->mean_ms);
    d->mean_rate += share * (p->samples_per_second - d->mean_rate);
}

enum { TIME_BYTES = 32 };

static void remaining_time(
    const display *d, const cadre_train_progress *p, char text[TIME_BYTES])
{
    if (d->n_seen < 2) {
        snprintf(text, TIME_BYTES, "warming up");
        return;
    }
    double ms = d->mean_ms * (double)(p->n_steps - p->step);
    int64_t s = (int64_t)(ms / 1000 + 0.5);
    snprintf(text, TIME_BYTES, "%02" PRId64 ":%02" PRId64 ":%02" PRId64,
        s / 3600, s / 60 % 60, s % 60);
}

static void draw(display *d, const cadre_train_progress *p)
{
    char bar[BAR_CELLS + 1];
    char left[TIME_BYTES];
    size_t full = (size_t)(BAR_CELLS * p->step / p->n_steps);
    memset(bar, '.', BAR_CELLS);
    memset(bar, '#', full);
    bar[BAR_CELLS] = '\0';
    remaining_time(d, p, left);
    fprintf(stderr,
        "\r%" PRId64 "/%" PRId64 " %s loss %.4f lr %.1e |g| %.2f %.0f/s "
        "exposed %.0f%% ETA %s\033[K",
        p->step, p->n_steps, bar, p->loss, p->lr, p->grad_norm, d->mean_rate,
        p->exposed_fraction * 100, left);
    fflush(stderr);
    d->line_open = true;
}

static void print_line(const display *d, const cadre_train_progress *p)
{
    char left[TIME_BYTES];
    remaining_time(d, p, left);
    fprintf(stderr,
        "step %" PRId64 "/%" PRId64 " | loss %.6f | norm %.4f | lr %.2e | "
        "%.2f ms | %.0f samples/s | exposed %.1f%% | eta %s\n",
        p->step, p->n_steps, p->loss, p->grad_norm, p->lr, d->mean_ms,
        d->mean_rate, p->exposed_fraction * 100, left);
}

static void print_evaluation(display *d, const cadre_train_progress *p)
{
    display_close(d);
    fprintf(stderr,
        "step %" PRId64 "/%" PRId64 " | test loss %.6f | accuracy %.4f\n",
        p->step, p->n_steps, p->eval_loss, p->eval_accuracy);
}

void display_progress(const cadre_train_progress *progress, void *ctx)
{
    display *d = ctx;
    if (d->quiet) {
        return;
    }
    if (progress->evaluated) {
        print_evaluation(d, progress);
        return;
    }
    take_speed(d, progress);
    bool last = progress->step == progress->n_steps;
    int64_t now = now_ms();
    if (d->terminal && (last || now - d->drawn_ms >= REDRAW_MS)) {
        draw(d, progress);
        d->drawn_ms = now;
    }
    if (!d->terminal && (last || progress->step % d->log_every == 0)) {
        print_line(d, progress);
    }
}

void display_close(display *d)
{
    if (d->line_open) {
        fputc('\n', stderr);
        d->line_open = false;
    }
}
