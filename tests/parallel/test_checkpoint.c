// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints of an engine: what goes on from one has the bits of what was
// never interrupted, and whatever is wrong is known to all ranks.

#include "support/check.h"

#include "base/folder.h"
#include "base/random.h"
#include "cadre/cadre.h"
#include "parallel/engine.h"
#include "parallel/whole.h"
#include "support/ranks.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TIMEOUT_MS = 60000, N_PARAMS = 4, LEAVES = 5, STOP = 3, STEPS = 7 };

static char folder[] = "/tmp/cadre-checkpoint-XXXXXX";
static char dir[128];
static const char *const file_names[] = {"manifest.json", "params.safetensors",
    "exp_avg.safetensors", "exp_avg_sq.safetensors"};

static const struct {
    const char *name;
    int64_t count;
    bool frozen;
    bool buffer;
} params[N_PARAMS] = {{"a.weight", 1961, false, false},
    {"a.scale", 300, true, false}, {"a.running", 40, false, true},
    {"b.weight", 700, false, false}};

typedef struct job {
    cadre_engine_options options;
    int from; // steps in the checkpoint that is loaded; 0: none is
    int to;   // steps in all
    bool save;
    uint64_t hash; // at the end, on rank 0
    double lr;     // of the last step
} job;

static cadre_engine_options options_with(cadre_optimizer optimizer)
{
    return (cadre_engine_options){
        .leaves = LEAVES,
        .optimizer = optimizer,
        .lr = 0.01,
        .momentum = optimizer == CADRE_SGD ? 0.9 : 0,
        .schedule = CADRE_COSINE,
        .warmup_steps = 2,
        .total_steps = STEPS,
    };
}

static void fill(float *x, size_t count, uint32_t what, uint64_t where)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t w[4];
        cadre_random_words(3, CADRE_STREAM_INITIAL, what, (where << 32) + i, w);
        x[i] = cadre_random_unit(w[0]) - 0.5f;
    }
}

static cadre_model *make_model(cadre_group *world, int64_t last_count)
{
    cadre_model *model;
    RANK_OK(cadre_model_create(world, &model));
    for (int i = 0; i < N_PARAMS; i++) {
        const cadre_param_options o = {
            .frozen = params[i].frozen, .buffer = params[i].buffer};
        int64_t count = i == N_PARAMS - 1 ? last_count : params[i].count;
        RANK_OK(cadre_model_add(model, params[i].name, &count, 1, &o, NULL));
    }
    RANK_OK(cadre_model_seal(model));
    for (int i = 0; i < N_PARAMS; i++) {
        fill(cadre_model_param(model, i), cadre_model_param_elements(model, i),
            (uint32_t)i, 0);
    }
    return model;
}

// A gradient that depends on the parameters, so that each step counts.
static void run_leaf(
    cadre_model *model, cadre_engine *engine, int step, int leaf)
{
    for (int i = 0; i < N_PARAMS; i++) {
        if (params[i].frozen) {
            continue;
        }
        float *g = cadre_leaf_grad(engine, leaf, i);
        const float *p = cadre_model_param(model, i);
        size_t count = cadre_model_param_elements(model, i);
        RANK_CHECK(g != NULL);
        fill(g, count, (uint32_t)(10 + i), (uint64_t)(step * 100 + leaf));
        for (size_t e = 0; e < count; e++) {
            g[e] += p[e];
        }
        RANK_OK(cadre_grad_ready(engine, leaf, i));
    }
    RANK_OK(cadre_leaf_end(engine, leaf, 1.0, 2));
}

static void run_step(cadre_model *model, cadre_engine *engine, int step,
    cadre_step_report *report)
{
    RANK_OK(cadre_step_begin(engine));
    for (int leaf; cadre_leaf_next(engine, &leaf);) {
        run_leaf(model, engine, step, leaf);
    }
    RANK_OK(cadre_step_end(engine, report));
}

