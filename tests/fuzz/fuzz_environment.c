// SPDX-License-Identifier: Apache-2.0
//
// What launchers say to a rank: lines of a letter for the variable's name, and
// its value.

#include "fuzz.h"

#include "base/fail.h"
#include "rendezvous/place.h"
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"CADRE_RANK", "CADRE_WORLD_SIZE",
    "CADRE_LOCAL_RANK", "CADRE_LOCAL_WORLD_SIZE", "CADRE_STORE", "RANK",
    "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "CADRE_SECRET_FD", "CADRE_SECRET_FILE", "CADRE_AUTH"};

enum { N_NAMES = sizeof(names) / sizeof(names[0]), MOST_BYTES = 1000 };

static void set_next(fuzz_input *in)
{
    char value[MOST_BYTES];
    size_t n = 0;
    const char *name = names[fuzz_byte(in) % N_NAMES];
    for (uint8_t c = fuzz_byte(in); c != '\n' && c != 0; c = fuzz_byte(in)) {
        if (n < sizeof(value) - 1) {
            value[n++] = (char)c;
        }
    }
    value[n] = '\0';
    FUZZ_CHECK(setenv(name, value, 1) == 0);
}

static void check_place(const cadre_place *p)
{
    FUZZ_CHECK(p->world_size >= 1 && p->world_size <= CADRE_MAX_RANKS);
    FUZZ_CHECK(p->rank >= 0 && p->rank < p->world_size);
    FUZZ_CHECK(p->local_rank >= 0 && p->local_rank < p->local_world_size);
    FUZZ_CHECK(p->local_world_size <= p->world_size);
    FUZZ_CHECK(memchr(p->store, 0, sizeof(p->store)) != NULL);
    FUZZ_CHECK((p->store[0] != '\0') == (p->world_size > 1));
    FUZZ_CHECK(!p->has_secret_fd || p->secret_fd >= 0);
    FUZZ_CHECK(p->source != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    fuzz_input in = {data, nbytes};
    for (int i = 0; i < N_NAMES; i++) {
        FUZZ_CHECK(unsetenv(names[i]) == 0);
    }
    while (in.left > 0) {
        set_next(&in);
    }
    cadre_place place;
    cadre_status status = cadre_place_from_environment(&place);
    if (status == CADRE_OK) {
        check_place(&place);
    } else {
        FUZZ_CHECK(status == CADRE_ERR_INVALID_ARG);
        FUZZ_CHECK(cadre_error_text()[0] != '\0');
    }
    return 0;
}
