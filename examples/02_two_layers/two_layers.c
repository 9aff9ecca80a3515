// SPDX-License-Identifier: Apache-2.0
//
// A network of two layers with a backward pass of its own, computed by two
// threads per rank, and a picture of one step.
//
//     build/release/bin/cadre run -n 2 -- build/release/bin/two_layers trace.json
//
// Open trace.json at https://ui.perfetto.dev: it shows a step of rank 0, its
// leaves, the moment each gradient was ready, and the communication meanwhile.
//
// The task: which of two interleaved spirals is a point on?

#include <cadre/cadre.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { INPUTS = 2, HIDDEN = 64, THREADS = 2 };
enum { LEAVES = 8, LEAF_SAMPLES = 32, STEPS = 1500, TRACED_STEP = 100 };
enum { W1, B1, W2, B2, N_PARAMS }; // the parameters, in this order

#define TRY(call)                      \
    do {                               \
        cadre_status status_ = (call); \
        if (status_ != CADRE_OK) {     \
            return status_;            \
        }                              \
    } while (0)

typedef struct job {
    cadre_group *group;
    cadre_model *model;
    cadre_engine *engine;
    int64_t step;
} job;

// Sample i of an endless data set: a point, and 1 or -1 for its spiral.
static float sample(int64_t i, float x[INPUTS])
{
    float side = i % 2 == 0 ? 1.0f : -1.0f;
    float turn = (float)(i * 7919 % 1000) / 1000.0f;
    float angle = 5.0f * turn;
    x[0] = side * (0.2f + turn) * cosf(angle);
    x[1] = side * (0.2f + turn) * sinf(angle);
    return side;
}

// Hidden values of a sample; returns the output, positive for the first spiral.
static float forward(float *const p[N_PARAMS], const float *x, float *hidden)
{
    float out = p[B2][0];
    for (int h = 0; h < HIDDEN; h++) {
        float sum = p[B1][h];
        for (int i = 0; i < INPUTS; i++) {
            sum += p[W1][h * INPUTS + i] * x[i];
        }
        hidden[h] = sum > 0.0f ? sum : 0.0f;
        out += p[W2][h] * hidden[h];
    }
    return out;
}

// One leaf: its gradient goes where the engine says, last layer first.
static cadre_status compute_leaf(job *j, int leaf)
{
    float *p[N_PARAMS];
    float *grad[N_PARAMS];
    for (int i = 0; i < N_PARAMS; i++) {
        p[i] = cadre_model_param(j->model, i);
        grad[i] = cadre_leaf_grad(j->engine, leaf, i);
    }
    float x[LEAF_SAMPLES][INPUTS];
    float hidden[LEAF_SAMPLES][HIDDEN];
    float error[LEAF_SAMPLES];
    double loss = 0.0;
    for (int s = 0; s < LEAF_SAMPLES; s++) {
        int64_t number = (j->step * LEAVES + leaf) * LEAF_SAMPLES + s;
        float target = sample(number, x[s]);
        error[s] = forward(p, x[s], hidden[s]) - target;
        loss += 0.5 * (double)error[s] * (double)error[s];
    }

    for (int s = 0; s < LEAF_SAMPLES; s++) {
        for (int h = 0; h < HIDDEN; h++) {
            grad[W2][h] += error[s] * hidden[s][h];
        }
        grad[B2][0] += error[s];
    }
    // Its communication may start while the first layer is computed.
    TRY(cadre_grad_ready(j->engine, leaf, B2));
    TRY(cadre_grad_ready(j->engine, leaf, W2));

    for (int s = 0; s < LEAF_SAMPLES; s++) {
        for (int h = 0; h < HIDDEN; h++) {
            float d = hidden[s][h] > 0.0f ? error[s] * p[W2][h] : 0.0f;
            for (int i = 0; i < INPUTS; i++) {
                grad[W1][h * INPUTS + i] += d * x[s][i];
            }
            grad[B1][h] += d;
        }
    }
    TRY(cadre_grad_ready(j->engine, leaf, B1));
    TRY(cadre_grad_ready(j->engine, leaf, W1));
    return cadre_leaf_end(j->engine, leaf, loss, LEAF_SAMPLES);
}

// A compute thread's share of a step.  What fails, cadre_step_end() returns.
static void *compute_leaves(void *arg)
{
    job *j = arg;
    for (int leaf; cadre_leaf_next(j->engine, &leaf);) {
        if (compute_leaf(j, leaf) != CADRE_OK) {
            break;
        }
    }
    return NULL;
}

