// SPDX-License-Identifier: Apache-2.0
//
// What ranks reach: what one puts is in every rank's memory, where that is to be
// had; else nothing is reached on any rank.

#include "support/check.h"
#include "support/ranks.h"

#include "group/reach.h"
#include <string.h>

enum { PART_BYTES = 5000, ODD = 3, MAX_RANKS = 5 };

static size_t reach_bytes(const cadre_group *g)
{
    return (size_t)cadre_world_size(g) * PART_BYTES;
}

static char *make_memory(cadre_group *g)
{
    void *memory = NULL;
    RANK_OK(cadre_arena_alloc(g, 64 + reach_bytes(g), &memory));
    return memory;
}

// Each rank's part, but for its first and last bytes, which nobody puts.
static void check_parts(const cadre_group *g, const char *memory, int round)
{
    for (int r = 0; r < cadre_world_size(g); r++) {
        for (int i = 0; i < PART_BYTES; i++) {
            bool put = i >= ODD && i < PART_BYTES - ODD;
            char expected = (char)(put ? 10 * round + r + 1 : 0);
            RANK_CHECK(memory[r * PART_BYTES + i] == expected);
        }
    }
}

static void put_parts(cadre_group *g, void *ctx)
{
    (void)ctx;
    char *arena = make_memory(g);
    char *memory = arena + 64;
    cadre_reach *m = NULL;
    RANK_OK(cadre_reach_open(g, memory, reach_bytes(g), &m));
    RANK_CHECK(m != NULL);
    char *own = memory + (size_t)cadre_rank(g) * PART_BYTES + ODD;
    size_t nbytes = PART_BYTES - 2 * ODD;
    for (int round = 0; round < 20; round++) {
        RANK_OK(cadre_barrier(g, NULL));
        RANK_OK(cadre_reach_find(m));
        memset(own, 10 * round + cadre_rank(g) + 1, nbytes);
        RANK_OK(cadre_reach_put(m, own, 1)); // in two pieces
        RANK_OK(cadre_reach_put(m, own + 1, nbytes - 1));
        RANK_OK(cadre_barrier(g, NULL));
        check_parts(g, memory, round);
    }
    cadre_reach_close(m);
    RANK_OK(cadre_barrier(g, NULL));
    cadre_arena_free(g, arena);
}

static void what_is_put_is_everywhere(void **state)
{
    (void)state;
    for (int n = 2; n <= MAX_RANKS; n++) {
        run_as_threads(LINK_INPROC, n, 30000, put_parts, NULL);
        run_as_threads(LINK_SHM, n, 30000, put_parts, NULL);
    }
    run_as_processes(LINK_SHM, 3, 30000, put_parts, NULL);
}

static void open_without(cadre_group *g, void *ctx)
{
    const int *rank_without = ctx;
    char *memory = make_memory(g);
    cadre_reach *m = NULL;
    RANK_OK(cadre_reach_open(
        g, cadre_rank(g) == *rank_without ? NULL : memory, reach_bytes(g), &m));
    RANK_CHECK(m == NULL);
    RANK_OK(cadre_barrier(g, NULL));
    cadre_arena_free(g, memory);
}

static void all_ranks_have_one_or_none(void **state)
{
    (void)state;
    int nobody = -1;
    int last = 2;
    run_as_threads(LINK_UNIX, 3, 30000, open_without, &nobody);
    run_as_threads(LINK_TCP, 3, 30000, open_without, &nobody);
    run_as_threads(LINK_INPROC, 3, 30000, open_without, &last);
    run_as_threads(LINK_SHM, 3, 30000, open_without, &last);
    run_as_threads(LINK_INPROC, 1, 30000, open_without, &nobody);
}

// Memory outside of arenas has no name.
static void open_elsewhere(cadre_group *g, void *ctx)
{
    (void)ctx;
    static char elsewhere[MAX_RANKS * PART_BYTES];
    cadre_reach *m = NULL;
    RANK_OK(cadre_reach_open(g, elsewhere, reach_bytes(g), &m));
    RANK_CHECK(m == NULL);
}

static void memory_that_peers_do_not_reach_has_none(void **state)
{
    (void)state;
    run_as_threads(LINK_INPROC, 2, 30000, open_elsewhere, NULL);
    run_as_threads(LINK_SHM, 2, 30000, open_elsewhere, NULL);
}

