// SPDX-License-Identifier: Apache-2.0

#include "train/identity.h"

#include "base/alloc.h"
#include "support/check.h"
#include <stdio.h>

static cadre_train_config config_of_recipe(void)
{
    cadre_train_config config;
    CHECK_OK(cadre_recipe_config("mlp-fashion", &config));
    return config;
}

// A task with data that nobody reads.
static uint64_t hash_on(
    const cadre_train_config *config, int n_leaves, uint64_t content_hash)
{
    cadre_dataset data = {
        .n_samples = 60000,
        .channels = 1,
        .height = 28,
        .width = 28,
        .n_classes = 10,
        .content_hash = content_hash,
    };
    cadre_task task = {.train = &data};
    CHECK_OK(cadre_recipe_find(config->recipe, &task.recipe));
    return cadre_identity_hash(config, &task, &(cadre_dealing){n_leaves, 2, 3});
}

static uint64_t hash_of(const cadre_train_config *config, int n_leaves)
{
    return hash_on(config, n_leaves, 1);
}

static void what_may_change_freely_is_not_in_it(void **state)
{
    (void)state;
    cadre_train_config c = config_of_recipe();
    uint64_t hash = hash_of(&c, 8);
    c.threads = 7;
    c.fold = 4;
    c.bucket_mb = 0.05;
    c.timeout_ms = 1;
    c.steps = 12;
    c.log_every = 3;
    c.eval_every = 9;
    snprintf(c.transport, sizeof(c.transport), "tcp");
    snprintf(c.out, sizeof(c.out), "elsewhere");
    snprintf(c.data_path, sizeof(c.data_path), "a copy");
    assert_true(hash_of(&c, 8) == hash);
}

static void what_may_change_bits_is_in_it(void **state)
{
    (void)state;
    const cadre_train_config plain = config_of_recipe();
    uint64_t hash = hash_of(&plain, 8);
    assert_true(hash_of(&plain, 7) != hash);
    assert_true(hash_on(&plain, 8, 2) != hash);

    enum { N = 23 };
    cadre_train_config c[N];
    for (int i = 0; i < N; i++) {
        c[i] = plain;
    }
    c[0].seed = 2;
    c[1].global_batch = 127;
    c[2].micro_batch = 4;
    c[3].data_drop_last = true;
    c[4].optimizer = CADRE_SGD;
    c[5].lr = 0.0011;
    c[6].weight_decay = 0;
    c[7].beta1 = 0.8;
    c[8].eps = 1e-7;
    c[9].clip = 1;
    c[10].warmup_steps = 1;
    c[11].decay = CADRE_DECAY_WEIGHTS;
    c[12].schedule = CADRE_COSINE;
    c[13].schedule = CADRE_LINEAR;
    c[14].schedule = CADRE_STEP;
    c[15].model_layers = 3;
    c[16].model_width = 16;
    c[17].model_heads = 2;
    c[18].model_context = 64;
    c[19].data_side = 32;
    c[20].data_side = c[21].data_side = 33;
    c[21].data_augment = true;
    c[22].precision = CADRE_PRECISION_BF16;
    cadre_compute_assume_bf16(true);
    for (int i = 0; i < N; i++) {
        assert_true(hash_of(&c[i], 8) != hash);
    }
    assert_true(hash_of(&c[20], 8) != hash_of(&c[21], 8));

    // What is computed in is in it, and not what was asked for.
    cadre_compute_assume_bf16(false);
    bool has_bf16 = cadre_compute_has_bf16();
    assert_true((hash_of(&c[22], 8) == hash) == !has_bf16);
}

static void the_ring_has_ranks_and_fold_in_it(void **state)
{
    (void)state;
    static const cadre_dealing dealings[] = {{8, 2, 3}, {8, 2, 4}, {8, 1, 3}};
    cadre_dataset data = {.n_classes = 10};
    cadre_task task = {.train = &data};
    cadre_train_config c = config_of_recipe();
    CHECK_OK(cadre_recipe_find(c.recipe, &task.recipe));
    uint64_t canonical = cadre_identity_hash(&c, &task, &dealings[0]);
    for (int i = 0; i < 3; i++) {
        assert_true(cadre_identity_hash(&c, &task, &dealings[i]) == canonical);
    }
    snprintf(c.order, sizeof(c.order), "ring");
    uint64_t ring = cadre_identity_hash(&c, &task, &dealings[0]);
    assert_true(ring != canonical);
    assert_true(cadre_identity_hash(&c, &task, &dealings[1]) != ring);
    assert_true(cadre_identity_hash(&c, &task, &dealings[2]) != ring);
}

