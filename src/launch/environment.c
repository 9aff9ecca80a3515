// SPDX-License-Identifier: Apache-2.0

#include "launch/environment.h"

#include "base/alloc.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

extern char **environ;

static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK",
    "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS",
    "CADRE_RANK", "CADRE_WORLD_SIZE", "CADRE_LOCAL_RANK",
    "CADRE_LOCAL_WORLD_SIZE", "CADRE_STORE", "CADRE_SECRET_FD"};
enum { N_NAMES = sizeof(names) / sizeof(names[0]), VALUE_BYTES = 32 };

static void values_of(
    const cadre_rank_variables *v, char values[N_NAMES][VALUE_BYTES])
{
    // In the order of the names.
    const int rank_and_size[4] = {
        v->rank, v->world_size, v->rank, v->world_size};
    for (int i = 0; i < 4; i++) {
        snprintf(values[i], VALUE_BYTES, "%d", rank_and_size[i]);
        snprintf(values[7 + i], VALUE_BYTES, "%d", rank_and_size[i]);
    }
    snprintf(values[4], VALUE_BYTES, "127.0.0.1");
    snprintf(values[5], VALUE_BYTES, "%d", v->port);
    snprintf(values[6], VALUE_BYTES, "%d", v->threads);
    snprintf(values[11], VALUE_BYTES, "fd:%d", v->store);
    snprintf(values[12], VALUE_BYTES, "%d", v->secret);
}

static bool is_ours(const char *entry)
{
    size_t nbytes = strcspn(entry, "=");
    for (int i = 0; i < N_NAMES; i++) {
        if (strlen(names[i]) == nbytes &&
            memcmp(entry, names[i], nbytes) == 0) {
            return true;
        }
    }
    return false;
}

cadre_status cadre_environment_make(
    const cadre_rank_variables *variables, char ***out)
{
    size_t n = 0;
    while (environ[n] != NULL) {
        n++;
    }
    char **made = cadre_alloc_array(n + N_NAMES + 1, sizeof(made[0]));
    if (made == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    size_t used = 0;
    char values[N_NAMES][VALUE_BYTES];
    values_of(variables, values);
    for (int i = 0; i < N_NAMES; i++) {
        char entry[64 + VALUE_BYTES];
        snprintf(entry, sizeof(entry), "%s=%s", names[i], values[i]);
        made[used] = cadre_alloc_string(entry);
        if (made[used++] == NULL) {
            cadre_environment_free(made);
            return CADRE_ERR_NO_MEMORY;
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (!is_ours(environ[i])) {
            made[used++] = environ[i]; // borrowed
        }
    }
    *out = made;
    return CADRE_OK;
}

void cadre_environment_free(char **environment)
{
    // The first N_NAMES entries are ours.
    for (int i = 0; environment != NULL && i < N_NAMES; i++) {
        cadre_free(environment[i]);
    }
    cadre_free(environment);
}