// Reads what the next rank has at the end of its memory, which is of another
// size, and nothing behind it.
static void read_next(cadre_group *g, void *ctx)
{
    int n = cadre_world_size(g);
    size_t nbytes = 64 * (size_t)(cadre_rank(g) + 1);
    void *memory = NULL;
    cadre_reach *r = NULL;
    RANK_OK(cadre_arena_alloc(g, 4096, &memory));
    RANK_OK(cadre_reach_open(g, memory, nbytes, &r));
    RANK_CHECK(r != NULL);
    uint64_t word = 1000 + (uint64_t)cadre_rank(g);
    memcpy((char *)memory + nbytes - sizeof(word), &word, sizeof(word));
    RANK_OK(cadre_barrier(g, NULL));
    RANK_OK(cadre_reach_find(r));
    int next = (cadre_rank(g) + 1) % n;
    uint64_t end = 64 * (uint64_t)(next + 1);
    void *found = NULL;
    RANK_OK(cadre_reach_at(r, next, end - sizeof(word), sizeof(word), &found));
    memcpy(&word, found, sizeof(word));
    RANK_CHECK(word == 1000 + (uint64_t)next);
    RANK_OK(cadre_reach_at(r, next, 0, end, &found));
    RANK_OK(cadre_barrier(g, NULL));
    const uint64_t wrong[] = {end - 4, end, end + 8, 1, UINT64_MAX - 7};
    if (cadre_rank(g) == 0) {
        uint64_t at = wrong[*(const int *)ctx];
        RANK_CHECK(
            cadre_reach_at(r, next, at, 8, &found) == CADRE_ERR_PEER_LOST);
        RANK_CHECK(strstr(cadre_error_text(),
                       "what rank 1 shares is unusable") != NULL);
    }
    cadre_reach_close(r);
}

static void only_what_peers_have_is_reached(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        run_as_threads(LINK_INPROC, 3, 30000, read_next, &i);
        run_as_threads(LINK_SHM, 2, 30000, read_next, &i);
    }
}

// Rank 1 has more memory than rank 0, and puts something at the end of it.
static void put_behind(cadre_group *g, void *ctx)
{
    (void)ctx;
    size_t nbytes = 64 * (size_t)(cadre_rank(g) + 1);
    void *memory = NULL;
    cadre_reach *r = NULL;
    RANK_OK(cadre_arena_alloc(g, 4096, &memory));
    RANK_OK(cadre_reach_open(g, memory, nbytes, &r));
    RANK_CHECK(r != NULL);
    if (cadre_rank(g) == 1) {
        RANK_OK(cadre_reach_find(r));
        RANK_OK(cadre_reach_put(r, memory, 64));
        RANK_CHECK(
            cadre_reach_put(r, (char *)memory + 60, 8) == CADRE_ERR_PEER_LOST);
        RANK_CHECK(strstr(cadre_error_text(),
                       "what rank 0 shares is unusable") != NULL);
    }
    cadre_reach_close(r);
}

static void nothing_is_put_behind_what_a_peer_has(void **state)
{
    (void)state;
    run_as_threads(LINK_INPROC, 2, 30000, put_behind, NULL);
    run_as_processes(LINK_SHM, 2, 30000, put_behind, NULL);
}

// Rank 1 frees its memory and stays: nobody may write there any more.
static void take_memory_away(cadre_group *g, void *ctx)
{
    (void)ctx;
    char *memory = make_memory(g);
    cadre_reach *m = NULL;
    RANK_OK(cadre_reach_open(g, memory, reach_bytes(g), &m));
    RANK_CHECK(m != NULL);
    if (cadre_rank(g) == 1) {
        cadre_arena_free(g, memory);
    }
    RANK_OK(cadre_barrier(g, NULL));
    if (cadre_rank(g) == 0) {
        RANK_CHECK(cadre_reach_find(m) == CADRE_ERR_PEER_LOST);
        RANK_CHECK(strstr(cadre_error_text(),
                       "what rank 1 shares is unusable") != NULL);
        RANK_CHECK(cadre_group_progress(g) == CADRE_ERR_PEER_LOST);
    } else {
        RANK_CHECK(cadre_barrier(g, NULL) == CADRE_ERR_PEER_LOST);
    }
    cadre_reach_close(m);
}

static void memory_that_is_gone_is_not_written_to(void **state)
{
    (void)state;
    run_as_threads(LINK_INPROC, 2, 30000, take_memory_away, NULL);
    run_as_processes(LINK_SHM, 2, 30000, take_memory_away, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_is_everywhere),
        cmocka_unit_test(all_ranks_have_one_or_none),
        cmocka_unit_test(memory_that_peers_do_not_reach_has_none),
        cmocka_unit_test(only_what_peers_have_is_reached),
        cmocka_unit_test(nothing_is_put_behind_what_a_peer_has),
        cmocka_unit_test(memory_that_is_gone_is_not_written_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