static void train(cadre_group *world, void *ctx)
{
    job *j = ctx;
    cadre_model *model = make_model(world, params[N_PARAMS - 1].count);
    cadre_engine *engine;
    RANK_OK(cadre_engine_create(model, &j->options, &engine));
    if (j->from > 0) {
        RANK_OK(cadre_checkpoint_load(engine, dir));
        RANK_CHECK(strcmp(cadre_engine_note(engine), "{\"at\": 3}") == 0);
    }
    cadre_step_report report = {0};
    for (int step = j->from + 1; step <= j->to; step++) {
        run_step(model, engine, step, &report);
        RANK_CHECK(report.step == step);
    }
    if (j->save) {
        // Rank 0's note is the one that counts.
        RANK_OK(cadre_engine_set_note(
            engine, cadre_rank(world) == 0 ? "{\"at\": 3}" : "something else"));
        RANK_OK(cadre_checkpoint_save(engine, dir));
    }
    if (cadre_rank(world) == 0) {
        j->hash = cadre_model_hash(model) ^ cadre_model_buffers_hash(model);
        j->lr = report.lr;
    }
    cadre_engine_destroy(engine);
    cadre_model_destroy(model);
}

static void run_job(int n, job *j)
{
    run_as_threads(LINK_INPROC, n, TIMEOUT_MS, train, j);
}

static void save_with(int n, cadre_engine_options options)
{
    job first = {.options = options, .to = STOP, .save = true};
    run_job(n, &first);
}

static int remove_checkpoint(void **state)
{
    (void)state;
    return cadre_folder_remove(dir) == CADRE_OK ? 0 : -1;
}

static void what_goes_on_has_the_bits_of_the_uninterrupted(void **state)
{
    (void)state;
    static const int ranks[][2] = {{4, 3}, {1, 5}, {5, 1}, {2, 2}};
    const cadre_optimizer optimizers[] = {CADRE_ADAMW, CADRE_SGD};
    for (size_t o = 0; o < 2; o++) {
        cadre_engine_options options = options_with(optimizers[o]);
        job whole = {.options = options, .to = STEPS};
        run_job(2, &whole);
        for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
            save_with(ranks[i][0], options);
            job rest = {.options = options, .from = STOP, .to = STEPS};
            run_job(ranks[i][1], &rest);
            assert_true(rest.hash == whole.hash);
            assert_true(rest.lr == whole.lr);
        }
    }
}

static void a_checkpoint_says_what_it_is(void **state)
{
    (void)state;
    save_with(2, options_with(CADRE_ADAMW));
    cadre_checkpoint_info info;
    CHECK_OK(cadre_checkpoint_inspect(dir, &info));
    assert_int_equal(info.step, STOP);
    assert_int_equal(info.leaves, LEAVES);
    assert_int_equal(info.world_size, 2);
    assert_string_equal(info.note, "{\"at\": 3}");
    cadre_checkpoint_info_release(&info);
    char aside[160];
    snprintf(aside, sizeof(aside), "%s" CADRE_ASIDE, dir);
    assert_int_equal(access(aside, F_OK), -1);
}

// A load that must fail alike on all ranks, and leave the group whole.
typedef struct refusal {
    cadre_engine_options options;
    int64_t last_count;
    cadre_status status;
    const char *words;
} refusal;

static void be_refused(cadre_group *world, void *ctx)
{
    const refusal *r = ctx;
    cadre_model *model = make_model(
        world, r->last_count > 0 ? r->last_count : params[N_PARAMS - 1].count);
    cadre_engine *engine;
    RANK_OK(cadre_engine_create(model, &r->options, &engine));
    uint64_t hash = cadre_model_hash(model);
    RANK_CHECK(cadre_checkpoint_load(engine, dir) == r->status);
    RANK_CHECK(strstr(cadre_error_text(), r->words) != NULL);
    RANK_CHECK(cadre_model_hash(model) == hash);
    RANK_OK(cadre_barrier(world, NULL));
    cadre_engine_destroy(engine);
    cadre_model_destroy(model);
}

