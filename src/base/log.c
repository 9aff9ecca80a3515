// SPDX-License-Identifier: Apache-2.0

#include "base/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_int enabled = CADRE_LOG_OFF;

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static cadre_log_sink current_sink; // guarded by mu
static void *current_ctx;           // guarded by mu

// The level that CADRE_LOG asks for; fallback where it is unset or unknown.
static cadre_log_level level_from_environment(cadre_log_level fallback)
{
    static const char *const names[] = {
        "off", "error", "warn", "info", "debug"};
    const char *wanted = getenv("CADRE_LOG");
    for (int i = 0; wanted != NULL && i <= CADRE_LOG_DEBUG; i++) {
        if (strcmp(wanted, names[i]) == 0) {
            return (cadre_log_level)i;
        }
    }
    return fallback;
}

void cadre_log_set_sink(cadre_log_level level, cadre_log_sink sink, void *ctx)
{
    level = level_from_environment(level);
    pthread_mutex_lock(&mu);
    current_sink = sink;
    current_ctx = ctx;
    pthread_mutex_unlock(&mu);
    // Relaxed will do: the sink itself is read under mu.
    int now_enabled = sink == NULL ? 0 : (int)level;
    atomic_store_explicit(&enabled, now_enabled, memory_order_relaxed);
}

void cadre_log(
    cadre_log_level level, const char *component, const char *format, ...)
{
    if ((int)level > atomic_load_explicit(&enabled, memory_order_relaxed)) {
        return;
    }
    char line[CADRE_FAIL_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);

    pthread_mutex_lock(&mu);
    if (current_sink != NULL) {
        current_sink(level, component, line, current_ctx);
    }
    pthread_mutex_unlock(&mu);
}
