// SPDX-License-Identifier: Apache-2.0
//
// Passes: what is announced when, how passes add up, and what their bits do not
// depend on.

#include "base/alloc.h"
#include "base/thread.h"
#include "nn/formula.h"
#include "nn/net.h"
#include "support/check.h"
#include <math.h>
#include <omp.h>
#include <string.h>

enum { IN = 300, HIDDEN = 256, CLASSES = 10, PARAMS = 4, MOST = 1024 };
static const size_t n_elements = (size_t)MOST * IN; // of all samples

// A net, its values, and a record of what a pass announced.
typedef struct trial {
    cadre_net *net;
    float *params[PARAMS];
    float *grads[PARAMS];
    float *x;
    int32_t labels[MOST];
    int announced[2 * PARAMS];
    int n_announced;
    cadre_status answer;
} trial;

static float *grad_of(void *ctx, int index)
{
    trial *t = ctx;
    return t->grads[index];
}

static cadre_status ready(void *ctx, int index)
{
    trial *t = ctx;
    t->announced[t->n_announced++] = index;
    return t->answer;
}

static float *floats(size_t count)
{
    float *values = cadre_alloc_array(count, sizeof(*values));
    assert_non_null(values);
    return values;
}

static cadre_shape row(int64_t elements)
{
    return (cadre_shape){elements, 1, 1, 1, 0};
}

static int set_up(void **state)
{
    const cadre_layer layers[] = {
        {.kind = "linear", .name = "fc1", .width = HIDDEN},
        {.kind = "relu"},
        {.kind = "linear", .name = "fc2", .width = CLASSES},
    };
    trial *t = cadre_alloc(sizeof(*t));
    assert_non_null(t);
    CHECK_OK(cadre_net_create(layers, 3, row(IN), CLASSES, &t->net));
    for (int p = 0; p < PARAMS; p++) {
        size_t count = cadre_net_param_at(t->net, p)->count;
        t->params[p] = floats(count);
        t->grads[p] = floats(count);
        cadre_net_initialize(t->net, 7, p, t->params[p]);
    }
    t->x = floats(n_elements);
    formula_fill(FORMULA_X, n_elements, 1.0f, t->x);
    formula_labels(MOST, CLASSES, t->labels);
    *state = t;
    return 0;
}

static int tear_down(void **state)
{
    trial *t = *state;
    for (int p = 0; p < PARAMS; p++) {
        cadre_free(t->params[p]);
        cadre_free(t->grads[p]);
    }
    cadre_free(t->x);
    cadre_net_destroy(t->net);
    cadre_free(t);
    return 0;
}

static size_t param_count(const trial *t, int p)
{
    return cadre_net_param_at(t->net, p)->count;
}

static const float *samples_from(const trial *t, int from)
{
    return t->x + (size_t)from * IN;
}

// A worker for passes of one number of samples.
static cadre_net_worker *worker_for(const trial *t, int64_t n_samples)
{
    cadre_net_worker *worker = NULL;
    CHECK_OK(cadre_net_worker_create(t->net, &n_samples, 1, &worker));
    return worker;
}

// One pass over n samples from the given one on.
static double pass(
    cadre_net_worker *worker, trial *t, int from, int n, bool first, bool last)
{
    cadre_grad_listener listener = {t, grad_of, ready};
    double loss = 0.0;
    const cadre_pass part = {.x = samples_from(t, from),
        .labels = t->labels + from,
        .n_samples = n,
        .first = first,
        .last = last};
    CHECK_OK(cadre_net_pass(
        worker, (const float *const *)t->params, &part, &listener, &loss));
    return loss;
}

// Copies of all gradients, one after another, to compare bits with.
static float *snapshot(const trial *t)
{
    size_t count = 0;
    for (int p = 0; p < PARAMS; p++) {
        count += param_count(t, p);
    }
    float *copy = floats(count);
    float *at = copy;
    for (int p = 0; p < PARAMS; p++) {
        memcpy(at, t->grads[p], param_count(t, p) * sizeof(*at));
        at += param_count(t, p);
    }
    return copy;
}

static void assert_same_gradients(const trial *t, const float *wanted)
{
    for (int p = 0; p < PARAMS; p++) {
        assert_memory_equal(
            t->grads[p], wanted, param_count(t, p) * sizeof(*wanted));
        wanted += param_count(t, p);
    }
}

