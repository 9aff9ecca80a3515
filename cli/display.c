// SPDX-License-Identifier: Apache-2.0

#include "display.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { REDRAW_MS = 250, BAR_CELLS = 30, LINE_BYTES = 256 };

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
        d->mean_exposed = p->exposed_fraction;
        return;
    }
    double share = 1.0 / (double)(d->n_seen - 1 < 20 ? d->n_seen - 1 : 20);
    d->mean_ms += share * (p->step_ms - d->mean_ms);
    d->mean_rate += share * (p->samples_per_second - d->mean_rate);
    d->mean_exposed += share * (p->exposed_fraction - d->mean_exposed);
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

static size_t terminal_columns(void)
{
    struct winsize size;
    bool known =
        ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known && size.ws_col < LINE_BYTES ? size.ws_col : 80;
}

// The bar gets the columns that the rest leaves, so that the line never wraps.
static void draw(display *d, const cadre_train_progress *p)
{
    char left[TIME_BYTES];
    char rest[LINE_BYTES];
    char line[2 * LINE_BYTES];
    remaining_time(d, p, left);
    snprintf(rest, sizeof(rest),
        "loss %.4f lr %.1e |g| %.2f %.0f/s exposed %.0f%% ETA %s", p->loss,
        p->lr, p->grad_norm, d->mean_rate, d->mean_exposed * 100, left);
    int used = snprintf(
        line, LINE_BYTES, "%" PRId64 "/%" PRId64 " ", p->step, p->n_steps);

    size_t columns = terminal_columns() - 1;
    size_t taken = (size_t)used + strlen(rest) + 1;
    size_t cells = columns > taken ? columns - taken : 0;
    cells = cells < BAR_CELLS ? cells : BAR_CELLS;
    size_t full =
        (size_t)((double)cells * (double)p->step / (double)p->n_steps);
    char *at = line + used;
    memset(at, '.', cells);
    memset(at, '#', full);
    at += cells;
    snprintf(at, sizeof(line) - (size_t)(at - line), " %s", rest);
    fprintf(stderr, "\r%.*s\033[K", (int)columns, line);
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
        d->mean_rate, d->mean_exposed * 100, left);
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
