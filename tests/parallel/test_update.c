// SPDX-License-Identifier: Apache-2.0
//
// What the options make of an update: the rate of each step, what weight decay
// leaves alone, and how buffers go along.

#include "support/check.h"

#include "cadre/cadre.h"
#include "optim/schedule.h"
#include <math.h>

static cadre_group *alone(void)
{
    cadre_group *world;
    CHECK_OK(cadre_init(NULL, &world));
    return world;
}

static cadre_model *make_model(cadre_group *world)
{
    cadre_model *model;
    CHECK_OK(cadre_model_create(world, &model));
    const int64_t shape[] = {40};
    const cadre_param_options bias = {.no_decay = true};
    CHECK_OK(cadre_model_add(model, "fc.weight", shape, 1, NULL, NULL));
    CHECK_OK(cadre_model_add(model, "fc.bias", shape, 1, &bias, NULL));
    CHECK_OK(cadre_model_seal(model));
    for (int i = 0; i < 2; i++) {
        for (int e = 0; e < 40; e++) {
            cadre_model_param(model, i)[e] = 2.0f;
        }
    }
    return model;
}

// A step whose gradients are all zero.
static cadre_step_report run_step(cadre_engine *engine)
{
    CHECK_OK(cadre_step_begin(engine));
    for (int leaf; cadre_leaf_next(engine, &leaf);) {
        CHECK_OK(cadre_leaf_end(engine, leaf, 1.0, 1));
    }
    cadre_step_report report;
    CHECK_OK(cadre_step_end(engine, &report));
    return report;
}

static void weight_decay_leaves_alone_what_it_is_told_to(void **state)
{
    (void)state;
    const cadre_optimizer optimizers[] = {CADRE_SGD, CADRE_ADAMW};
    for (int o = 0; o < 2; o++) {
        cadre_group *world = alone();
        cadre_model *model = make_model(world);
        cadre_engine *engine;
        const cadre_engine_options options = {
            .optimizer = optimizers[o], .lr = 0.5, .weight_decay = 0.5};
        CHECK_OK(cadre_engine_create(model, &options, &engine));
        run_step(engine);
        for (int e = 0; e < 40; e++) {
            assert_true(cadre_model_param(model, 0)[e] == 1.5f);
            assert_true(cadre_model_param(model, 1)[e] == 2.0f);
        }
        cadre_engine_destroy(engine);
        cadre_model_destroy(model);
        cadre_finalize(world);
    }
}

static void every_step_has_its_schedules_rate(void **state)
{
    (void)state;
    for (int s = CADRE_CONSTANT; s <= CADRE_STEP; s++) {
        cadre_group *world = alone();
        cadre_model *model = make_model(world);
        cadre_engine *engine;
        const cadre_engine_options options = {
            .optimizer = CADRE_SGD,
            .lr = 0.5,
            .schedule = (cadre_schedule)s,
            .warmup_steps = 2,
            .total_steps = 6,
            .min_lr_factor = 0.25,
            .step_every = 2,
        };
        const cadre_rate_plan plan = {
            .shape = (cadre_rate_shape)s,
            .lr = 0.5,
            .warmup_steps = 2,
            .total_steps = 6,
            .min_lr_factor = 0.25,
            .step_every = 2,
            .step_factor = 0.1,
        };
        CHECK_OK(cadre_engine_create(model, &options, &engine));
        for (int t = 1; t <= 8; t++) {
            assert_true(run_step(engine).lr == cadre_rate(&plan, t));
        }
        cadre_engine_destroy(engine);
        cadre_model_destroy(model);
        cadre_finalize(world);
    }
}

static void a_schedule_needs_its_numbers(void **state)
{
    (void)state;
    static const struct {
        cadre_engine_options options;
        const char *words;
    } cases[] = {
        {{.schedule = CADRE_COSINE}, "total_steps is 0, this schedule needs"},
        {{.schedule = CADRE_LINEAR}, "total_steps is 0, this schedule needs"},
        {{.schedule = CADRE_STEP}, "step_every is 0, this schedule needs"},
        {{.warmup_steps = -1}, "warmup_steps is -1, it must be at least 0"},
        {{.step_every = -1}, "step_every is -1"},
        {{.step_factor = 1.5}, "step_factor is 1.5"},
        {{.min_lr_factor = 2}, "min_lr_factor is 2"},
        {{.schedule = (cadre_schedule)(CADRE_STEP + 1)}, "no schedule 4"},
    };
    cadre_group *world = alone();
    cadre_model *model = make_model(world);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cadre_engine *engine;
        CHECK_FAILS(cadre_engine_create(model, &cases[i].options, &engine),
            CADRE_ERR_INVALID_ARG, cases[i].words);
    }
    cadre_model_destroy(model);
    cadre_finalize(world);
}

