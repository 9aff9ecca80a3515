// SPDX-License-Identifier: Apache-2.0
//
// cadre_train() as a library call, with ranks that are threads, on data made
// here.

#include "cadre/train.h"

#include "base/alloc.h"
#include "base/folder.h"
#include "base/random.h"
#include "cadre/launch.h"
#include "cadre/log.h"
#include "nn/net.h"
#include "support/check.h"
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_TRAIN = 300, N_TEST = 130, PIXELS = 784 };

static char folder[] = "/tmp/cadre-train-XXXXXX";

static void write_file(const char *name, const void *data, size_t nbytes)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(data, 1, nbytes, stream), nbytes);
    assert_int_equal(fclose(stream), 0);
}

static void make_split(const char *name, uint8_t n_high, uint8_t n_low)
{
    enum { LABEL_HEAD = 8, IMAGE_HEAD = 16, MOST = N_TRAIN };
    static uint8_t labels[LABEL_HEAD + MOST];
    static uint8_t images[IMAGE_HEAD + MOST * PIXELS];
    const uint8_t label_head[] = {0, 0, 8, 1, 0, 0, n_high, n_low};
    const uint8_t image_head[] = {
        0, 0, 8, 3, 0, 0, n_high, n_low, 0, 0, 0, 28, 0, 0, 0, 28};
    memcpy(labels, label_head, LABEL_HEAD);
    memcpy(images, image_head, IMAGE_HEAD);
    size_t n = (size_t)n_high * 256 + n_low;
    for (size_t i = 0; i < n; i++) {
        uint32_t words[4];
        cadre_random_words(1, CADRE_STREAM_ORDER, n_low, i, words);
        labels[LABEL_HEAD + i] = (uint8_t)(words[0] % 10);
        for (size_t p = 0; p < PIXELS; p++) {
            cadre_random_words(2, CADRE_STREAM_ORDER, (uint32_t)i, p, words);
            images[IMAGE_HEAD + i * PIXELS + p] =
                (uint8_t)(words[0] % 64 +
                          (p % 10 == labels[LABEL_HEAD + i] ? 150 : 0));
        }
    }
    char file[64];
    snprintf(file, sizeof(file), "%s-labels-idx1-ubyte", name);
    write_file(file, labels, LABEL_HEAD + n);
    snprintf(file, sizeof(file), "%s-images-idx3-ubyte", name);
    write_file(file, images, IMAGE_HEAD + n * PIXELS);
}

static int make_data(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    make_split("train", N_TRAIN / 256, N_TRAIN % 256);
    make_split("t10k", 0, N_TEST);
    return 0;
}

static void out_path(const char *name, char path[CADRE_PATH_BYTES])
{
    snprintf(path, CADRE_PATH_BYTES, "%s/run%s", folder, name);
}

static int remove_run(void **state)
{
    (void)state;
    static const char *const folders[] = {
        "/checkpoints/step-1", "/checkpoints/step-2", "/checkpoints", ""};
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        char path[CADRE_PATH_BYTES];
        out_path(folders[i], path);
        if (cadre_folder_remove(path) != CADRE_OK) {
            return -1;
        }
    }
    return 0;
}

