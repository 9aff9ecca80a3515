// SPDX-License-Identifier: Apache-2.0
//
// A net in training, in one process: its parameters, and AdamW as its paper
// writes it; and the comparison of its first steps with the stored references.

#ifndef CADRE_TESTS_NN_TRAINING_H
#define CADRE_TESTS_NN_TRAINING_H

#include "nn/net.h"

enum { TRAINING_PARAMS = 300, TRAINING_STEPS = 5 };

typedef struct training {
    cadre_net *net;
    cadre_net_worker *worker;
    int batch;
    int n_labels; // of a batch, by which a summed gradient is divided
    int warmup;   // steps over which the rate rises; 0: none
    int n_params;
    size_t counts[TRAINING_PARAMS];
    float *params[TRAINING_PARAMS];
    float *grads[TRAINING_PARAMS];
    double *m[TRAINING_PARAMS];
    double *v[TRAINING_PARAMS];
} training;

/** Takes net over.  The caller fills the parameters, which are 0. */
void training_start(training *t, cadre_net *net, int batch, int n_labels);
void training_finish(training *t);

/** A pass over a part of the batch, forward and backward. */
cadre_status training_try_pass(
    training *t, const cadre_pass *pass, double *loss_sum);

/** One that does not fail: its summed loss. */
double training_pass(training *t, const cadre_pass *pass);

/** An update by what the passes left; steps count from 1. */
void training_update(training *t, int step);

/** A whole step's passes: the mean loss of step, from 0. */
typedef double (*training_step)(void *ctx, training *t, int step);

/**
 * Makes the steps that references named name are stored for, gradients of the
 * first and losses; returns how many gradients there were.
 */
int training_check(
    training *t, const char *name, training_step step, void *ctx);

#endif // CADRE_TESTS_NN_TRAINING_H
