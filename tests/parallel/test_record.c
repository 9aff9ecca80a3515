// SPDX-License-Identifier: Apache-2.0
//
// The event recorder: order, forgetting, what does not fit, many threads; and
// what a step of an engine records of its leaves.

#include "support/check.h"

#include "base/thread.h"
#include "cadre/cadre.h"
#include "parallel/record.h"

enum { CAPACITY = 64 };

static void a_step_forgets_the_one_before(void **state)
{
    (void)state;
    cadre_record *r;
    CHECK_OK(cadre_record_create(CAPACITY, &r));
    cadre_event events[CAPACITY];
    for (int step = 1; step <= 3; step++) {
        cadre_record_begin(r);
        assert_int_equal(cadre_record_read(r, events, CAPACITY), 0);
        for (int i = 0; i < step; i++) {
            cadre_record_note(
                r, (cadre_event){.kind = CADRE_EVENT_LEAF_BEGIN, .leaf = i});
        }
        cadre_record_end(r);
        assert_int_equal(cadre_record_read(r, events, CAPACITY), step);
        for (int i = 0; i < step; i++) {
            assert_int_equal(events[i].leaf, i);
            assert_true(i == 0 || events[i].ns >= events[i - 1].ns);
        }
    }
    cadre_record_destroy(r);
}

static void more_than_fit_are_left_out(void **state)
{
    (void)state;
    cadre_record *r;
    CHECK_OK(cadre_record_create(4, &r));
    cadre_record_begin(r);
    for (int i = 0; i < 9; i++) {
        cadre_record_note(r, (cadre_event){.leaf = i});
    }
    cadre_record_end(r);
    cadre_event events[2] = {{0}};
    assert_int_equal(cadre_record_read(r, events, 2), 4);
    assert_int_equal(events[1].leaf, 1);
    cadre_record_destroy(r);
}

static void without_a_recorder_nothing_happens(void **state)
{
    (void)state;
    cadre_record_begin(NULL);
    cadre_record_note(NULL, (cadre_event){.leaf = 1});
    cadre_record_end(NULL);
    assert_int_equal(cadre_record_read(NULL, NULL, 0), 0);
}

enum { N_THREADS = 4, N_EACH = 500 };

typedef struct noter {
    cadre_thread thread;
    cadre_record *record;
    int number;
} noter;

static void note_many(void *ctx)
{
    const noter *n = ctx;
    for (int i = 0; i < N_EACH; i++) {
        cadre_record_note(
            n->record, (cadre_event){.leaf = n->number, .index = i});
    }
}

static void threads_lose_nothing(void **state)
{
    (void)state;
    cadre_record *r;
    CHECK_OK(cadre_record_create(N_THREADS * N_EACH, &r));
    cadre_record_begin(r);
    noter noters[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        noters[i] = (noter){.record = r, .number = i};
        CHECK_OK(cadre_thread_start(
            &noters[i].thread, "noter", note_many, &noters[i]));
    }
    for (int i = 0; i < N_THREADS; i++) {
        cadre_thread_join(&noters[i].thread);
    }
    cadre_record_end(r);
    static cadre_event events[N_THREADS * N_EACH];
    assert_int_equal(
        cadre_record_read(r, events, N_THREADS * N_EACH), N_THREADS * N_EACH);
    int next[N_THREADS] = {0};
    for (int i = 0; i < N_THREADS * N_EACH; i++) {
        assert_true(i == 0 || events[i].ns >= events[i - 1].ns);
        assert_int_equal(events[i].index, next[events[i].leaf]++);
    }
    cadre_record_destroy(r);
}

static cadre_engine *make_engine(cadre_model *model, bool record)
{
    const cadre_engine_options options = {
        .leaves = 2, .optimizer = CADRE_SGD, .record = record};
    cadre_engine *engine;
    CHECK_OK(cadre_engine_create(model, &options, &engine));
    return engine;
}

static void step(cadre_engine *engine)
{
    CHECK_OK(cadre_step_begin(engine));
    for (int leaf; cadre_leaf_next(engine, &leaf);) {
        for (int i = 1; i >= 0; i--) {
            cadre_leaf_grad(engine, leaf, i)[0] = 1;
            CHECK_OK(cadre_grad_ready(engine, leaf, i));
        }
        CHECK_OK(cadre_leaf_end(engine, leaf, 1, 1));
    }
    CHECK_OK(cadre_step_end(engine, NULL));
}

static void an_engine_records_its_leaves(void **state)
{
    (void)state;
    cadre_group *world;
    CHECK_OK(cadre_init(NULL, &world));
    cadre_model *model;
    CHECK_OK(cadre_model_create(world, &model));
    const int64_t shape[] = {3};
    int index;
    CHECK_OK(cadre_model_add(model, "a", shape, 1, NULL, &index));
    CHECK_OK(cadre_model_add(model, "b", shape, 1, NULL, &index));
    CHECK_OK(cadre_model_seal(model));
    cadre_engine *engine = make_engine(model, true);

    static const cadre_event wanted[] = {
        {.kind = CADRE_EVENT_LEAF_BEGIN, .leaf = 0, .index = -1},
        {.kind = CADRE_EVENT_GRAD_READY, .leaf = 0, .index = 1},
        {.kind = CADRE_EVENT_GRAD_READY, .leaf = 0, .index = 0},
        {.kind = CADRE_EVENT_LEAF_END, .leaf = 0, .index = -1},
        {.kind = CADRE_EVENT_LEAF_BEGIN, .leaf = 1, .index = -1},
        {.kind = CADRE_EVENT_GRAD_READY, .leaf = 1, .index = 1},
        {.kind = CADRE_EVENT_GRAD_READY, .leaf = 1, .index = 0},
        {.kind = CADRE_EVENT_LEAF_END, .leaf = 1, .index = -1},
        {.kind = CADRE_EVENT_CONTROL, .leaf = -1, .index = -1},
        {.kind = CADRE_EVENT_UPDATE, .leaf = -1, .index = -1},
        {.kind = CADRE_EVENT_STEP_END, .leaf = -1, .index = -1},
    };
    enum { N_WANTED = sizeof(wanted) / sizeof(wanted[0]) };
    for (int i = 0; i < 2; i++) {
        step(engine);
        cadre_event events[CAPACITY];
        int n = cadre_engine_events(engine, events, CAPACITY);
        int found = 0;
        for (int k = 0; k < n; k++) {
            bool of_chunk = events[k].kind >= CADRE_EVENT_POSTED &&
                            events[k].kind <= CADRE_EVENT_FINISHED;
            if (of_chunk) {
                continue;
            }
            assert_in_range(found, 0, N_WANTED - 1);
            assert_int_equal(events[k].kind, wanted[found].kind);
            assert_int_equal(events[k].leaf, wanted[found].leaf);
            assert_int_equal(events[k].index, wanted[found].index);
            found++;
        }
        assert_int_equal(found, N_WANTED);
    }
    cadre_engine_destroy(engine);

    engine = make_engine(model, false);
    step(engine);
    assert_int_equal(cadre_engine_events(engine, NULL, 0), 0);
    cadre_engine_destroy(engine);
    cadre_model_destroy(model);
    cadre_finalize(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_forgets_the_one_before),
        cmocka_unit_test(more_than_fit_are_left_out),
        cmocka_unit_test(without_a_recorder_nothing_happens),
        cmocka_unit_test(threads_lose_nothing),
        cmocka_unit_test(an_engine_records_its_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
