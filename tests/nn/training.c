// SPDX-License-Identifier: Apache-2.0

#include "nn/training.h"
#include "nn/reference.h"

void training_start(training *t, cadre_net *net, int batch, int n_labels)
{
    *t = (training){.net = net, .batch = batch, .n_labels = n_labels};
    CHECK_OK(cadre_net_worker_create(net, (int64_t[]){batch}, 1, &t->worker));
    t->n_params = cadre_net_param_count(net);
    assert_in_range(t->n_params, 1, TRAINING_PARAMS);
    for (int p = 0; p < t->n_params; p++) {
        size_t count = cadre_net_param_at(net, p)->count;
        t->counts[p] = count;
        t->params[p] = floats(count);
        t->grads[p] = floats(count);
        t->m[p] = cadre_alloc_array(count, sizeof(double));
        t->v[p] = cadre_alloc_array(count, sizeof(double));
        assert_non_null(t->m[p]);
        assert_non_null(t->v[p]);
    }
}

void training_finish(training *t)
{
    for (int p = 0; p < t->n_params; p++) {
        cadre_free(t->params[p]);
        cadre_free(t->grads[p]);
        cadre_free(t->m[p]);
        cadre_free(t->v[p]);
    }
    cadre_net_worker_destroy(t->worker);
    cadre_net_destroy(t->net);
}

static float *grad_of(void *ctx, int index)
{
    training *t = ctx;
    return t->grads[index];
}

static cadre_status ready(void *ctx, int index)
{
    (void)ctx;
    (void)index;
    return CADRE_OK;
}

cadre_status training_try_pass(
    training *t, const cadre_pass *pass, double *loss_sum)
{
    cadre_grad_listener listener = {t, grad_of, ready};
    return cadre_net_pass(
        t->worker, (const float *const *)t->params, pass, &listener, loss_sum);
}

double training_pass(training *t, const cadre_pass *pass)
{
    double loss = 0.0;
    CHECK_OK(training_try_pass(t, pass, &loss));
    return loss;
}

void training_update(training *t, int step)
{
    const double lr = 1e-3 * (t->warmup > 0 ? (double)step / t->warmup : 1.0);
    const double decay = 0.01;
    const double beta1 = 0.9;
    const double beta2 = 0.999;
    double unbias1 = 1.0 - pow(beta1, step);
    double unbias2 = 1.0 - pow(beta2, step);
    for (int p = 0; p < t->n_params; p++) {
        // Training does not read running statistics.
        bool skipped = cadre_net_param_at(t->net, p)->buffer;
        for (size_t k = 0; k < t->counts[p] && !skipped; k++) {
            double g = (double)t->grads[p][k] / t->n_labels;
            double *m = &t->m[p][k];
            double *v = &t->v[p][k];
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * g * g;
            double update = *m / unbias1 / (sqrt(*v / unbias2) + 1e-8);
            double value = (double)t->params[p][k];
            t->params[p][k] = (float)(value - lr * (update + decay * value));
        }
    }
}

int training_check(training *t, const char *name, training_step step, void *ctx)
{
    (void)step(ctx, t, 0); // for the gradients, which come first

    static reference r;
    int steps = 0;
    int grads = 0;
    FILE *file = references_open();
    while (read_reference(file, &r)) {
        if (strcmp(r.kind, name) != 0) {
            continue;
        }
        assert_int_equal(r.n, t->batch);
        if (strcmp(r.tensor, "grad") == 0) {
            assert_in_range(r.i, 0, t->n_params - 1);
            compare(&r, t->grads[r.i], t->counts[r.i]);
            grads++;
            continue;
        }
        assert_int_equal(r.i, steps);
        double loss = step(ctx, t, steps);
        training_update(t, ++steps);
        if (!(fabs(loss - r.norm) <= 1e-4 * r.norm)) {
            fail_msg("%s, step %d: loss %.9g instead of %.9g", name, steps,
                loss, r.norm);
        }
    }
    fclose(file);
    assert_int_equal(steps, TRAINING_STEPS);
    return grads;
}