// A weight, and a buffer that begins at 1.
static cadre_model *make_running(cadre_group *world)
{
    cadre_model *model;
    CHECK_OK(cadre_model_create(world, &model));
    const int64_t shape[] = {3};
    const cadre_param_options buffer = {.buffer = true};
    CHECK_OK(cadre_model_add(model, "bn.weight", shape, 1, NULL, NULL));
    CHECK_OK(cadre_model_add(model, "bn.running", shape, 1, &buffer, NULL));
    CHECK_OK(cadre_model_seal(model));
    for (int e = 0; e < 3; e++) {
        cadre_model_param(model, 1)[e] = 1.0f;
    }
    return model;
}

// A step of two leaves of 1 and 3 samples, which show the statistic so often.
static cadre_step_report run_running(cadre_engine *engine, float statistic)
{
    CHECK_OK(cadre_step_begin(engine));
    for (int leaf; cadre_leaf_next(engine, &leaf);) {
        float weight = leaf == 0 ? 1.0f : 3.0f;
        for (int p = 0; p < 2; p++) {
            float *sum = cadre_leaf_grad(engine, leaf, p);
            for (int e = 0; e < 3; e++) {
                sum[e] = p == 0 ? weight : weight * statistic;
            }
            CHECK_OK(cadre_grad_ready(engine, leaf, p));
        }
        CHECK_OK(cadre_leaf_end(engine, leaf, 1.0, (int64_t)weight));
    }
    cadre_step_report report;
    CHECK_OK(cadre_step_end(engine, &report));
    return report;
}

static void a_buffer_moves_a_tenth_of_the_way_to_the_mean(void **state)
{
    (void)state;
    const cadre_optimizer optimizers[] = {CADRE_NONE, CADRE_SGD, CADRE_ADAMW};
    for (int o = 0; o < 3; o++) {
        cadre_group *world = alone();
        cadre_model *model = make_running(world);
        cadre_engine *engine;
        // Clipping and decay are none of its business.
        const cadre_engine_options options = {.leaves = 2,
            .optimizer = optimizers[o],
            .lr = 0.5,
            .weight_decay = 0.5,
            .clip = optimizers[o] == CADRE_NONE ? 0 : 1e-3};
        CHECK_OK(cadre_engine_create(model, &options, &engine));
        uint64_t before = cadre_model_buffers_hash(model);
        float expected = 1.0f;
        for (int step = 0; step < 3; step++) {
            cadre_step_report report = run_running(engine, 11.0f);
            expected = 0.9f * expected + 0.1f * 11.0f;
            // The norm is of the weight's mean gradient, (1, 1, 1), alone.
            assert_true(fabs(report.grad_norm - sqrt(3.0)) < 1e-12);
            for (int e = 0; e < 3; e++) {
                assert_true(cadre_model_param(model, 1)[e] == expected);
            }
        }
        assert_true(cadre_model_buffers_hash(model) != before);
        assert_true((cadre_model_grad(model, 0) != NULL) ==
                    (optimizers[o] == CADRE_NONE));
        assert_null(cadre_model_grad(model, 1));
        cadre_engine_destroy(engine);
        cadre_model_destroy(model);
        cadre_finalize(world);
    }
}

static void a_statistic_that_is_not_finite_changes_nothing(void **state)
{
    (void)state;
    cadre_group *world = alone();
    cadre_model *model = make_running(world);
    cadre_engine *engine;
    const cadre_engine_options options = {
        .leaves = 2, .optimizer = CADRE_SGD, .lr = 0.5};
    CHECK_OK(cadre_engine_create(model, &options, &engine));
    uint64_t before[] = {
        cadre_model_hash(model), cadre_model_buffers_hash(model)};
    assert_true(run_running(engine, INFINITY).skipped);
    assert_true(cadre_model_hash(model) == before[0]);
    assert_true(cadre_model_buffers_hash(model) == before[1]);
    cadre_engine_destroy(engine);
    cadre_model_destroy(model);
    cadre_finalize(world);
}

static void a_buffer_cannot_be_frozen(void **state)
{
    (void)state;
    cadre_group *world = alone();
    cadre_model *model;
    CHECK_OK(cadre_model_create(world, &model));
    const int64_t shape[] = {3};
    const cadre_param_options both = {.buffer = true, .frozen = true};
    CHECK_FAILS(cadre_model_add(model, "bn.mean", shape, 1, &both, NULL),
        CADRE_ERR_INVALID_ARG, "'bn.mean' is to be frozen and a buffer");
    CHECK_OK(cadre_model_add(model, "bn.mean", shape, 1, NULL, NULL));
    CHECK_OK(cadre_model_seal(model));
    assert_true(cadre_model_buffers_hash(model) == 0);
    cadre_model_destroy(model);
    cadre_finalize(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weight_decay_leaves_alone_what_it_is_told_to),
        cmocka_unit_test(every_step_has_its_schedules_rate),
        cmocka_unit_test(a_schedule_needs_its_numbers),
        cmocka_unit_test(a_buffer_moves_a_tenth_of_the_way_to_the_mean),
        cmocka_unit_test(a_statistic_that_is_not_finite_changes_nothing),
        cmocka_unit_test(a_buffer_cannot_be_frozen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