static void check_refused(
    cadre_engine_options options, cadre_status status, const char *words)
{
    refusal r = {.options = options, .status = status, .words = words};
    run_as_threads(LINK_INPROC, 3, TIMEOUT_MS, be_refused, &r);
}

static void other_settings_are_refused_by_name(void **state)
{
    (void)state;
    const cadre_engine_options options = options_with(CADRE_ADAMW);
    save_with(2, options);
    cadre_engine_options o = options;
    o.lr = 0.02;
    o.clip = 1;
    check_refused(o, CADRE_ERR_INVALID_ARG, "lr 0.01");
    o = options;
    o.total_steps = STEPS + 1;
    check_refused(o, CADRE_ERR_INVALID_ARG, "total_steps 7");
    check_refused(
        options_with(CADRE_SGD), CADRE_ERR_INVALID_ARG, "optimizer 2");
    o = options;
    o.leaves = 0; // as many as there are ranks
    check_refused(o, CADRE_ERR_INVALID_ARG, "made with 5 leaves, not 3");

    refusal r = {.options = options,
        .last_count = 699,
        .status = CADRE_ERR_CORRUPT,
        .words = "another model"};
    run_as_threads(LINK_INPROC, 2, TIMEOUT_MS, be_refused, &r);

    // Who gives another number of leaves gets it, and other bits.
    job whole = {.options = options, .to = STEPS};
    run_job(1, &whole);
    job rest = {.options = options, .from = STOP, .to = STEPS};
    rest.options.leaves = 6;
    run_job(6, &rest);
    assert_true(rest.hash != whole.hash);
}

static void path_of(const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", dir, name);
}

// Changes one byte; at counts from the end if negative.
static void flip(const char *name, long at)
{
    char path[256];
    path_of(name, path);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    fputc(c ^ 1, f);
    assert_int_equal(fclose(f), 0);
}

static void damage_is_found_wherever_it_is(void **state)
{
    (void)state;
    const cadre_engine_options options = options_with(CADRE_ADAMW);
    cadre_checkpoint_info info;
    for (size_t i = 0; i < sizeof(file_names) / sizeof(file_names[0]); i++) {
        save_with(1, options);
        flip(file_names[i], i == 0 ? -30 : -1);
        CHECK_FAILS(cadre_checkpoint_inspect(dir, &info), CADRE_ERR_CORRUPT,
            file_names[i]);
        check_refused(options, CADRE_ERR_CORRUPT, file_names[i]);

        save_with(1, options);
        char path[256];
        path_of(file_names[i], path);
        struct stat about;
        assert_int_equal(stat(path, &about), 0);
        assert_int_equal(truncate(path, about.st_size / 2), 0);
        CHECK_FAILS(cadre_checkpoint_inspect(dir, &info), CADRE_ERR_CORRUPT,
            file_names[i]);

        save_with(1, options);
        assert_int_equal(unlink(path), 0);
        CHECK_FAILS(cadre_checkpoint_inspect(dir, &info),
            i == 0 ? CADRE_ERR_NOT_FOUND : CADRE_ERR_CORRUPT, file_names[i]);
        // What is no checkpoint any more is not overwritten.
        if (i == 0) {
            assert_int_equal(remove_checkpoint(state), 0);
        }
    }
}

