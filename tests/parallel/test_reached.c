// SPDX-License-Identifier: Apache-2.0
//
// Owners that write what they update into their peers' memory: whose memory that
// is, models and engines that come and go, and a group that ends meanwhile.

#include "support/check.h"

#include "base/clock.h"
#include "base/thread.h"
#include "group/work.h"
#include "parallel/trainee.h"
#include <stdatomic.h>
#include <time.h>

static trainee_job reached_job(void)
{
    trainee_job job = trainee_plain_job(8);
    job.options.mode = CADRE_ZERO1;
    job.no_own = true;
    return job;
}

// --- models and engines ---

typedef struct visit {
    trainee_job job;
    uint64_t hash[3]; // of one rank, which goes first
} visit;

static void check_hash(const cadre_group *g, cadre_model *m, uint64_t *hash)
{
    if (cadre_world_size(g) == 1) {
        *hash = cadre_model_hash(m);
    }
    RANK_CHECK(cadre_model_hash(m) == *hash);
}

// A model goes, and its memory is used again, while another is trained, by one
// engine after another.
static void come_and_go(cadre_group *group, void *ctx)
{
    visit *v = ctx;
    cadre_model *first;
    cadre_model *second;
    cadre_engine *e;
    cadre_engine *of_first;
    trainee_make_model(group, &v->job, &first);
    trainee_make_model(group, &v->job, &second);
    RANK_OK(cadre_engine_create(first, &v->job.options, &of_first));
    RANK_OK(cadre_engine_create(second, &v->job.options, &e));
    RANK_OK(trainee_step(&v->job, first, of_first, 0, NULL));
    RANK_OK(trainee_step(&v->job, second, e, 1, NULL));
    check_hash(group, first, &v->hash[0]);

    cadre_engine_destroy(of_first);
    cadre_model_destroy(first);
    const size_t nbytes = TRAINEE_ELEMENTS * sizeof(float);
    void *again = NULL;
    RANK_OK(cadre_arena_alloc(group, nbytes, &again));
    RANK_OK(trainee_step(&v->job, second, e, 2, NULL));
    check_hash(group, second, &v->hash[1]);

    cadre_engine_destroy(e);
    RANK_OK(cadre_engine_create(second, &v->job.options, &e));
    RANK_OK(trainee_step(&v->job, second, e, 0, NULL));
    check_hash(group, second, &v->hash[2]);
    for (size_t i = 0; i < nbytes; i++) {
        RANK_CHECK(((const char *)again)[i] == 0);
    }
    cadre_arena_free(group, again);
    cadre_engine_destroy(e);
    cadre_model_destroy(second);
}

static void models_and_engines_come_and_go(void **state)
{
    (void)state;
    visit v = {.job = reached_job()};
    run_as_threads(LINK_INPROC, 1, 30000, come_and_go, &v);
    for (int n = 2; n <= 4; n++) {
        run_as_threads(LINK_INPROC, n, 30000, come_and_go, &v);
        run_as_threads(LINK_SHM, n, 30000, come_and_go, &v);
    }
    run_as_processes(LINK_SHM, 3, 30000, come_and_go, &v);
}

static void whose_memory_it_is_changes_no_bit(void **state)
{
    (void)state;
    trainee_job alone = trainee_plain_job(8);
    run_as_threads(LINK_INPROC, 1, 30000, trainee_train, &alone);
    for (int i = 0; i < 6; i++) {
        trainee_job job = reached_job();
        job.no_own = i % 3 == 0;
        job.one_own = i % 3 == 1; // else all ranks have one
        run_as_threads(
            i < 3 ? LINK_INPROC : LINK_SHM, 3, 30000, trainee_train, &job);
        trainee_assert_same(&job, &alone);
    }
}

// --- the end of a group ---

typedef struct ending {
    trainee_job job;
    int after;                   // so many twentieths of a step
    atomic_int_fast64_t told_ns; // when all ranks could know
    atomic_int n_halfway;        // ranks that were in the middle of an update
} ending;

typedef struct herald {
    ending *end;
    cadre_group *group;
    int64_t step_ns;
    cadre_thread thread;
} herald;

static void tell(void *ctx)
{
    herald *h = ctx;
    int64_t wait_ns = h->step_ns * h->end->after / 20;
    (void)nanosleep(&(struct timespec){.tv_sec = wait_ns / 1000000000,
                        .tv_nsec = wait_ns % 1000000000},
        NULL);
    RANK_CHECK(cadre_watch_fail(h->group->watch, CADRE_ERR_ABORTED, -1,
                   "it is over") == CADRE_ERR_ABORTED);
    atomic_store(&h->end->told_ns, cadre_now_ns());
}

// Updates of the last step, and those that ended later.
static int count_updates(cadre_engine *e, int64_t later_than, int *n_late)
{
    static _Thread_local cadre_event events[TRAINEE_EVENTS];
    int n_events = cadre_engine_events(e, events, TRAINEE_EVENTS);
    int n = 0;
    RANK_CHECK(n_events <= TRAINEE_EVENTS);
    *n_late = 0;
    for (int i = 0; i < n_events; i++) {
        bool update = events[i].kind == CADRE_EVENT_UPDATE;
        n += update ? 1 : 0;
        *n_late += update && events[i].ns > later_than ? 1 : 0;
    }
    return n;
}

static void train_until_told(cadre_group *group, void *ctx)
{
    ending *end = ctx;
    herald h = {.end = end, .group = group};
    cadre_model *m;
    cadre_engine *e;
    int n_buckets;
    int n_late;
    trainee_make_model(group, &end->job, &m);
    RANK_OK(cadre_engine_create(m, &end->job.options, &e));
    h.step_ns = -cadre_now_ns();
    RANK_OK(trainee_step(&end->job, m, e, 0, NULL));
    h.step_ns += cadre_now_ns();
    n_buckets = count_updates(e, 0, &n_late);
    cadre_status status = cadre_barrier(group, NULL);
    if (cadre_rank(group) == 1) {
        RANK_OK(cadre_thread_start(&h.thread, "test/herald", tell, &h));
    }
    while (status == CADRE_OK) {
        status = trainee_step(&end->job, m, e, 0, NULL);
    }
    RANK_CHECK(status == CADRE_ERR_ABORTED);
    while (atomic_load(&end->told_ns) == 0) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    int n = count_updates(e, atomic_load(&end->told_ns), &n_late);
    RANK_CHECK(n_late <= 1); // the one that it was at
    if (n > 0 && n < n_buckets) {
        atomic_fetch_add(&end->n_halfway, 1);
    }
    cadre_engine_destroy(e);
    cadre_model_destroy(m);
    cadre_thread_join(&h.thread);
}

// Neither into peers' memory nor into its own.
static void who_knows_of_the_end_updates_no_more(void **state)
{
    (void)state;
    ending end = {.job = reached_job()};
    end.job.options.record = true;
    end.job.options.bucket_bytes = 1024;
    for (int i = 0; i < 1000 && atomic_load(&end.n_halfway) < 3; i++) {
        end.after = 1 + i * 7 % 40;
        end.job.no_own = i % 3 > 0;
        atomic_store(&end.told_ns, 0);
        run_as_threads(i % 2 == 0 ? LINK_INPROC : LINK_SHM, 2, 30000,
            train_until_told, &end);
    }
    assert_true(atomic_load(&end.n_halfway) >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_and_engines_come_and_go),
        cmocka_unit_test(whose_memory_it_is_changes_no_bit),
        cmocka_unit_test(who_knows_of_the_end_updates_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