// How an event looks in a Chrome trace: leaves and chunks begin and end, the
// rest are moments.
static void write_event(FILE *file, const cadre_event *e, bool first)
{
    const char *name = "engine";
    const char *phase = "i";
    int id = 0;
    switch (e->kind) {
    case CADRE_EVENT_LEAF_BEGIN:
    case CADRE_EVENT_LEAF_END:
        name = "leaf";
        phase = e->kind == CADRE_EVENT_LEAF_BEGIN ? "b" : "e";
        id = e->leaf;
        break;
    case CADRE_EVENT_POSTED:
    case CADRE_EVENT_FINISHED:
        name = e->gather ? "gather" : "fold";
        phase = e->kind == CADRE_EVENT_POSTED ? "b" : "e";
        id = e->index;
        break;
    case CADRE_EVENT_GRAD_READY:
        name = "gradient ready";
        break;
    case CADRE_EVENT_UPDATE:
        name = "update";
        break;
    default:
        break;
    }
    fprintf(file,
        "%s\n{\"name\": \"%s\", \"cat\": \"%s\", \"ph\": \"%s\", \"id\": %d, "
        "\"pid\": 0, \"tid\": 0, \"ts\": %.3f}",
        first ? "[" : ",", name, name, phase, id, (double)e->ns * 1e-3);
}

// Writes what the step just made consisted of.
static bool write_trace(const job *j, const char *path)
{
    int n = cadre_engine_events(j->engine, NULL, 0);
    cadre_event *events = calloc((size_t)n, sizeof(events[0]));
    FILE *file = fopen(path, "w");
    bool written = events != NULL && file != NULL;
    if (written) {
        (void)cadre_engine_events(j->engine, events, n);
        for (int i = 0; i < n; i++) {
            write_event(file, &events[i], i == 0);
        }
        fprintf(file, "\n]\n");
    }
    if (file != NULL) {
        written = fclose(file) == 0 && written;
    }
    free(events);
    return written;
}

static cadre_status make_model(job *j)
{
    static const char *const names[] = {
        "hidden.weight", "hidden.bias", "out.weight", "out.bias"};
    static const int64_t shapes[][2] = {
        {HIDDEN, INPUTS}, {HIDDEN, 0}, {1, HIDDEN}, {1, 0}};
    TRY(cadre_model_create(j->group, &j->model));
    for (int i = 0; i < N_PARAMS; i++) {
        int n_dims = shapes[i][1] == 0 ? 1 : 2;
        int index = 0;
        TRY(cadre_model_add(
            j->model, names[i], shapes[i], n_dims, NULL, &index));
    }
    TRY(cadre_model_seal(j->model));
    // The same values on every rank: a formula, not a generator with a state.
    for (int i = 0; i < N_PARAMS; i++) {
        float *p = cadre_model_param(j->model, i);
        size_t n = cadre_model_param_elements(j->model, i);
        for (size_t k = 0; k < n; k++) {
            p[k] = (float)((k * 7919 + (size_t)i * 104729) % 1009) / 1009.0f -
                   0.5f;
        }
    }
    return CADRE_OK;
}

static cadre_status train(job *j, const char *trace)
{
    TRY(cadre_init(NULL, &j->group));
    TRY(make_model(j));
    TRY(cadre_engine_create(j->model,
        &(cadre_engine_options){
            .leaves = LEAVES,
            .threads = THREADS,
            .bucket_bytes = 256, // small, so that there is something to see
            .optimizer = CADRE_ADAMW,
            .lr = 3e-3,
            .record = trace != NULL,
        },
        &j->engine));

    bool first = cadre_rank(j->group) == 0;
    cadre_step_report report = {0};
    for (j->step = 0; j->step < STEPS; j->step++) {
        TRY(cadre_step_begin(j->engine));
        pthread_t other;
        bool started = pthread_create(&other, NULL, compute_leaves, j) == 0;
        (void)compute_leaves(j);
        if (started) {
            pthread_join(other, NULL);
        }
        TRY(cadre_step_end(j->engine, &report));
        if (first && trace != NULL && j->step == TRACED_STEP &&
            !write_trace(j, trace)) {
            fprintf(stderr, "two_layers: cannot write %s\n", trace);
        }
    }
    if (first) {
        printf("loss %.4f, parameters %016" PRIx64 "\n", report.loss,
            cadre_model_hash(j->model));
    }
    return CADRE_OK;
}

int main(int argc, char **argv)
{
    job j = {0};
    cadre_status status = train(&j, argc > 1 ? argv[1] : NULL);
    if (status != CADRE_OK) {
        fprintf(stderr, "two_layers: %s\n", cadre_error_text());
    }
    cadre_engine_destroy(j.engine);
    cadre_model_destroy(j.model);
    cadre_finalize(j.group);
    return status == CADRE_OK ? 0 : 1;
}