static void announces_the_last_layer_first(void **state)
{
    trial *t = *state;
    cadre_net_worker *worker = worker_for(t, 8);
    pass(worker, t, 0, 8, true, false);
    assert_int_equal(t->n_announced, 0);
    pass(worker, t, 8, 8, false, true);
    const int wanted[PARAMS] = {2, 3, 0, 1};
    assert_int_equal(t->n_announced, PARAMS);
    assert_memory_equal(t->announced, wanted, sizeof(wanted));
    cadre_net_worker_destroy(worker);
}

static void a_listener_ends_the_pass(void **state)
{
    trial *t = *state;
    cadre_net_worker *worker = worker_for(t, 8);
    cadre_grad_listener listener = {t, grad_of, ready};
    double loss = -1.0;
    t->answer = CADRE_ERR_PEER_LOST;
    const cadre_pass whole = {t->x, t->labels, 8, .first = true, .last = true};
    assert_int_equal(cadre_net_pass(worker, (const float *const *)t->params,
                         &whole, &listener, &loss),
        CADRE_ERR_PEER_LOST);
    assert_int_equal(t->n_announced, 1);
    assert_true(loss == -1.0);
    cadre_net_worker_destroy(worker);
}

static void passes_add_with_one_rounding(void **state)
{
    trial *t = *state;
    cadre_net_worker *worker = worker_for(t, 512);
    pass(worker, t, 0, 512, true, false);
    float *left = snapshot(t);
    pass(worker, t, 512, 512, true, false);
    float *right = snapshot(t);
    pass(worker, t, 0, 512, true, false);
    pass(worker, t, 512, 512, false, false);
    float *sum = left;
    size_t at = 0;
    for (int p = 0; p < PARAMS; p++) {
        for (size_t i = 0; i < param_count(t, p); i++, at++) {
            sum[at] = left[at] + right[at];
        }
    }
    assert_same_gradients(t, sum);
    cadre_free(left);
    cadre_free(right);
    cadre_net_worker_destroy(worker);
}

// The first pass writes, whatever the memory held.
static void the_first_pass_overwrites(void **state)
{
    trial *t = *state;
    cadre_net_worker *worker = worker_for(t, 33);
    pass(worker, t, 0, 33, true, true);
    float *wanted = snapshot(t);
    for (int p = 0; p < PARAMS; p++) {
        for (size_t i = 0; i < param_count(t, p); i++) {
            t->grads[p][i] = NAN;
        }
    }
    pass(worker, t, 0, 33, true, true);
    assert_same_gradients(t, wanted);
    cadre_free(wanted);
    cadre_net_worker_destroy(worker);
}

static void allocates_nothing_in_a_pass(void **state)
{
    trial *t = *state;
    cadre_net_worker *worker = NULL;
    CHECK_OK(
        cadre_net_worker_create(t->net, (int64_t[]){5, 100, 64}, 3, &worker));
    float losses[100];
    int32_t classes[100];
    uint64_t before = cadre_alloc_calls();
    pass(worker, t, 0, 100, true, false);
    pass(worker, t, 100, 64, false, false);
    pass(worker, t, 164, 5, false, true);
    CHECK_OK(cadre_net_predict(worker, (const float *const *)t->params, t->x,
        t->labels, 100, losses, classes));
    assert_int_equal(cadre_alloc_calls(), before);
    cadre_net_worker_destroy(worker);
}

// Two of the three large buffers are needed at a time: the gradient of the
// hidden layer's output with that output first, and then with the gradient of
// the first weights; no more is allocated.  Forward alone needs the
// hidden layer's output and the scores, whose gradient comes when it has gone.
static void takes_as_much_memory_as_is_needed(void **state)
{
    trial *t = *state;
    enum { N = 100, LINE = 16 };
    const size_t hidden = N * (HIDDEN + LINE); // a stride that suits caches
    const size_t scores = N * LINE;
    const size_t addend = (size_t)HIDDEN * IN;
    const size_t losses = (N + LINE - 1) / LINE * LINE;
    cadre_net_worker *worker = worker_for(t, N);
    assert_true(addend > hidden + 2 * scores);
    assert_int_equal(
        cadre_net_worker_bytes(worker), 4 * (hidden + addend + losses));
    cadre_net_worker_destroy(worker);

    CHECK_OK(cadre_net_worker_create(t->net, NULL, 0, &worker));
    assert_int_equal(cadre_net_worker_bytes(worker), 0);
    cadre_matrix_view view;
    CHECK_OK(cadre_net_scores(
        worker, (const float *const *)t->params, t->x, N, &view));
    assert_int_equal(cadre_net_worker_bytes(worker), 4 * (hidden + scores));
    cadre_net_worker_destroy(worker);
}