// Every byte of the manifest that means something is guarded by its hash.  Blanks
// do not, nor does the last digit of some fractions.
static void no_changed_byte_of_a_manifest_goes_unnoticed(void **state)
{
    (void)state;
    save_with(1, options_with(CADRE_ADAMW));
    char path[256];
    path_of("manifest.json", path);
    static char text[8192];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t nbytes = fread(text, 1, sizeof(text), f);
    fclose(f);
    assert_true(nbytes > 500 && nbytes < sizeof(text));
    cadre_checkpoint_info info;
    int n_unnoticed = 0;
    for (size_t at = 0; at < nbytes; at++) {
        if (text[at] == ' ' || text[at] == '\n') {
            continue;
        }
        flip("manifest.json", (long)at);
        cadre_status status = cadre_checkpoint_inspect(dir, &info);
        if (status == CADRE_OK) {
            n_unnoticed++;
            assert_in_range(text[at], '0', '9');
            assert_true(text[at + 1] == ',' || text[at + 1] == '\n');
            cadre_checkpoint_info_release(&info);
        } else {
            assert_int_equal(status, CADRE_ERR_CORRUPT);
            assert_non_null(strstr(cadre_error_text(), "manifest.json"));
        }
        flip("manifest.json", (long)at);
    }
    assert_in_range(n_unnoticed, 0, 4);
    CHECK_OK(cadre_checkpoint_inspect(dir, &info));
    cadre_checkpoint_info_release(&info);
}

static void fail_to_save(cadre_group *world, void *ctx)
{
    const char *words = ctx;
    cadre_engine_options options = options_with(CADRE_ADAMW);
    cadre_model *model = make_model(world, params[N_PARAMS - 1].count);
    cadre_engine *engine;
    RANK_OK(cadre_engine_create(model, &options, &engine));
    cadre_status status = cadre_checkpoint_save(engine, dir);
    RANK_CHECK(status == CADRE_ERR_IO || status == CADRE_ERR_INVALID_ARG);
    RANK_CHECK(strstr(cadre_error_text(), words) != NULL);
    RANK_OK(cadre_barrier(world, NULL));
    cadre_engine_destroy(engine);
    cadre_model_destroy(model);
}

static void a_full_disk_is_told_to_all_and_spoils_nothing(void **state)
{
    (void)state;
    save_with(2, options_with(CADRE_ADAMW));
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit little = {6000, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    char words[] = "params.safetensors";
    run_as_threads(LINK_INPROC, 3, TIMEOUT_MS, fail_to_save, words);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);

    cadre_checkpoint_info info;
    CHECK_OK(cadre_checkpoint_inspect(dir, &info));
    assert_int_equal(info.step, STOP);
    cadre_checkpoint_info_release(&info);
    char aside[160];
    snprintf(aside, sizeof(aside), "%s" CADRE_ASIDE, dir);
    assert_int_equal(access(aside, F_OK), -1);
}

static void what_is_no_checkpoint_is_not_replaced(void **state)
{
    (void)state;
    char file[256];
    assert_int_equal(mkdir(dir, 0777), 0);
    path_of("thesis.txt", file);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fclose(f);
    char words[] = "no checkpoint";
    run_as_threads(LINK_INPROC, 2, TIMEOUT_MS, fail_to_save, words);
    assert_int_equal(access(file, F_OK), 0);
}

static void misuse(cadre_group *world, void *ctx)
{
    (void)ctx;
    cadre_engine_options options = options_with(CADRE_ADAMW);
    cadre_model *model = make_model(world, params[N_PARAMS - 1].count);
    cadre_engine *engine;
    RANK_OK(cadre_engine_create(model, &options, &engine));
    RANK_CHECK(cadre_engine_note(engine) == NULL);
    RANK_CHECK(cadre_engine_set_note(engine, "\xff") == CADRE_ERR_INVALID_ARG);
    RANK_CHECK(cadre_checkpoint_save(engine, "") == CADRE_ERR_INVALID_ARG);
    RANK_CHECK(cadre_checkpoint_load(NULL, dir) == CADRE_ERR_INVALID_ARG);
    RANK_CHECK(cadre_checkpoint_load(engine, dir) == CADRE_ERR_NOT_FOUND);
    RANK_OK(cadre_step_begin(engine));
    RANK_CHECK(cadre_checkpoint_save(engine, dir) == CADRE_ERR_STATE);
    RANK_CHECK(cadre_checkpoint_load(engine, dir) == CADRE_ERR_STATE);
    cadre_engine_destroy(engine);
    cadre_model_destroy(model);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    run_as_threads(LINK_INPROC, 1, TIMEOUT_MS, misuse, NULL);
}

