// SPDX-License-Identifier: Apache-2.0
//
// Buffers in one block: none overlaps another that lives at the same time, and
// little room is lost.

#include "base/alloc.h"
#include "base/random.h"
#include "nn/lifetimes.h"
#include "support/check.h"
#include <stdbool.h>

enum { MOST = 200, MOMENTS = 60 };

static uint32_t draw(uint64_t trial, uint64_t i, uint32_t below)
{
    uint32_t words[4];
    cadre_random_words(trial, CADRE_STREAM_INITIAL, 0, i, words);
    return words[0] % below;
}

static size_t place(cadre_lifetime *all, size_t n)
{
    size_t count = 0;
    CHECK_OK(cadre_lifetimes_place(all, n, &count));
    return count;
}

static size_t lines(size_t count)
{
    return (count + 15) / 16 * 16;
}

static void assert_apart(const cadre_lifetime *all, size_t n, size_t count)
{
    for (size_t i = 0; i < n; i++) {
        const cadre_lifetime *a = &all[i];
        assert_int_equal(a->offset % 16, 0);
        assert_true(a->count == 0 || a->offset + a->count <= count);
        for (size_t j = 0; j < i; j++) {
            const cadre_lifetime *b = &all[j];
            bool meet = a->count > 0 && b->count > 0 && a->first <= b->last &&
                        b->first <= a->last;
            assert_true(!meet || a->offset + a->count <= b->offset ||
                        b->offset + b->count <= a->offset);
        }
    }
}

// What no placement can do without.
static size_t most_alive(const cadre_lifetime *all, size_t n)
{
    size_t most = 0;
    for (int moment = 0; moment < MOMENTS; moment++) {
        size_t alive = 0;
        for (size_t i = 0; i < n; i++) {
            bool lives = all[i].first <= moment && moment <= all[i].last;
            alive += lives ? lines(all[i].count) : 0;
        }
        most = alive > most ? alive : most;
    }
    return most;
}

static void who_lives_at_the_same_time_is_apart(void **state)
{
    (void)state;
    cadre_lifetime all[MOST];
    for (uint64_t trial = 0; trial < 100; trial++) {
        size_t n = 1 + draw(trial, 0, MOST);
        for (size_t i = 0; i < n; i++) {
            int first = (int)draw(trial, 4 * i + 1, MOMENTS);
            int left = MOMENTS - first;
            all[i] = (cadre_lifetime){
                .count = draw(trial, 4 * i + 2, 1000),
                .first = first,
                .last = first + (int)draw(trial, 4 * i + 3, (uint32_t)left),
            };
        }
        size_t count = place(all, n);
        assert_apart(all, n, count);
        size_t least = most_alive(all, n);
        assert_in_range(count, least, least + least / 4);
    }
}

// Forward and backward: what is needed last was made first, and nothing is lost.
static void nested_lives_lose_nothing(void **state)
{
    (void)state;
    cadre_lifetime all[2 * 20];
    for (int l = 0; l < 20; l++) {
        size_t count = 16 * (1 + (size_t)l % 5);
        all[2 * l] = (cadre_lifetime){count, l, 41 - l, 0};
        all[2 * l + 1] = (cadre_lifetime){count, 40 - l, 41 - l, 0};
    }
    size_t count = place(all, 40);
    assert_apart(all, 40, count);
    assert_int_equal(count, most_alive(all, 40));
}

// A hole that fits exactly is taken before a larger one that comes first.
static void the_smallest_gap_is_taken(void **state)
{
    (void)state;
    cadre_lifetime all[] = {
        {.count = 160, .first = 0, .last = 0}, // leaves the larger gap
        {.count = 128, .first = 0, .last = 9},
        {.count = 96, .first = 0, .last = 0}, // and this one the smaller
        {.count = 80, .first = 0, .last = 9},
        {.count = 64, .first = 1, .last = 9},
    };
    assert_int_equal(place(all, 5), 464);
    assert_int_equal(all[4].offset, 288);
}

static void nobody_needs_no_room(void **state)
{
    (void)state;
    cadre_lifetime unused[] = {{.count = 0}, {.count = 0}};
    assert_int_equal(place(unused, 2), 0);
    assert_int_equal(place(NULL, 0), 0);
}

static void memory_may_be_short(void **state)
{
    (void)state;
    cadre_lifetime one = {.count = 1};
    size_t count = 7;
    cadre_alloc_fail_after(0);
    cadre_status status = cadre_lifetimes_place(&one, 1, &count);
    cadre_alloc_fail_after(-1);
    assert_int_equal(status, CADRE_ERR_NO_MEMORY);
    assert_int_equal(count, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_lives_at_the_same_time_is_apart),
        cmocka_unit_test(nested_lives_lose_nothing),
        cmocka_unit_test(the_smallest_gap_is_taken),
        cmocka_unit_test(nobody_needs_no_room),
        cmocka_unit_test(memory_may_be_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
