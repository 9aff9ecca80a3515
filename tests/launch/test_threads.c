// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "base/fail.h"
#include "cadre/launch.h"
#include <stdatomic.h>

typedef struct plan {
    atomic_int n_came;
    int failing; // this rank fails before the others meet it
} plan;

static cadre_status sum_ranks(cadre_group *world, void *ctx)
{
    plan *p = ctx;
    int64_t sum = cadre_rank(world);
    atomic_fetch_add(&p->n_came, 1);
    CADRE_TRY(
        cadre_allreduce(world, &sum, &sum, 1, CADRE_I64, CADRE_SUM, NULL));
    int n = cadre_world_size(world);
    return sum == n * (n - 1) / 2
               ? CADRE_OK
               : cadre_fail(CADRE_ERR_INTERNAL, "a wrong sum");
}

static void runs_ranks_as_threads(void **state)
{
    (void)state;
    for (int n = 1; n <= 9; n += 4) {
        plan p = {.failing = -1};
        int failed = 5;
        CHECK_OK(cadre_launch_threads(n, NULL, sum_ranks, &p, &failed));
        assert_int_equal(atomic_load(&p.n_came), n);
        assert_int_equal(failed, -1);
    }
    CHECK_OK(
        cadre_launch_threads(2, &(cadre_init_options){.transport = "inproc"},
            sum_ranks, &(plan){0}, NULL));
}

static cadre_status check_ring(cadre_group *world, void *ctx)
{
    (void)ctx;
    return strcmp(cadre_order_name(world), "ring") == 0
               ? CADRE_OK
               : cadre_fail(CADRE_ERR_INTERNAL, "another order");
}

static void groups_have_the_order_that_was_wished_for(void **state)
{
    (void)state;
    const cadre_init_options options = {.order = "ring"};
    CHECK_OK(cadre_launch_threads(1, &options, check_ring, NULL, NULL));
    CHECK_OK(cadre_launch_threads(3, &options, check_ring, NULL, NULL));
    CHECK_FAILS(cadre_launch_threads(1, NULL, check_ring, NULL, NULL),
        CADRE_ERR_INTERNAL, "another order");
}

static cadre_status fail_one(cadre_group *world, void *ctx)
{
    plan *p = ctx;
    if (cadre_rank(world) == p->failing) {
        return cadre_fail(CADRE_ERR_CORRUPT, "the data of rank 2 is damaged");
    }
    return cadre_barrier(world, NULL);
}

static void tells_the_first_failure(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        plan p = {.failing = 2};
        int failed = -1;
        CHECK_FAILS(cadre_launch_threads(4, NULL, fail_one, &p, &failed),
            CADRE_ERR_CORRUPT, "the data of rank 2 is damaged");
        assert_int_equal(failed, 2);
    }
}

static cadre_status leave_early(cadre_group *world, void *ctx)
{
    plan *p = ctx;
    return cadre_rank(world) == p->failing ? CADRE_OK
                                           : cadre_barrier(world, NULL);
}

static void does_not_wait_for_a_rank_that_has_returned(void **state)
{
    (void)state;
    plan p = {.failing = 1};
    CHECK_FAILS(cadre_launch_threads(3, NULL, leave_early, &p, NULL),
        CADRE_ERR_PEER_LOST, "rank 1");
}

static void refuses_what_makes_no_sense(void **state)
{
    (void)state;
    plan p = {.failing = -1};
    CHECK_FAILS(cadre_launch_threads(0, NULL, sum_ranks, &p, NULL),
        CADRE_ERR_INVALID_ARG, "not 0 ranks");
    CHECK_FAILS(cadre_launch_threads(1, NULL, NULL, &p, NULL),
        CADRE_ERR_INVALID_ARG, "body");
    CHECK_FAILS(
        cadre_launch_threads(
            2, &(cadre_init_options){.transport = "tcp"}, sum_ranks, &p, NULL),
        CADRE_ERR_INVALID_ARG, "not 'tcp'");
    CHECK_FAILS(cadre_launch_threads(2, &(cadre_init_options){.order = "tree"},
                    sum_ranks, &p, NULL),
        CADRE_ERR_INVALID_ARG,
        "order is 'tree'; it can be 'canonical' or 'ring'");
    CHECK_FAILS(cadre_launch_threads(2, &(cadre_init_options){.timeout_ms = -1},
                    sum_ranks, &p, NULL),
        CADRE_ERR_INVALID_ARG, "timeout_ms");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_ranks_as_threads),
        cmocka_unit_test(groups_have_the_order_that_was_wished_for),
        cmocka_unit_test(tells_the_first_failure),
        cmocka_unit_test(does_not_wait_for_a_rank_that_has_returned),
        cmocka_unit_test(refuses_what_makes_no_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