// A plane whose element i is i, dealt and collected again.
static void deal_and_collect(cadre_group *world, void *ctx)
{
    const cadre_placement placement = *(const cadre_placement *)ctx;
    cadre_model *model = make_model(world, params[N_PARAMS - 1].count);
    const cadre_layout *layout = &model->layout;
    int rank = cadre_rank(world);
    int n = cadre_world_size(world);
    cadre_plane_part *parts = calloc((size_t)layout->n_units, sizeof(*parts));
    size_t count = placement == CADRE_SHARDED
                       ? cadre_plane_shard(layout, rank, n, parts)
                       : layout->n_elements;
    free(parts);
    float *part = calloc(count + 1, sizeof(*part));
    float *whole = rank == 0 ? calloc(layout->n_elements, sizeof(float)) : NULL;
    for (size_t i = 0; rank == 0 && i < layout->n_elements; i++) {
        whole[i] = (float)i;
    }
    RANK_OK(cadre_plane_deal(world, layout, placement, whole, part));
    size_t at = 0;
    for (int u = 0; u < layout->n_units; u++) {
        const cadre_unit *unit = &layout->units[u];
        cadre_shard own = cadre_shard_of(unit, rank, n);
        for (size_t i = own.lo; placement == CADRE_SHARDED && i < own.hi; i++) {
            RANK_CHECK(part[at++] == (float)i);
        }
        for (size_t i = unit->lo; placement != CADRE_SHARDED && i < unit->hi;
             i++) {
            RANK_CHECK(part[i] == (float)i);
        }
    }
    RANK_CHECK(placement != CADRE_SHARDED || at == count);
    for (size_t i = 0; i < count; i++) {
        part[i] += 1.0f;
    }
    RANK_OK(cadre_plane_collect(world, layout, placement, part, whole));
    for (int u = 0; rank == 0 && u < layout->n_units; u++) {
        for (size_t i = layout->units[u].lo; i < layout->units[u].hi; i++) {
            RANK_CHECK(whole[i] == (float)i + 1.0f);
        }
    }
    free(whole);
    free(part);
    cadre_model_destroy(model);
}

static void parts_of_planes_make_whole_ones(void **state)
{
    (void)state;
    cadre_placement placements[] = {CADRE_REPLICATED, CADRE_SHARDED};
    for (int i = 0; i < 2; i++) {
        for (int n = 1; n <= 4; n++) {
            run_as_threads(
                LINK_INPROC, n, TIMEOUT_MS, deal_and_collect, &placements[i]);
        }
    }
}

int main(void)
{
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    snprintf(dir, sizeof(dir), "%s/sub/step", folder);
#define WITH_FOLDER(test) cmocka_unit_test_teardown(test, remove_checkpoint)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misuse_is_refused),
        WITH_FOLDER(what_goes_on_has_the_bits_of_the_uninterrupted),
        WITH_FOLDER(a_checkpoint_says_what_it_is),
        WITH_FOLDER(other_settings_are_refused_by_name),
        WITH_FOLDER(damage_is_found_wherever_it_is),
        WITH_FOLDER(no_changed_byte_of_a_manifest_goes_unnoticed),
        WITH_FOLDER(a_full_disk_is_told_to_all_and_spoils_nothing),
        WITH_FOLDER(what_is_no_checkpoint_is_not_replaced),
        cmocka_unit_test(parts_of_planes_make_whole_ones),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char sub[128];
    snprintf(sub, sizeof(sub), "%s/sub", folder);
    rmdir(sub);
    rmdir(folder);
    return failed;
}
