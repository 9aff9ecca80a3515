// SPDX-License-Identifier: Apache-2.0

#include "display.h"

#include "keys.h"
#include "screen.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    REDRAW_MS = 200,
    MOST_CELLS = 34, // of the bar
    FEWEST_CELLS = 4,
    FIELD_BYTES = 96,
    FEWEST_FOR_Z = 10, // values before a deviation means anything
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void display_init(display *d, const cadre_train_config *config, bool quiet)
{
    *d = (display){
        .config = config,
        .quiet = quiet,
        .live = screen_is_live(),
        .began_ms = now_ms(),
        .mean_hidden = (double)NAN,
    };
}

// --- what is shown

// How many standard deviations value is above the mean of the last ones.
static double take_surprise(surprise *s, double value)
{
    int64_t n = s->n < DISPLAY_WINDOW ? s->n : DISPLAY_WINDOW;
    double mean = 0;
    double squares = 0;
    for (int64_t i = 0; i < n; i++) {
        mean += s->values[i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        squares += (s->values[i] - mean) * (s->values[i] - mean) / (double)n;
    }
    if (!isfinite(value)) {
        return (double)NAN;
    }
    s->values[s->n++ % DISPLAY_WINDOW] = value;
    return n >= FEWEST_FOR_Z && squares > 0 ? (value - mean) / sqrt(squares)
                                            : (double)NAN;
}

// Means over about the last twenty steps, and over all while they are fewer.
// The first step, in which memory is touched, does not count.
static void take_step(display *d, const cadre_train_progress *p)
{
    d->n_seen++;
    d->loss_z = take_surprise(&d->loss, p->loss);
    d->norm_z = take_surprise(&d->norm, p->grad_norm);
    double share = 1.0;
    if (d->n_seen > 2) {
        share = 1.0 / (double)(d->n_seen - 1 < 20 ? d->n_seen - 1 : 20);
    }
    d->mean_ms += share * (p->step_ms - d->mean_ms);
    d->mean_rate += share * (p->samples_per_second - d->mean_rate);
    d->mean_exposed += share * (p->exposed_fraction - d->mean_exposed);
    if (isfinite(d->mean_hidden) && isfinite(p->hidden_fraction)) {
        d->mean_hidden += share * (p->hidden_fraction - d->mean_hidden);
    } else {
        d->mean_hidden = p->hidden_fraction;
    }
}

static void write_time(int64_t seconds, char text[FIELD_BYTES])
{
    snprintf(text, FIELD_BYTES, "%02" PRId64 ":%02" PRId64 ":%02" PRId64,
        seconds / 3600, seconds / 60 % 60, seconds % 60);
}

static void write_left(
    const display *d, const cadre_train_progress *p, char text[FIELD_BYTES])
{
    if (d->n_seen < 2) {
        snprintf(text, FIELD_BYTES, "warming up");
        return;
    }
    double ms = d->mean_ms * (double)(p->n_steps - p->step);
    write_time((int64_t)(ms / 1000 + 0.5), text);
}

// "" where there is none yet.
static void write_z(double z, int decimals, char text[FIELD_BYTES])
{
    text[0] = '\0';
    if (isfinite(z)) {
        snprintf(text, FIELD_BYTES, " (%+.*fz)", decimals, z);
    }
}

static void write_bytes(double nbytes, char text[FIELD_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int i = 0;
    for (; i < 4 && nbytes >= 1024; i++) {
        nbytes /= 1024;
    }
    snprintf(text, FIELD_BYTES, "%.*f %s", i == 0 || nbytes >= 100 ? 0 : 1,
        nbytes, units[i]);
}

static void write_count(double count, char text[FIELD_BYTES])
{
    if (count >= 1e6) {
        snprintf(text, FIELD_BYTES, "%.2fM", count / 1e6);
    } else if (count >= 1e4) {
        snprintf(text, FIELD_BYTES, "%.1fk", count / 1e3);
    } else {
        snprintf(text, FIELD_BYTES, "%.0f", count);
    }
}

static void write_hidden(const display *d, char text[FIELD_BYTES])
{
    text[0] = '\0';
    if (isfinite(d->mean_hidden)) {
        snprintf(text, FIELD_BYTES, " (%.0f%% hidden)", d->mean_hidden * 100);
    }
}

// --- three lines

// A line of fields that takes what fits.
typedef struct row {
    char *text; // SCREEN_LINE_BYTES
    size_t used;
    size_t columns;
} row;

static bool append(row *r, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

static bool append(row *r, const char *format, ...)
{
    char field[SCREEN_LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(field, sizeof(field), format, arguments);
    va_end(arguments);
    const char *between = r->used > 0 ? "   " : "";
    if (n < 0 || r->used + strlen(between) + (size_t)n > r->columns) {
        return false;
    }
    r->used += (size_t)snprintf(
        r->text + r->used, SCREEN_LINE_BYTES - r->used, "%s%s", between, field);
    return true;
}

// The value of a key, as it is set.
static void write_key(const display *d, const char *name, row *r)
{
    char value[CADRE_PATH_BYTES];
    for (int i = 0; i < key_count(); i++) {
        if (strcmp(key_name(i), name) == 0 && key_get(d->config, i, value)) {
            (void)append(r, "%s", value);
        }
    }
}

// What runs, and where; at the right end how long it has, and how long it will.
static void write_run(const display *d, const cadre_train_progress *p, row *r)
{
    char since[FIELD_BYTES];
    char left[FIELD_BYTES];
    char times[2 * FIELD_BYTES + 8];
    write_time((now_ms() - d->began_ms) / 1000, since);
    write_left(d, p, left);
    snprintf(times, sizeof(times), "%s  ETA %s", since, left);

    size_t all = r->columns;
    r->columns = all > strlen(times) + 2 ? all - strlen(times) - 2 : 0;
    (void)append(r, "%s", d->config->recipe);
    write_key(d, "parallel.mode", r);
    (void)append(r, "%d rank%s x %d thread%s", p->world_size,
        p->world_size == 1 ? "" : "s", d->config->threads,
        d->config->threads == 1 ? "" : "s");
    (void)append(r, "%s", cadre_train_precision(d->config));
    (void)append(r, "%s", d->config->out);
    r->columns = all;
    if (strlen(times) < all) {
        r->used += (size_t)snprintf(r->text + r->used,
            SCREEN_LINE_BYTES - r->used, "%*s", (int)(all - r->used), times);
    }
}

// The bar gets the columns that the rest leaves.
static void write_state(const display *d, const cadre_train_progress *p, row *r)
{
    char z[FIELD_BYTES];
    char text[SCREEN_LINE_BYTES] = "";
    row rest = {.text = text, .columns = r->columns};
    double done = (double)p->step / (double)p->n_steps;
    (void)append(r, "step %" PRId64 "/%" PRId64, p->step, p->n_steps);
    size_t before = r->used + 1; // and a blank
    rest.columns -= before < rest.columns ? before : rest.columns;
    write_z(d->loss_z, 1, z);
    (void)append(&rest, "%5.1f%%", done * 100);
    if (p->skipped) {
        (void)append(&rest, "step skipped");
    } else {
        (void)(append(&rest, "loss %.4f%s", p->loss, z) ||
               append(&rest, "loss %.4f", p->loss));
    }
    (void)append(&rest, "lr %.1e", p->lr);
    bool clipped = d->config->clip > 0 && p->grad_norm > d->config->clip;
    (void)append(&rest, "|g| %.2f%s", p->grad_norm, clipped ? " c" : "");

    size_t taken = r->used + rest.used + 2;
    size_t cells = r->columns > taken ? r->columns - taken : 0;
    cells = cells < MOST_CELLS ? cells : MOST_CELLS;
    if (cells >= FEWEST_CELLS) {
        char bar[MOST_CELLS + 1];
        memset(bar, '.', cells);
        memset(bar, '#', (size_t)((double)cells * done));
        bar[cells] = '\0';
        r->used += (size_t)snprintf(
            r->text + r->used, SCREEN_LINE_BYTES - r->used, " %s", bar);
    }
    (void)snprintf(r->text + r->used, SCREEN_LINE_BYTES - r->used, " %s", text);
}

static void write_speed(const display *d, const cadre_train_progress *p, row *r)
{
    char text[FIELD_BYTES];
    (void)append(r, "%.*f ms", d->mean_ms < 100 ? 1 : 0, d->mean_ms);
    write_count(d->mean_rate, text);
    (void)append(r, "%s samples/s", text);
    write_hidden(d, text);
    (void)append(r, "comm %.0f%%%s", d->mean_exposed * 100, text);
    if (p->rss_rank >= 0) {
        write_bytes((double)p->rss_bytes, text);
        (void)append(r, "mem %s (r%d)", text, p->rss_rank);
    }
    write_bytes((double)p->bytes_sent, text);
    (void)append(r, "%s/step", text);
    if (p->rss_rank >= 0 && p->world_size > 1) {
        (void)append(
            r, "slowest r%d %+.0f%%", p->slowest_rank, p->slowest_excess * 100);
    }
}

static void draw(const display *d, const cadre_train_progress *p)
{
    char rows[SCREEN_ROWS][SCREEN_LINE_BYTES] = {""};
    size_t columns = (size_t)screen_columns();
    row run = {.text = rows[0], .columns = columns};
    row state = {.text = rows[1], .columns = columns};
    row speed = {.text = rows[2], .columns = columns};
    write_run(d, p, &run);
    write_state(d, p, &state);
    write_speed(d, p, &speed);
    screen_draw(rows);
}

// --- lines of a log

static void print_step(const display *d, const cadre_train_progress *p)
{
    char loss_z[FIELD_BYTES];
    char norm_z[FIELD_BYTES];
    char hidden[FIELD_BYTES];
    char left[FIELD_BYTES];
    char mem[FIELD_BYTES] = "";
    char slowest[FIELD_BYTES] = "";
    write_z(d->loss_z, 2, loss_z);
    write_z(d->norm_z, 2, norm_z);
    write_hidden(d, hidden);
    write_left(d, p, left);
    if (p->rss_rank >= 0) {
        char text[FIELD_BYTES];
        write_bytes((double)p->rss_bytes, text);
        snprintf(mem, sizeof(mem), "mem %.32s (r%d) | ", text, p->rss_rank);
    }
    if (p->rss_rank >= 0 && p->world_size > 1) {
        snprintf(slowest, sizeof(slowest), "slowest r%d %+.0f%% | ",
            p->slowest_rank, p->slowest_excess * 100);
    }
    char line[8 * FIELD_BYTES];
    snprintf(line, sizeof(line),
        "step %" PRId64 "/%" PRId64 " | loss %.6f%s| norm %.4f%s| lr %.2e | "
        "%.2f ms | %.0f samples/s | comm %.1f%%%s | %s%seta %s",
        p->step, p->n_steps, p->loss, loss_z[0] == '\0' ? " " : loss_z,
        p->grad_norm, norm_z[0] == '\0' ? " " : norm_z, p->lr, d->mean_ms,
        d->mean_rate, d->mean_exposed * 100, hidden, mem, slowest, left);
    screen_print(line);
}

static void print_evaluation(const cadre_train_progress *p)
{
    char line[2 * FIELD_BYTES];
    bool is_text = isnan(p->eval_accuracy);
    snprintf(line, sizeof(line),
        "step %" PRId64 "/%" PRId64 " | test loss %.6f | %s %.4f", p->step,
        p->n_steps, p->eval_loss, is_text ? "bits per byte" : "accuracy",
        is_text ? p->eval_bits_per_byte : p->eval_accuracy);
    screen_print(line);
}

void display_progress(const cadre_train_progress *progress, void *ctx)
{
    display *d = ctx;
    if (d->quiet) {
        return;
    }
    if (progress->evaluated) {
        print_evaluation(progress);
        if (d->live) {
            draw(d, progress);
        }
        return;
    }
    take_step(d, progress);
    bool last = progress->step == progress->n_steps;
    int64_t now = now_ms();
    if (d->live && (last || now - d->drawn_ms >= REDRAW_MS)) {
        draw(d, progress);
        d->drawn_ms = now;
    }
    if (!d->live && (last || progress->step % d->config->log_every == 0)) {
        print_step(d, progress);
    }
}

void display_close(const display *d)
{
    if (!d->quiet) {
        screen_close();
    }
}