// A pass larger than any that was planned: room is made once, and the bits are
// those of a worker that knew.
static void makes_room_once(void **state)
{
    trial *t = *state;
    cadre_net_worker *knew = worker_for(t, 300);
    double wanted_loss = pass(knew, t, 0, 300, true, true);
    float *wanted = snapshot(t);
    cadre_net_worker *surprised = worker_for(t, 3);
    uint64_t before = cadre_alloc_calls();
    assert_true(pass(surprised, t, 0, 300, true, false) == wanted_loss);
    assert_same_gradients(t, wanted);
    assert_true(cadre_alloc_calls() > before);
    pass(surprised, t, 0, 2, true, false);
    before = cadre_alloc_calls();
    pass(surprised, t, 0, 300, true, false);
    pass(surprised, t, 0, 2, true, false);
    assert_int_equal(cadre_alloc_calls(), before);

    // Without memory the pass fails, and the worker goes on with smaller ones.
    cadre_grad_listener listener = {t, grad_of, ready};
    double loss;
    const cadre_pass larger = {t->x, t->labels, 301, .first = true};
    cadre_alloc_fail_after(0);
    cadre_status status = cadre_net_pass(
        surprised, (const float *const *)t->params, &larger, &listener, &loss);
    cadre_alloc_fail_after(-1);
    assert_int_equal(status, CADRE_ERR_NO_MEMORY);
    assert_true(pass(surprised, t, 0, 300, true, false) == wanted_loss);
    assert_same_gradients(t, wanted);

    cadre_free(wanted);
    cadre_net_worker_destroy(knew);
    cadre_net_worker_destroy(surprised);
}

static void refuses_impossible_sizes(void **state)
{
    trial *t = *state;
    cadre_net_worker *worker = NULL;
    CHECK_FAILS(cadre_net_worker_create(t->net, (int64_t[]){4, 0}, 2, &worker),
        CADRE_ERR_INVALID_ARG, "0 samples");
    CHECK_FAILS(
        cadre_net_worker_create(t->net, (int64_t[]){INT64_MAX}, 1, &worker),
        CADRE_ERR_INVALID_ARG, "are possible");
    assert_null(worker);
}

// A label that there is not would reach beyond the scores.
static void refuses_labels_that_there_are_not(void **state)
{
    trial *t = *state;
    cadre_net_worker *worker = worker_for(t, 4);
    const float *const *params = (const float *const *)t->params;
    cadre_grad_listener listener = {t, grad_of, ready};
    cadre_pass four = {.x = t->x,
        .labels = t->labels,
        .n_samples = 4,
        .first = true,
        .last = true};
    float losses[4];
    int32_t classes[4];
    double loss = 7.0;
    static const int32_t wrong[] = {CLASSES, INT32_MAX, -2};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        t->labels[2] = wrong[i];
        CHECK_FAILS(cadre_net_pass(worker, params, &four, &listener, &loss),
            CADRE_ERR_INVALID_ARG, "label 2 of a pass is");
        CHECK_FAILS(cadre_net_predict(
                        worker, params, t->x, t->labels, 4, losses, classes),
            CADRE_ERR_INVALID_ARG, "there are 10 classes");
    }
    t->labels[2] = CADRE_NO_LABEL;
    four.label_smoothing = 1.0f;
    CHECK_FAILS(cadre_net_pass(worker, params, &four, &listener, &loss),
        CADRE_ERR_INVALID_ARG, "label smoothing is 1");
    assert_true(loss == 7.0 && t->n_announced == 0);
    four.label_smoothing = 0.0f;
    CHECK_OK(cadre_net_pass(worker, params, &four, &listener, &loss));
    cadre_net_worker_destroy(worker);
}

static void refuses_tokens_that_there_are_not(void **state)
{
    (void)state;
    enum { TOKENS = 3 };
    const cadre_layer tok = {
        .kind = "embedding", .name = "tok", .width = 2, .vocabulary = 5};
    cadre_net *net = NULL;
    cadre_net_worker *worker = NULL;
    CHECK_OK(
        cadre_net_create(&tok, 1, (cadre_shape){.tokens = TOKENS}, 2, &net));
    CHECK_OK(cadre_net_worker_create(net, NULL, 0, &worker));
    const float weight[5 * 2] = {0};
    const float *params[] = {weight};
    const int32_t labels[TOKENS] = {0};
    float losses[TOKENS];
    int32_t classes[TOKENS];
    static const float wrong[] = {5.0f, 1.5f, -0.5f, -2.0f, 1e30f, NAN};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const float x[TOKENS] = {0.0f, 4.0f, wrong[i]};
        CHECK_FAILS(
            cadre_net_predict(worker, params, x, labels, 1, losses, classes),
            CADRE_ERR_INVALID_ARG, "token 2 of a pass is");
    }
    cadre_net_worker_destroy(worker);
    cadre_net_destroy(net);
}

