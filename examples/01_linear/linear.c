// SPDX-License-Identifier: Apache-2.0
//
// A training loop with a model of its own, on any number of ranks: linear
// regression, y = w x, by gradient descent.
//
//     build/release/bin/linear
//     build/release/bin/cadre run -n 2 -- build/release/bin/linear
//
// Both end in the same hash: which rank computed a leaf never shows in the bits.

#include <cadre/cadre.h>
#include <inttypes.h>
#include <stdio.h>

// The batch of a step is 4 leaves of 16 samples.
enum { INPUTS = 8, LEAVES = 4, LEAF_SAMPLES = 16, STEPS = 300 };

#define TRY(call)                      \
    do {                               \
        cadre_status status_ = (call); \
        if (status_ != CADRE_OK) {     \
            return status_;            \
        }                              \
    } while (0)

// Sample i of an endless data set, made by a formula.
static float sample(int64_t i, float x[INPUTS])
{
    float y = 0.0f;
    for (int64_t j = 0; j < INPUTS; j++) {
        x[j] = (float)((i * (2 * j + 3) + j * j) % 101) / 50.0f - 1.0f;
        y += (0.25f * (float)j - 1.0f) * x[j];
    }
    return y;
}

// Adds the gradient of a leaf's samples to gw, and returns their loss.
static double forward_backward(int64_t first, const float *w, float *gw)
{
    double loss = 0.0;
    for (int64_t i = first; i < first + LEAF_SAMPLES; i++) {
        float x[INPUTS];
        float error = -sample(i, x);
        for (int j = 0; j < INPUTS; j++) {
            error += w[j] * x[j];
        }
        for (int j = 0; j < INPUTS; j++) {
            gw[j] += error * x[j];
        }
        loss += 0.5 * (double)error * (double)error;
    }
    return loss;
}

static cadre_status train(cadre_group **g, cadre_model **m, cadre_engine **e)
{
    int iw = 0;
    TRY(cadre_init(NULL, g));
    TRY(cadre_model_create(*g, m));
    TRY(cadre_model_add(*m, "w", (int64_t[]){INPUTS}, 1, NULL, &iw));
    TRY(cadre_model_seal(*m));
    const float *w = cadre_model_param(*m, iw);
    cadre_engine_options options = {
        .leaves = LEAVES, .optimizer = CADRE_SGD, .lr = 0.1};
    TRY(cadre_engine_create(*m, &options, e));

    cadre_step_report report = {0};
    for (int64_t step = 0; step < STEPS; step++) {
        TRY(cadre_step_begin(*e));
        for (int leaf; cadre_leaf_next(*e, &leaf);) {
            int64_t first = (step * LEAVES + leaf) * LEAF_SAMPLES;
            float *gw = cadre_leaf_grad(*e, leaf, iw);
            double loss = forward_backward(first, w, gw);
            TRY(cadre_grad_ready(*e, leaf, iw));
            TRY(cadre_leaf_end(*e, leaf, loss, LEAF_SAMPLES));
        }
        TRY(cadre_step_end(*e, &report));
    }
    if (cadre_rank(*g) == 0) {
        printf("loss %.3g, parameters %016" PRIx64 "\n", report.loss,
            cadre_model_hash(*m));
    }
    return CADRE_OK;
}

int main(void)
{
    cadre_group *group = NULL;
    cadre_model *model = NULL;
    cadre_engine *engine = NULL;
    cadre_status status = train(&group, &model, &engine);
    if (status != CADRE_OK) {
        fprintf(stderr, "linear: %s\n", cadre_error_text());
    }
    cadre_engine_destroy(engine);
    cadre_model_destroy(model);
    cadre_finalize(group);
    return status == CADRE_OK ? 0 : 1;
}
