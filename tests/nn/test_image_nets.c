// SPDX-License-Identifier: Apache-2.0
//
// The nets of the recipes for folders of images: their sizes, and narrow ones
// against what PyTorch computes (references.txt).

#include "nn/formula.h"
#include "nn/plan.h"
#include "nn/reference.h"
#include "nn/training.h"
#include "train/alexnet.h"
#include "train/resnet.h"
#include "train/vgg.h"

typedef cadre_status (*builder)(
    int width, cadre_shape image, int64_t n_classes, cadre_net **out);

// Parameters of the papers' nets, and what a torchvision has for them.
static void nets_have_as_many_parameters_as_in_their_papers(void **state)
{
    (void)state;
    static const struct {
        builder build;
        int width;
        int64_t count;
    } cases[] = {
        {cadre_resnet50_net, 64, 25557032},
        {cadre_alexnet_net, 96, 60965224},
        {cadre_vgg16_net, 64, 138357544},
    };
    const cadre_shape image = {3, 224, 224, 1, 0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cadre_net *net;
        int64_t count = 0;
        CHECK_OK(cases[i].build(cases[i].width, image, 1000, &net));
        for (int p = 0; p < cadre_net_param_count(net); p++) {
            const cadre_net_param *param = cadre_net_param_at(net, p);
            count += param->buffer ? 0 : (int64_t)param->count;
        }
        assert_int_equal(count, cases[i].count);
        cadre_net_destroy(net);
    }
    cadre_net *net = NULL;
    CHECK_FAILS(cadre_alexnet_net(16, image, 10, &net), CADRE_ERR_INVALID_ARG,
        "a multiple of 6");
    assert_null(net);
}

// Twice PyTorch's bound, so that something arrives at the end of deep nets.
static void fill_net(training *t)
{
    float bound = 1.0f;
    for (int p = 0; p < t->n_params; p++) {
        const cadre_net_param *param = cadre_net_param_at(t->net, p);
        if (param->n_dims > 1) {
            double fan_in = (double)param->count / (double)param->shape[0];
            bound = (float)(2.0 / sqrt(fan_in));
        }
        formula_fill(
            FORMULA_PARAM + (uint32_t)p, t->counts[p], bound, t->params[p]);
        for (size_t k = 0; k < t->counts[p]; k++) {
            t->params[p][k] += param->buffer ? 0.0f : param->init_value;
        }
    }
}

enum { PICTURES = 4 };

static void start_small(training *t, builder build, int width, int64_t side)
{
    cadre_net *net;
    const cadre_shape image = {3, side, side, 1, 0};
    CHECK_OK(build(width, image, 10, &net));
    training_start(t, net, PICTURES, PICTURES);
    fill_net(t);
}

static double step_of_pictures(void *ctx, training *t, int step)
{
    const int *side = ctx;
    size_t count = (size_t)PICTURES * 3 * (size_t)*side * (size_t)*side;
    float *x = floats(count);
    int32_t labels[PICTURES];
    formula_fill(FORMULA_X + 256 * (uint32_t)step, count, 1.0f, x);
    formula_labels(PICTURES, 10, labels);
    const cadre_pass whole = {x, labels, PICTURES, .first = true, .last = true};
    double loss = training_pass(t, &whole) / PICTURES;
    cadre_free(x);
    return loss;
}

// Without dropout, whose numbers are not PyTorch's.
static void check_training(
    const char *kind, builder build, int width, int side, int warmup)
{
    training t;
    start_small(&t, build, width, side);
    for (int l = 0; l < t.net->n_layers; l++) {
        t.net->layers[l].rate = 0.0f;
    }
    t.warmup = warmup;
    assert_int_equal(training_check(&t, kind, step_of_pictures, &side), 0);
    training_finish(&t);
}

static void resnet50_agrees(void **state)
{
    (void)state;
    check_training("resnet50-small", cadre_resnet50_net, 8, 64, 1000);
}

// Without dropout, as a net is when nothing is trained.
static void check_losses(const char *kind, builder build, int width, int side)
{
    training t;
    start_small(&t, build, width, side);
    size_t count = (size_t)PICTURES * 3 * (size_t)side * (size_t)side;
    float *x = floats(count);
    int32_t labels[PICTURES];
    float losses[PICTURES];
    int32_t classes[PICTURES];
    formula_fill(FORMULA_X, count, 1.0f, x);
    formula_labels(PICTURES, 10, labels);
    CHECK_OK(cadre_net_predict(t.worker, (const float *const *)t.params, x,
        labels, PICTURES, losses, classes));
    cadre_free(x);

    static reference r;
    int seen = 0;
    FILE *file = references_open();
    while (read_reference(file, &r)) {
        if (strcmp(r.kind, kind) == 0) {
            compare(&r, losses, PICTURES);
            seen++;
        }
    }
    fclose(file);
    assert_int_equal(seen, 1);
    training_finish(&t);
}

static void alexnet_and_vgg16_agree(void **state)
{
    (void)state;
    check_losses("alexnet-predicts", cadre_alexnet_net, 12, 67);
    check_losses("vgg16-predicts", cadre_vgg16_net, 4, 32);
    check_training("alexnet-small", cadre_alexnet_net, 12, 67, 0);
    check_training("vgg16-small", cadre_vgg16_net, 4, 32, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nets_have_as_many_parameters_as_in_their_papers),
        cmocka_unit_test(resnet50_agrees),
        cmocka_unit_test(alexnet_and_vgg16_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