static void predicts_losses_and_classes(void **state)
{
    trial *t = *state;
    cadre_net_worker *worker = worker_for(t, 50);
    double loss = pass(worker, t, 0, 50, true, true);
    float losses[50];
    int32_t classes[50];
    CHECK_OK(cadre_net_predict(worker, (const float *const *)t->params, t->x,
        t->labels, 50, losses, classes));
    double sum = 0.0;
    for (int n = 0; n < 50; n++) {
        sum += (double)losses[n];
        assert_in_range(classes[n], 0, CLASSES - 1);
    }
    assert_true(sum == loss);
    cadre_net_worker_destroy(worker);
}

// A net that hands its input on shows classes and losses as one can count them.
static void classes_are_those_of_the_highest_score(void **state)
{
    (void)state;
    const cadre_layer layer = {.kind = "relu"};
    cadre_net *net = NULL;
    cadre_net_worker *worker = NULL;
    CHECK_OK(cadre_net_create(&layer, 1, row(3), 3, &net));
    CHECK_OK(cadre_net_worker_create(net, (int64_t[]){3}, 1, &worker));
    const float x[] = {1, 5, 2, /**/ 4, 0, 4, /**/ -1, -2, -3};
    float kept[9];
    memcpy(kept, x, sizeof(x));
    const int32_t labels[] = {1, 0, 2};
    float losses[3];
    int32_t classes[3];
    CHECK_OK(cadre_net_predict(worker, NULL, x, labels, 3, losses, classes));
    assert_int_equal(classes[0], 1);
    assert_int_equal(classes[1], 0); // the first of equal ones
    assert_int_equal(classes[2], 0); // three zeros after relu
    assert_true(fabs((double)losses[2] - log(3.0)) < 1e-6);
    assert_memory_equal(x, kept, sizeof(x)); // the samples are not written

    // Nothing to train: a pass has a loss and asks for no gradient.
    cadre_grad_listener deaf = {NULL, NULL, NULL};
    double loss = 0.0;
    const cadre_pass whole = {x, labels, 3, .first = true, .last = true};
    CHECK_OK(cadre_net_pass(worker, NULL, &whole, &deaf, &loss));
    assert_true(fabs(loss - (double)losses[0] - (double)losses[1] -
                     (double)losses[2]) < 1e-6);
    cadre_net_worker_destroy(worker);
    cadre_net_destroy(net);
}

// Scores far beyond what exp() can hold.
static void large_scores_do_not_overflow(void **state)
{
    (void)state;
    const cadre_layer layer = {.kind = "relu"};
    cadre_net *net = NULL;
    cadre_net_worker *worker = NULL;
    CHECK_OK(cadre_net_create(&layer, 1, row(2), 2, &net));
    CHECK_OK(cadre_net_worker_create(net, (int64_t[]){2}, 1, &worker));
    const float x[] = {1e30f, 0.0f, /**/ 3e38f, 3e38f};
    float losses[2];
    int32_t classes[2];
    CHECK_OK(cadre_net_predict(
        worker, NULL, x, (int32_t[]){1, 0}, 2, losses, classes));
    assert_true(losses[0] == 1e30f);
    assert_true(losses[1] == (float)log(2.0));
    cadre_net_worker_destroy(worker);
    cadre_net_destroy(net);
}

// A sample that is not a number must show in the loss and in the gradients.
static void nan_is_not_hidden(void **state)
{
    trial *t = *state;
    cadre_net_worker *worker = worker_for(t, 4);
    t->x[IN + 5] = NAN;
    assert_true(isnan(pass(worker, t, 0, 4, true, true)));
    for (int p = 0; p < PARAMS; p++) {
        assert_true(isnan(t->grads[p][0]));
    }
    cadre_net_worker_destroy(worker);
}

// A trial whose buffers lie some floats off the start of their blocks.
static void move(const trial *t, size_t shift, trial *moved)
{
    *moved = *t;
    for (int p = 0; p < PARAMS; p++) {
        size_t count = param_count(t, p);
        moved->params[p] = floats(count + shift) + shift;
        moved->grads[p] = floats(count + shift) + shift;
        memcpy(moved->params[p], t->params[p], count * sizeof(float));
    }
    moved->x = floats(n_elements + shift) + shift;
    memcpy(moved->x, t->x, n_elements * sizeof(float));
}

