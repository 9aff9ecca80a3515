// SPDX-License-Identifier: Apache-2.0

#include "train/crew.h"

#include "base/fail.h"
#include "support/check.h"
#include <stdatomic.h>

enum { N_THREADS = 4 };

static cadre_net *tiny_net(void)
{
    static const cadre_layer layers[] = {
        {.kind = "linear", .name = "fc", .width = 2}};
    cadre_net *net;
    CHECK_OK(
        cadre_net_create(layers, 1, (cadre_shape){3, 1, 1, 1, 0}, 2, &net));
    return net;
}

typedef struct visits {
    atomic_int of[N_THREADS];
    cadre_net_worker *workers[N_THREADS];
} visits;

static cadre_status visit(cadre_net_worker *worker, int thread, void *ctx)
{
    visits *v = ctx;
    atomic_fetch_add(&v->of[thread], 1);
    v->workers[thread] = worker;
    return CADRE_OK;
}

static void a_job_runs_once_on_every_thread(void **state)
{
    (void)state;
    cadre_net *net = tiny_net();
    for (int n = 1; n <= N_THREADS; n++) {
        const int64_t sizes[] = {5};
        cadre_crew *crew;
        visits v = {0};
        CHECK_OK(cadre_crew_create(net, n, sizes, 1, &crew));
        assert_int_equal(cadre_crew_threads(crew), n);
        for (int job = 1; job <= 100; job++) {
            CHECK_OK(cadre_crew_run(crew, visit, &v));
            for (int i = 0; i < N_THREADS; i++) {
                assert_int_equal(atomic_load(&v.of[i]), i < n ? job : 0);
            }
        }
        // A worker belongs to one thread.
        for (int i = 1; i < n; i++) {
            assert_ptr_not_equal(v.workers[i], v.workers[i - 1]);
        }
        cadre_crew_destroy(crew);
    }
    cadre_net_destroy(net);
}

// The threads in a set of bits fail, each with a text of its own.
static cadre_status fail_some(cadre_net_worker *worker, int thread, void *ctx)
{
    (void)worker;
    const unsigned *failing = ctx;
    if ((*failing >> thread & 1) == 0) {
        return CADRE_OK;
    }
    return cadre_fail(thread == 1 ? CADRE_ERR_IO : CADRE_ERR_INTERNAL,
        "thread %d has had enough", thread);
}

static void a_failure_is_brought_to_the_caller(void **state)
{
    (void)state;
    cadre_net *net = tiny_net();
    const int64_t sizes[] = {1};
    cadre_crew *crew;
    CHECK_OK(cadre_crew_create(net, N_THREADS, sizes, 1, &crew));
    unsigned failing = 1u << 3 | 1u << 1;
    CHECK_FAILS(cadre_crew_run(crew, fail_some, &failing), CADRE_ERR_IO,
        "thread 1 has had enough");
    failing = 1u << 0;
    CHECK_FAILS(cadre_crew_run(crew, fail_some, &failing), CADRE_ERR_INTERNAL,
        "thread 0 has had enough");
    // The crew is whole after it.
    failing = 0;
    CHECK_OK(cadre_crew_run(crew, fail_some, &failing));
    cadre_crew_destroy(crew);
    cadre_net_destroy(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_runs_once_on_every_thread),
        cmocka_unit_test(a_failure_is_brought_to_the_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