static int remove_data(void **state)
{
    (void)state;
    (void)remove_run(NULL);
    static const char *const names[] = {"train-labels-idx1-ubyte",
        "train-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[256];
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    return rmdir(folder);
}

static cadre_train_config small_config(void)
{
    cadre_train_config c;
    CHECK_OK(cadre_recipe_config("mlp-fashion", &c));
    snprintf(c.data_path, sizeof(c.data_path), "%s", folder);
    c.steps = 5;
    c.global_batch = 50;
    c.leaves = 5;
    return c;
}

typedef struct job {
    cadre_train_config config;
    cadre_train_hooks hooks;
    atomic_int n_done;
    cadre_train_summary summary; // of rank 0, which has no text to release
} job;

static cadre_status train_rank(cadre_group *world, void *ctx)
{
    job *j = ctx;
    cadre_train_summary summary;
    cadre_status status = cadre_train(world, &j->config, &j->hooks, &summary);
    if (status != CADRE_OK) {
        return status;
    }
    atomic_fetch_add(&j->n_done, 1);
    if (cadre_rank(world) == 0) {
        j->summary = summary;
        j->summary.json = NULL;
    }
    cadre_train_summary_release(&summary);
    return CADRE_OK;
}

static cadre_train_summary train_on(int n_ranks, job *j)
{
    CHECK_OK(cadre_launch_threads(n_ranks, NULL, train_rank, j, NULL));
    assert_int_equal(atomic_load(&j->n_done), n_ranks);
    return j->summary;
}

// Uneven leaves, and passes that are smaller than leaves.
static void convolutions_keep_the_bits(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        int threads;
        int fold;
    } cases[] = {{1, 1, 0}, {2, 2, 1}, {3, 1, 2}, {6, 1, 0}};
    for (int micro_batch = 0; micro_batch <= 3; micro_batch += 3) {
        uint64_t wanted = 0;
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            job j = {.config = small_config()};
            cadre_train_config cnn;
            CHECK_OK(cadre_recipe_config("cnn-fashion", &cnn));
            snprintf(
                j.config.recipe, sizeof(j.config.recipe), "%s", cnn.recipe);
            j.config.steps = 2;
            j.config.global_batch = 26;
            j.config.leaves = 6;
            j.config.micro_batch = micro_batch;
            j.config.threads = cases[i].threads;
            j.config.fold = cases[i].fold;
            j.config.bucket_mb = i % 2 == 0 ? 25 : 0.05;
            cadre_train_summary found = train_on(cases[i].ranks, &j);
            wanted = i == 0 ? found.params_hash : wanted;
            assert_true(found.params_hash == wanted);
            assert_true(found.replicas_equal);
        }
    }
}

// A narrow ResNet.
static cadre_train_config resnet_config(void)
{
    cadre_train_config c = small_config();
    cadre_train_config resnet;
    CHECK_OK(cadre_recipe_config("resnet18-fashion", &resnet));
    snprintf(c.recipe, sizeof(c.recipe), "%s", resnet.recipe);
    c.model_width = 4;
    c.steps = 2;
    c.global_batch = 22;
    c.leaves = 5;
    c.micro_batch = 3;
    return c;
}

