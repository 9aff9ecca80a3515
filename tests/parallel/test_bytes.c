// SPDX-License-Identifier: Apache-2.0
//
// What an engine says that its state takes is what was allocated for it, in
// every mode and for every optimizer.
//
// Of two models with as many parameters the larger one's engine asks for as many
// bytes more as its planes are larger: whatever else an engine needs does not
// grow with the parameters.

#include "support/check.h"

#include "base/alloc.h"
#include "cadre/cadre.h"
#include "support/ranks.h"

enum { N_PARAMS = 4, MOST_PLANES = 8, QUANTUM = 256 };

// Odd sizes, of three units; the last parameter is frozen.
static const int64_t shapes[2][N_PARAMS][2] = {
    {{37, 53}, {1, 37}, {9, 1000}, {3, 5}},
    {{129, 257}, {1, 129}, {11, 4999}, {7, 111}},
};
static const char *const names[N_PARAMS] = {"a.weight", "a.bias", "b", "c"};

typedef struct state_bytes {
    uint64_t allocated;
    uint64_t n_elements;
    cadre_plane_bytes planes[MOST_PLANES];
    int n_planes;
} state_bytes;

static void measure(cadre_group *group, const cadre_engine_options *options,
    int size, state_bytes *out)
{
    cadre_model *m;
    cadre_engine *e;
    uint64_t before = cadre_alloc_bytes();
    out->n_elements = 0;
    RANK_OK(cadre_model_create(group, &m));
    for (int i = 0; i < N_PARAMS; i++) {
        const cadre_param_options o = {.frozen = i == N_PARAMS - 1};
        const int64_t *shape = shapes[size][i];
        int index;
        RANK_OK(cadre_model_add(m, names[i], shape, 2, &o, &index));
        out->n_elements += (uint64_t)(shape[0] * shape[1]);
    }
    RANK_OK(cadre_model_seal(m));
    RANK_OK(cadre_engine_create(m, options, &e));
    out->allocated = cadre_alloc_bytes() - before;
    out->n_planes = cadre_engine_state_bytes(e, out->planes, MOST_PLANES);
    cadre_engine_destroy(e);
    cadre_model_destroy(m);
}

static uint64_t total(const state_bytes *b)
{
    uint64_t sum = 0;
    for (int i = 0; i < b->n_planes; i++) {
        sum += b->planes[i].nbytes;
    }
    return sum;
}

// Planes over all elements have a place for each; those that are sharded for a
// rank's part, and a quantum per unit at most.
static void check_planes(
    cadre_group *group, const cadre_engine_options *o, const state_bytes *b)
{
    enum { FIRST_SLOT = 3, N_UNITS = 3 };
    static const int n_slots[] = {
        [CADRE_NONE] = 0, [CADRE_SGD] = 1, [CADRE_ADAMW] = 2};
    uint64_t whole = b->n_elements * sizeof(float);
    uint64_t n = (uint64_t)cadre_world_size(group);
    RANK_CHECK(b->n_planes == FIRST_SLOT + n_slots[o->optimizer]);
    RANK_CHECK(b->planes[0].nbytes >= whole);
    RANK_CHECK(b->planes[1].nbytes >= whole);
    for (int i = FIRST_SLOT; i < b->n_planes; i++) {
        uint64_t quanta = N_UNITS * QUANTUM * sizeof(float);
        if (o->mode == CADRE_ZERO1) {
            RANK_CHECK(b->planes[i].nbytes <= whole / n + quanta);
            RANK_CHECK(n == 1 || b->planes[i].nbytes < whole);
        } else {
            RANK_CHECK(b->planes[i].nbytes >= whole);
        }
    }
}

static void compare(cadre_group *group, void *ctx)
{
    const cadre_engine_options *o = ctx;
    state_bytes small;
    state_bytes large;
    measure(group, o, 0, &small); // a group makes some memory at first use
    measure(group, o, 0, &small);
    measure(group, o, 1, &large);
    check_planes(group, o, &small);
    check_planes(group, o, &large);
    RANK_CHECK(total(&large) > total(&small));
    RANK_CHECK(
        large.allocated - small.allocated == total(&large) - total(&small));
}

static void what_is_said_is_what_is_allocated(void **state)
{
    (void)state;
    const int folds[] = {0, CADRE_FOLD_EAGER, 2};
    for (int n = 1; n <= 4; n++) {
        for (int i = 0; i < 18; i++) {
            cadre_engine_options o = {
                .mode = i % 2 == 0 ? CADRE_DDP : CADRE_ZERO1,
                .optimizer = i / 2 % 3 == 0   ? CADRE_ADAMW
                             : i / 2 % 3 == 1 ? CADRE_SGD
                                              : CADRE_NONE,
                .lr = 0.1,
                .momentum = 0.9,
                .leaves = 7,
                .fold = folds[i / 6],
            };
            if (o.mode == CADRE_ZERO1 && o.optimizer == CADRE_NONE) {
                continue; // refused: there is nothing to shard
            }
            run_as_threads(LINK_INPROC, n, 30000, compare, &o);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_said_is_what_is_allocated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