static void unmove(trial *moved, size_t shift)
{
    for (int p = 0; p < PARAMS; p++) {
        cadre_free(moved->params[p] - shift);
        cadre_free(moved->grads[p] - shift);
    }
    cadre_free(moved->x - shift);
}

static void bits_do_not_depend_on_addresses(void **state)
{
    trial *t = *state;
    const int sizes[] = {1, 100, 512};
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        cadre_net_worker *worker = worker_for(t, sizes[s]);
        pass(worker, t, 0, sizes[s], true, false);
        float *wanted = snapshot(t);
        for (size_t shift = 1; shift <= 512; shift *= 8) {
            trial moved;
            move(t, shift, &moved);
            pass(worker, &moved, 0, sizes[s], true, false);
            assert_same_gradients(&moved, wanted);
            unmove(&moved, shift);
        }
        cadre_free(wanted);
        cadre_net_worker_destroy(worker);
    }
}

// OpenMP is told to use more threads: no other bits, and it stays told.
static void bits_do_not_depend_on_openmp(void **state)
{
    trial *t = *state;
    cadre_net_worker *worker = worker_for(t, MOST);
    int before = omp_get_max_threads();
    omp_set_num_threads(1);
    double loss = pass(worker, t, 0, MOST, true, false);
    float *wanted = snapshot(t);
    omp_set_num_threads(4);
    double again = pass(worker, t, 0, MOST, true, false);
    assert_int_equal(omp_get_max_threads(), 4);
    omp_set_num_threads(before);
    assert_true(again == loss);
    assert_same_gradients(t, wanted);
    cadre_free(wanted);
    cadre_net_worker_destroy(worker);
}

// What a thread of several does.
typedef struct racer {
    trial t; // its own gradients; the rest is shared
    cadre_thread thread;
    int from;
    double loss;
} racer;

static void race(void *ctx)
{
    racer *r = ctx;
    cadre_net_worker *worker = NULL;
    if (cadre_net_worker_create(r->t.net, (int64_t[]){512}, 1, &worker) !=
        CADRE_OK) {
        return;
    }
    cadre_grad_listener listener = {&r->t, grad_of, ready};
    const cadre_pass part = {samples_from(&r->t, r->from),
        r->t.labels + r->from, 512, .first = true};
    for (int round = 0; round < 3; round++) {
        if (cadre_net_pass(worker, (const float *const *)r->t.params, &part,
                &listener, &r->loss) != CADRE_OK) {
            r->loss = -1.0;
        }
    }
    cadre_net_worker_destroy(worker);
}

// Two threads at a time, each with a worker of its own, give the bits that one
// thread gives.
static void threads_do_not_change_bits(void **state)
{
    trial *t = *state;
    racer racers[2];
    float *wanted[2];
    double losses[2];
    cadre_net_worker *worker = worker_for(t, 512);
    for (int i = 0; i < 2; i++) {
        losses[i] = pass(worker, t, i * 512, 512, true, false);
        wanted[i] = snapshot(t);
        racers[i] = (racer){.t = *t, .from = i * 512, .loss = -1.0};
        for (int p = 0; p < PARAMS; p++) {
            racers[i].t.grads[p] = floats(param_count(t, p));
        }
    }
    for (int i = 0; i < 2; i++) {
        CHECK_OK(
            cadre_thread_start(&racers[i].thread, "racer", race, &racers[i]));
    }
    for (int i = 0; i < 2; i++) {
        cadre_thread_join(&racers[i].thread);
        assert_true(racers[i].loss == losses[i]);
        assert_same_gradients(&racers[i].t, wanted[i]);
        for (int p = 0; p < PARAMS; p++) {
            cadre_free(racers[i].t.grads[p]);
        }
        cadre_free(wanted[i]);
    }
    cadre_net_worker_destroy(worker);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(announces_the_last_layer_first),
        CASE(a_listener_ends_the_pass),
        CASE(passes_add_with_one_rounding),
        CASE(the_first_pass_overwrites),
        CASE(allocates_nothing_in_a_pass),
        CASE(takes_as_much_memory_as_is_needed),
        CASE(makes_room_once),
        CASE(refuses_impossible_sizes),
        CASE(refuses_labels_that_there_are_not),
        cmocka_unit_test(refuses_tokens_that_there_are_not),
        CASE(predicts_losses_and_classes),
        cmocka_unit_test(classes_are_those_of_the_highest_score),
        cmocka_unit_test(large_scores_do_not_overflow),
        CASE(nan_is_not_hidden),
        CASE(bits_do_not_depend_on_addresses),
        CASE(bits_do_not_depend_on_openmp),
        CASE(threads_do_not_change_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