// The loss of the test shows the buffers' bits too.
static uint64_t check_resnet(cadre_precision precision)
{
    job alone = {.config = resnet_config()};
    alone.config.precision = precision;
    cadre_train_summary wanted = train_on(1, &alone);
    static const struct {
        int ranks;
        int threads;
        cadre_mode mode;
    } cases[] = {{1, 2, CADRE_DDP}, {2, 2, CADRE_ZERO1}, {3, 1, CADRE_DDP},
        {5, 1, CADRE_ZERO1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        job j = {.config = alone.config};
        j.config.threads = cases[i].threads;
        j.config.mode = cases[i].mode;
        cadre_train_summary found = train_on(cases[i].ranks, &j);
        assert_true(found.params_hash == wanted.params_hash);
        assert_true(found.eval_loss == wanted.eval_loss);
        assert_true(found.replicas_equal);
    }
    return wanted.params_hash;
}

static void running_statistics_keep_the_bits(void **state)
{
    (void)state;
    uint64_t f32 = check_resnet(CADRE_PRECISION_F32);
    cadre_compute_assume_bf16(true);
    uint64_t bf16 = check_resnet(CADRE_PRECISION_BF16);
    cadre_compute_assume_bf16(false);
    assert_true(bf16 != f32);
}

static void running_statistics_go_on_from_a_checkpoint(void **state)
{
    (void)state;
    job whole = {.config = resnet_config()};
    cadre_train_summary wanted = train_on(1, &whole);
    job first = {.config = resnet_config()};
    first.config.steps = 1;
    out_path("", first.config.out);
    (void)train_on(2, &first);
    job j = {.config = resnet_config()};
    out_path("", j.config.out);
    out_path("", j.config.resume);
    cadre_train_summary found = train_on(3, &j);
    assert_true(found.params_hash == wanted.params_hash);
    assert_true(found.eval_loss == wanted.eval_loss);

    // And the model file has them.
    char path[CADRE_PATH_BYTES];
    out_path("/model.safetensors", path);
    cadre_group *world;
    cadre_eval_result result;
    CHECK_OK(cadre_init(NULL, &world));
    CHECK_OK(cadre_evaluate(world, &j.config, path, &result));
    assert_true(result.loss == wanted.eval_loss);
    cadre_finalize(world);
}

static void ranks_and_threads_do_not_show_in_the_bits(void **state)
{
    (void)state;
    job alone = {.config = small_config()};
    cadre_train_summary wanted = train_on(1, &alone);
    assert_int_equal(wanted.steps, 5);
    assert_true(wanted.replicas_equal);
    static const struct {
        int ranks;
        int threads;
    } cases[] = {{1, 3}, {2, 1}, {3, 2}, {5, 1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        job j = {.config = small_config()};
        j.config.threads = cases[i].threads;
        cadre_train_summary found = train_on(cases[i].ranks, &j);
        assert_true(found.params_hash == wanted.params_hash);
        assert_true(found.loss == wanted.loss);
        assert_true(found.eval_loss == wanted.eval_loss);
        assert_true(found.eval_accuracy == wanted.eval_accuracy);
    }
}

static void short_batches_and_small_passes_neither(void **state)
{
    (void)state;
    job alone = {.config = small_config()};
    alone.config.global_batch = 63; // 300 = 4 * 63 + 48
    alone.config.micro_batch = 5;
    alone.config.leaves = 8;
    alone.config.steps = 0;
    alone.config.epochs = 1;
    cadre_train_summary wanted = train_on(1, &alone);
    assert_int_equal(wanted.steps, 5);
    job j = {.config = alone.config};
    j.config.threads = 2;
    assert_true(train_on(3, &j).params_hash == wanted.params_hash);

    // More leaves than samples: some are empty.
    job few = {.config = alone.config};
    few.config.global_batch = 3;
    few.config.steps = 4;
    wanted = train_on(1, &few);
    job others = {.config = few.config};
    assert_true(train_on(4, &others).params_hash == wanted.params_hash);
}

typedef struct watcher {
    int64_t stop_at; // step; 0: never
    int64_t step;
    int64_t n_evaluations;
    double last_loss;
} watcher;

static void watch(const cadre_train_progress *progress, void *ctx)
{
    watcher *w = ctx;
    if (progress->evaluated) {
        w->n_evaluations++;
        return;
    }
    assert_int_equal(progress->step, w->step + 1);
    w->step = progress->step;
    w->last_loss = progress->loss;
}

static int ask_to_stop(void *ctx)
{
    const watcher *w = ctx;
    return w->stop_at > 0 && w->step + 1 >= w->stop_at ? SIGTERM : 0;
}

static void progress_is_told_step_by_step(void **state)
{
    (void)state;
    watcher w = {0};
    job j = {.config = small_config(),
        .hooks = {.ctx = &w, .progress = watch, .stop_signal = ask_to_stop}};
    j.config.eval_every = 2;
    cadre_train_summary summary = train_on(1, &j);
    assert_int_equal(w.step, 5);
    assert_int_equal(w.n_evaluations, 3); // after 2, 4 and 5
    assert_int_equal(summary.stopped_by, 0);
}

static void a_stop_is_after_the_step_in_which_it_is_asked_for(void **state)
{
    (void)state;
    watcher w = {.stop_at = 4};
    job j = {.config = small_config(),
        .hooks = {.ctx = &w, .progress = watch, .stop_signal = ask_to_stop}};
    cadre_train_summary stopped = train_on(1, &j);
    assert_int_equal(stopped.steps, 4);
    assert_int_equal(stopped.stopped_by, SIGTERM);
    assert_int_equal(w.n_evaluations, 0);

    job whole = {.config = small_config()};
    whole.config.steps = 4;
    assert_true(train_on(2, &whole).params_hash == stopped.params_hash);
}

// Rank 1 alone is asked to stop; all must.
static cadre_status train_or_stop(cadre_group *world, void *ctx)
{
    job mine = {.config = ((job *)ctx)->config};
    watcher w = {.stop_at = 1};
    if (cadre_rank(world) == 1) {
        mine.hooks = (cadre_train_hooks){.ctx = &w, .stop_signal = ask_to_stop};
    }
    cadre_status status = train_rank(world, &mine);
    if (cadre_rank(world) == 0) {
        ((job *)ctx)->summary = mine.summary;
    }
    return status;
}

static void one_rank_that_is_asked_stops_all(void **state)
{
    (void)state;
    job j = {.config = small_config()};
    CHECK_OK(cadre_launch_threads(3, NULL, train_or_stop, &j, NULL));
    assert_int_equal(j.summary.steps, 1);
    assert_int_equal(j.summary.stopped_by, SIGTERM);
}

static const char *refuse_to_begin(void *ctx)
{
    atomic_fetch_add((atomic_int *)ctx, 1);
    return "the folder is taken";
}

// Asked once, before anything is written; all ranks fail with its sentence.
static void who_writes_may_refuse(void **state)
{
    (void)state;
    atomic_int n_asked = 0;
    job j = {
        .config = small_config(),
        .hooks = {.ctx = &n_asked, .begin = refuse_to_begin},
    };
    out_path("", j.config.out);
    CHECK_FAILS(cadre_launch_threads(2, NULL, train_rank, &j, NULL),
        CADRE_ERR_IO, "the folder is taken");
    assert_int_equal(atomic_load(&n_asked), 1);
    assert_int_equal(access(j.config.out, F_OK), -1);

    j.config.global_batch = 0;
    CHECK_FAILS(cadre_launch_threads(2, NULL, train_rank, &j, NULL),
        CADRE_ERR_INVALID_ARG, "train.global_batch is 0");
    assert_int_equal(atomic_load(&n_asked), 1);
}

// Rank 2 has another seed, or another number of steps.
static cadre_status train_otherwise(cadre_group *world, void *ctx)
{
    job mine = {.config = ((job *)ctx)->config};
    if (cadre_rank(world) == 2) {
        mine.config.seed += mine.config.steps == 5;
        mine.config.steps = 6;
    }
    return train_rank(world, &mine);
}

static void ranks_that_would_do_something_else_fail(void **state)
{
    (void)state;
    job j = {.config = small_config()};
    CHECK_FAILS(cadre_launch_threads(3, NULL, train_otherwise, &j, NULL),
        CADRE_ERR_DESYNC, "rank 2 would compute other bits than rank 0");
    j.config.steps = 7;
    CHECK_FAILS(cadre_launch_threads(3, NULL, train_otherwise, &j, NULL),
        CADRE_ERR_DESYNC, "rank 2 would make 6 steps and rank 0 7");
}

static void a_trace_needs_a_folder(void **state)
{
    (void)state;
    job j = {.config = small_config()};
    j.config.trace_first = 2;
    j.config.trace_count = 1;
    CHECK_FAILS(cadre_launch_threads(2, NULL, train_rank, &j, NULL),
        CADRE_ERR_INVALID_ARG, "a trace needs a folder");
    j.config.trace_first = 6;
    CHECK_FAILS(cadre_train_check(&j.config, 2), CADRE_ERR_INVALID_ARG,
        "begin at step 6, but the run has 5 steps");
}

static void a_configuration_that_makes_no_sense_is_refused(void **state)
{
    (void)state;
    cadre_train_config c = small_config();
    CHECK_OK(cadre_train_check(&c, 5));
    CHECK_FAILS(cadre_train_check(&c, 6), CADRE_ERR_INVALID_ARG,
        "6 ranks but 5 leaves");
    c.global_batch = N_TRAIN + 1;
    CHECK_FAILS(cadre_train_check(&c, 1), CADRE_ERR_INVALID_ARG,
        "train.global_batch is 301");
    c.global_batch = 0;
    CHECK_FAILS(cadre_train_check(&c, 1), CADRE_ERR_INVALID_ARG,
        "train.global_batch is 0");
    c = small_config();
    c.steps = 0;
    c.epochs = 0;
    CHECK_FAILS(
        cadre_train_check(&c, 1), CADRE_ERR_INVALID_ARG, "nothing to do");
    const struct {
        double *value;
        double bad;
        const char *words;
    } numbers[] = {
        {&c.lr, -1, "optim.lr is -1"},
        {&c.lr, (double)NAN, "optim.lr is nan"},
        {&c.lr, (double)INFINITY, "lr is inf"},
        {&c.weight_decay, -1, "optim.weight_decay is -1"},
        {&c.clip, -1, "optim.clip is -1"},
        {&c.beta1, 0.9999995, "beta1 is 0.9999995"},
        {&c.min_lr_factor, 2, "min_lr_factor is 2"},
        {&c.bucket_mb, 1e300, "parallel.bucket_mb is 1e+300"},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        c = small_config();
        *numbers[i].value = numbers[i].bad;
        CHECK_FAILS(
            cadre_train_check(&c, 1), CADRE_ERR_INVALID_ARG, numbers[i].words);
    }
    c = small_config();
    c.optimizer = CADRE_NONE;
    CHECK_FAILS(
        cadre_train_check(&c, 1), CADRE_ERR_INVALID_ARG, "optim.name is 0");
    c = small_config();
    c.model_width = -1;
    CHECK_FAILS(
        cadre_train_check(&c, 1), CADRE_ERR_INVALID_ARG, "model.width is -1");
    c = small_config();
    c.schedule = CADRE_COSINE; // over the steps of the run
    CHECK_OK(cadre_train_check(&c, 1));
    CHECK_FAILS(
        cadre_train_check(NULL, 1), CADRE_ERR_INVALID_ARG, "configuration");
    c = small_config();
    c.threads_per_leaf = 2;
    CHECK_FAILS(
        cadre_train_check(&c, 1), CADRE_ERR_UNSUPPORTED, "not built yet");
    c = small_config();
    snprintf(c.recipe, sizeof(c.recipe), "no-such");
    CHECK_FAILS(cadre_train_check(&c, 1), CADRE_ERR_NOT_FOUND, "mlp-fashion");
    c = small_config();
    snprintf(c.data_path, sizeof(c.data_path), "%s/none", folder);
    CHECK_FAILS(cadre_train_check(&c, 1), CADRE_ERR_NOT_FOUND, "t10k");
}

// Rank 0 looks, while others may be a step behind, or ahead at the evaluation.
static void note_allocations(const cadre_train_progress *progress, void *ctx)
{
    uint64_t *calls = ctx;
    if (progress->step == 2) {
        *calls = cadre_alloc_calls();
    }
    if (progress->step == progress->n_steps - 2) {
        *calls = cadre_alloc_calls() - *calls;
    }
}

static void nothing_is_allocated_after_the_first_steps(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n += 2) {
        uint64_t calls = 0;
        job j = {.config = small_config(),
            .hooks = {.ctx = &calls, .progress = note_allocations}};
        j.config.global_batch = 63;
        j.config.steps = 12;
        (void)train_on(n, &j);
        assert_int_equal(calls, 0);
    }
}

// Every failed allocation, but for the thread sanitizer: one thread allocates.
#if defined(__SANITIZE_THREAD__)
enum { ALLOCATIONS_STEP = 37 };
#else
enum { ALLOCATIONS_STEP = 1 };
#endif

static void no_memory_anywhere_is_an_error_and_no_leak(void **state)
{
    (void)state;
    cadre_status status = CADRE_ERR_NO_MEMORY;
    for (int64_t n = 0; status != CADRE_OK; n += ALLOCATIONS_STEP) {
        job j = {.config = small_config()};
        j.config.steps = 1;
        j.config.threads = 2;
        j.config.trace_first = 1;
        j.config.trace_count = 1;
        snprintf(j.config.out, sizeof(j.config.out), "%s/run", folder);
        cadre_alloc_fail_after(n);
        status = cadre_launch_threads(1, NULL, train_rank, &j, NULL);
        cadre_alloc_fail_after(-1);
        if (status != CADRE_OK) {
            assert_int_equal(status, CADRE_ERR_NO_MEMORY);
        }
        assert_true(n < 10000);
    }
    (void)remove_run(NULL);
}

// What a recipe does not say must be what the help says.
static void every_recipe_has_the_defaults_of_its_keys(void **state)
{
    (void)state;
    const char *name;
    for (int i = 0; (name = cadre_recipe_name(i)) != NULL; i++) {
        cadre_train_config c;
        CHECK_OK(cadre_recipe_config(name, &c));
        assert_true(c.step_factor == 0.1);
        assert_int_equal(c.checkpoint_keep, 2);
        assert_true(c.resume[0] == '\0' && c.resume_step == 0);
    }
}

static void no_memory_to_resume_is_an_error_and_no_leak(void **state)
{
    (void)state;
    job first = {.config = small_config()};
    first.config.steps = 1;
    out_path("", first.config.out);
    (void)train_on(1, &first);
    job whole = {.config = small_config()};
    whole.config.steps = 2;
    uint64_t wanted = train_on(1, &whole).params_hash;

    cadre_status status = CADRE_ERR_NO_MEMORY;
    for (int64_t n = 0; status != CADRE_OK; n += ALLOCATIONS_STEP) {
        job j = {.config = whole.config};
        out_path("", j.config.out);
        out_path("", j.config.resume);
        cadre_alloc_fail_after(n);
        status = cadre_launch_threads(1, NULL, train_rank, &j, NULL);
        cadre_alloc_fail_after(-1);
        assert_true(n < 10000);
        if (status == CADRE_OK) {
            assert_true(j.summary.params_hash == wanted);
            continue;
        }
        assert_int_equal(status, CADRE_ERR_NO_MEMORY);
        // It may have failed later than in the step.
        char done[CADRE_PATH_BYTES];
        out_path("/checkpoints/step-2", done);
        CHECK_OK(cadre_folder_remove(done));
    }
}

static void a_resumed_run_wants_the_same_on_all_ranks(void **state)
{
    (void)state;
    job j = {.config = small_config()};
    out_path("", j.config.resume);
    CHECK_FAILS(cadre_launch_threads(2, NULL, train_rank, &j, NULL),
        CADRE_ERR_CORRUPT, "no checkpoint");
    CHECK_FAILS(
        cadre_train_adopt(&j.config), CADRE_ERR_CORRUPT, "no checkpoint");

    job first = {.config = small_config()};
    first.config.steps = 2;
    out_path("", first.config.out);
    (void)train_on(2, &first);
    j.config.lr = 0.5;
    CHECK_FAILS(cadre_launch_threads(3, NULL, train_rank, &j, NULL),
        CADRE_ERR_INVALID_ARG, "optim.lr is 0.5");
    j.config = first.config;
    out_path("", j.config.resume);
    CHECK_FAILS(cadre_launch_threads(3, NULL, train_rank, &j, NULL),
        CADRE_ERR_INVALID_ARG, "nothing is left to do");
    j.config.leaves = 0;
    CHECK_FAILS(cadre_launch_threads(6, NULL, train_rank, &j, NULL),
        CADRE_ERR_INVALID_ARG, "6 ranks but 5 leaves");
    CHECK_OK(cadre_train_adopt(&j.config));
    assert_int_equal(j.config.leaves, 5);
    assert_int_equal(j.config.resume_step, 2);
}

// How many lines of metrics.jsonl have an evaluation, of how many.
static void count_lines(int *n_evaluated, int *n_lines)
{
    char path[CADRE_PATH_BYTES];
    out_path("/metrics.jsonl", path);
    FILE *stream = fopen(path, "re");
    assert_non_null(stream);
    static char line[4096];
    *n_evaluated = *n_lines = 0;
    while (fgets(line, sizeof(line), stream) != NULL) {
        ++*n_lines;
        *n_evaluated += strstr(line, "\"eval_accuracy\":") != NULL;
    }
    (void)fclose(stream);
}

// A run of 2 steps, each evaluated, that is stopped after one of them.
static cadre_train_config stopped_run(int64_t stop_at)
{
    watcher w = {.stop_at = stop_at};
    job first = {.config = small_config(),
        .hooks = {.ctx = &w, .progress = watch, .stop_signal = ask_to_stop}};
    first.config.steps = 2;
    first.config.eval_every = 1;
    out_path("", first.config.out);
    cadre_train_summary stopped = train_on(1, &first);
    assert_int_equal(stopped.steps, stop_at);
    assert_int_equal(stopped.stopped_by, SIGTERM);
    assert_true(isnan(stopped.eval_loss));
    int n_evaluated;
    int n_lines;
    count_lines(&n_evaluated, &n_lines);
    assert_int_equal(n_evaluated, stop_at - 1);
    assert_int_equal(n_lines, stop_at);
    out_path("", first.config.resume);
    return first.config;
}

static void check_ends(const cadre_train_config *config, int n_ranks)
{
    job whole = {.config = small_config()};
    whole.config.steps = 2;
    cadre_train_summary wanted = train_on(1, &whole);
    job j = {.config = *config};
    cadre_train_summary found = train_on(n_ranks, &j);
    assert_int_equal(found.steps, 2);
    assert_int_equal(found.stopped_by, 0);
    assert_true(found.params_hash == wanted.params_hash);
    assert_true(found.eval_loss == wanted.eval_loss);
    assert_true(found.eval_accuracy == wanted.eval_accuracy);
    int n_evaluated;
    int n_lines;
    count_lines(&n_evaluated, &n_lines);
    assert_int_equal(n_evaluated, 2);
    assert_int_equal(n_lines, 2);
    CHECK_FAILS(cadre_launch_threads(n_ranks, NULL, train_rank, &j, NULL),
        CADRE_ERR_INVALID_ARG, "nothing is left to do");
}

static void what_a_stop_left_out_is_evaluated_on_resume(void **state)
{
    (void)state;
    cadre_train_config c = stopped_run(2);
    check_ends(&c, 3);
    // So it is where the run died after its last checkpoint.
    char path[CADRE_PATH_BYTES];
    out_path("/summary.json", path);
    assert_int_equal(unlink(path), 0);
    check_ends(&c, 1);
}

static void an_evaluation_on_the_way_is_not_left_out(void **state)
{
    (void)state;
    cadre_train_config c = stopped_run(1);
    check_ends(&c, 2);
}

static void count_sentences(
    cadre_log_level level, const char *component, const char *line, void *ctx)
{
    (void)level;
    (void)component;
    int *n = ctx;
    *n += strstr(line, "no instructions for products of bf16") != NULL;
}

// Rank 0 says so, before training and before an evaluation.
static void f32_is_used_where_bf16_is_not_to_be_had(void **state)
{
    (void)state;
    if (cadre_compute_has_bf16()) {
        skip();
    }
    job plain = {.config = small_config()};
    uint64_t wanted = train_on(1, &plain).params_hash;
    int n = 0;
    cadre_log_set_sink(CADRE_LOG_WARN, count_sentences, &n);
    job j = {.config = small_config()};
    j.config.precision = CADRE_PRECISION_BF16;
    assert_string_equal(cadre_train_precision(&j.config), "f32");
    assert_true(train_on(3, &j).params_hash == wanted);
    cadre_log_set_sink(CADRE_LOG_WARN, NULL, NULL);
    assert_int_equal(n, 1);
}

static void a_run_goes_on_in_its_own_precision(void **state)
{
    (void)state;
    cadre_compute_assume_bf16(true);
    job whole = {.config = small_config()};
    whole.config.precision = CADRE_PRECISION_BF16;
    whole.config.steps = 2;
    uint64_t wanted = train_on(1, &whole).params_hash;
    job first = {.config = whole.config};
    first.config.steps = 1;
    out_path("", first.config.out);
    (void)train_on(2, &first);

    job j = {.config = whole.config};
    out_path("", j.config.out);
    out_path("", j.config.resume);
    j.config.precision = CADRE_PRECISION_F32;
    CHECK_FAILS(cadre_launch_threads(2, NULL, train_rank, &j, NULL),
        CADRE_ERR_INVALID_ARG,
        "train.precision is f32, but in the run that is resumed it is bf16:");
    j.config.precision = CADRE_PRECISION_BF16;
    assert_true(train_on(2, &j).params_hash == wanted);
    cadre_compute_assume_bf16(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_keep_the_bits),
        cmocka_unit_test(running_statistics_keep_the_bits),
        cmocka_unit_test_teardown(
            running_statistics_go_on_from_a_checkpoint, remove_run),
        cmocka_unit_test(ranks_and_threads_do_not_show_in_the_bits),
        cmocka_unit_test(short_batches_and_small_passes_neither),
        cmocka_unit_test(progress_is_told_step_by_step),
        cmocka_unit_test(a_stop_is_after_the_step_in_which_it_is_asked_for),
        cmocka_unit_test(one_rank_that_is_asked_stops_all),
        cmocka_unit_test(who_writes_may_refuse),
        cmocka_unit_test(ranks_that_would_do_something_else_fail),
        cmocka_unit_test(a_trace_needs_a_folder),
        cmocka_unit_test(a_configuration_that_makes_no_sense_is_refused),
        cmocka_unit_test(every_recipe_has_the_defaults_of_its_keys),
        cmocka_unit_test(nothing_is_allocated_after_the_first_steps),
        cmocka_unit_test(no_memory_anywhere_is_an_error_and_no_leak),
        cmocka_unit_test_teardown(
            no_memory_to_resume_is_an_error_and_no_leak, remove_run),
        cmocka_unit_test_teardown(
            a_resumed_run_wants_the_same_on_all_ranks, remove_run),
        cmocka_unit_test_teardown(
            what_a_stop_left_out_is_evaluated_on_resume, remove_run),
        cmocka_unit_test_teardown(
            an_evaluation_on_the_way_is_not_left_out, remove_run),
        cmocka_unit_test(f32_is_used_where_bf16_is_not_to_be_had),
        cmocka_unit_test_teardown(
            a_run_goes_on_in_its_own_precision, remove_run),
    };
    return cmocka_run_group_tests(tests, make_data, remove_data);
}