static void a_schedules_numbers_are_in_it_where_they_are_used(void **state)
{
    (void)state;
    cadre_train_config c = config_of_recipe();
    uint64_t constant = hash_of(&c, 8);
    c.total_steps = 9;
    c.min_lr_factor = 0.5;
    c.step_every = 3;
    c.step_factor = 0.7;
    assert_true(hash_of(&c, 8) == constant);
    for (int s = CADRE_COSINE; s <= CADRE_LINEAR; s++) {
        c.schedule = (cadre_schedule)s;
        cadre_train_config other = c;
        other.total_steps = 10;
        assert_true(hash_of(&other, 8) != hash_of(&c, 8));
        other = c;
        other.min_lr_factor = 0.25;
        assert_true(hash_of(&other, 8) != hash_of(&c, 8));
        other = c;
        other.step_every = 4;
        assert_true(hash_of(&other, 8) == hash_of(&c, 8));
    }
    c.schedule = CADRE_STEP;
    cadre_train_config other = c;
    other.step_every = 4;
    assert_true(hash_of(&other, 8) != hash_of(&c, 8));
    other = c;
    other.step_factor = 0.5;
    assert_true(hash_of(&other, 8) != hash_of(&c, 8));
}

static void the_first_difference_is_named(void **state)
{
    (void)state;
    cadre_train_config c = config_of_recipe();
    char *kept = cadre_identity_text(&c, NULL, 8);
    char *same = cadre_identity_text(&c, NULL, 8);
    assert_non_null(kept);
    assert_non_null(same);
    CHECK_OK(cadre_identity_compare(same, kept, false));
    c.lr = 0.5;
    c.clip = 1;
    char *other = cadre_identity_text(&c, NULL, 8);
    CHECK_FAILS(cadre_identity_compare(other, kept, true),
        CADRE_ERR_INVALID_ARG,
        "optim.lr is 0.5, but in the run that is resumed it is 0.001:");

    // Another host's instruction set counts only if it is asked for.
    char *compute = strstr(kept, "compute ");
    assert_non_null(compute);
    compute[8] = '#';
    CHECK_OK(cadre_identity_compare(same, kept, true));
    CHECK_FAILS(cadre_identity_compare(same, kept, false),
        CADRE_ERR_INVALID_ARG, "compute is ");
    CHECK_FAILS(cadre_identity_compare(same, "", true), CADRE_ERR_INVALID_ARG,
        "it is missing");
    cadre_free(other);
    cadre_free(same);
    cadre_free(kept);
}

static void a_pass_of_the_largest_leaf_is_the_whole_leaf(void **state)
{
    (void)state;
    cadre_train_config c = config_of_recipe();
    c.global_batch = 63; // leaves of 7 and 8
    uint64_t hash = hash_of(&c, 8);
    c.micro_batch = 8;
    assert_true(hash_of(&c, 8) == hash);
    c.micro_batch = 7;
    assert_true(hash_of(&c, 8) != hash);
}

static void the_command_says_what_differs_from_the_recipe(void **state)
{
    (void)state;
    cadre_train_config c = config_of_recipe();
    char *command = cadre_identity_command(&c, &(cadre_dealing){8, 2, 3}, 300);
    assert_string_equal(command,
        "cadre train mlp-fashion -n 1 --steps 300 --set parallel.leaves=8");
    cadre_free(command);

    c.optimizer = CADRE_SGD;
    c.lr = 0.1;
    c.momentum = 0.9;
    c.global_batch = 63;
    snprintf(c.data_path, sizeof(c.data_path), "/it's here");
    command = cadre_identity_command(&c, &(cadre_dealing){1, 1, 1}, 5);
    assert_string_equal(command,
        "cadre train mlp-fashion -n 1 --steps 5 --set parallel.leaves=1 "
        "--set train.global_batch=63 --set optim.name=sgd --set optim.lr=0.1 "
        "--set optim.momentum=0.9 --set data.path='/it'\\''s here'");
    cadre_free(command);

    c = config_of_recipe();
    snprintf(c.order, sizeof(c.order), "ring");
    command = cadre_identity_command(&c, &(cadre_dealing){8, 2, 3}, 4);
    assert_string_equal(command,
        "cadre train mlp-fashion -n 3 --steps 4 --set parallel.leaves=8 "
        "--set parallel.order=ring --set parallel.fold=2");
    cadre_free(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_may_change_freely_is_not_in_it),
        cmocka_unit_test(what_may_change_bits_is_in_it),
        cmocka_unit_test(the_ring_has_ranks_and_fold_in_it),
        cmocka_unit_test(a_schedules_numbers_are_in_it_where_they_are_used),
        cmocka_unit_test(the_first_difference_is_named),
        cmocka_unit_test(a_pass_of_the_largest_leaf_is_the_whole_leaf),
        cmocka_unit_test(the_command_says_what_differs_from_the_recipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
