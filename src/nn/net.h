// SPDX-License-Identifier: Apache-2.0
//
// A net: layers one after another, with a softmax cross-entropy at the end, and
// how one pass of samples goes through them forward and backward.
//
// What goes past some layers and is added to their output (a residual
// connection) is written as a pair of layers, "residual" before and "add" after
// them:
//
//     {.kind = "residual"},
//     {.kind = "layer_norm", .name = "ln1"},
//     {.kind = "linear", .name = "fc", .width = 128},
//     {.kind = "add"},
//
// A "shortcut" between the two begins another path for what goes past: the
// layers from there to the "add" also work on what went into the "residual":
//
//     {.kind = "residual"},
//     {.kind = "conv2d", .name = "conv", .width = 32, .kernel = 3, ...},
//     {.kind = "batch_norm2d", .name = "bn"},
//     {.kind = "shortcut"},
//     {.kind = "conv2d", .name = "skip", .width = 32, .kernel = 1, ...},
//     {.kind = "add"},
//     {.kind = "relu"},
//
// A sample has one label; a text has one for each of its tokens.
//
// A net is a plan: shapes and names, no numbers.  Parameters and gradients are
// memory of the caller.  A worker holds what one thread needs to run passes:
// activations and their gradients, made before the first pass.  A pass is
// computed by the calling thread alone; what it computes is a function of
// (parameters, cadre_pass) and of nothing else.
//
// Gradients are announced one by one, in the order in which backward finishes
// them (last layer first), to whoever listens.
//
// Threads: a net is immutable and shared; a worker belongs to one thread at a
// time.

#ifndef CADRE_NN_NET_H
#define CADRE_NN_NET_H

#include "cadre/status.h"
#include "nn/shape.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct cadre_net cadre_net;
typedef struct cadre_net_worker cadre_net_worker;

/** A layer as its user writes it. */
typedef struct cadre_layer {
    const char *kind; // "conv2d", "linear", "relu", ...
    const char *name; // "fc1"; NULL for a layer without parameters
    int64_t width;  // outputs of "linear", channels of "conv2d" and "embedding"
    int64_t kernel; // side of the square window of "conv2d" and pools
    int64_t stride; // of the window; 0: 1 for "conv2d", kernel for pools
    int64_t padding;  // around the image, on each side
    int64_t dilation; // from element to element of a "conv2d" window; 0: 1
    int64_t groups;   // of channels, "conv2d" goes from each to its own; 0: 1
    bool no_bias;     // of "conv2d" and "linear"
    float rate;       // of "dropout"

    // Of texts.
    int64_t heads;      // of "attention", "causal_attention", "rotary"
    int64_t kv_heads;   // of these, for k and v; 0: as many
    int64_t vocabulary; // numbers that a token can have, of "embedding"
    const char *tied;   // the "embedding" whose weight an "unembedding" uses
    // Initial weights of "conv2d", "linear", "embedding" and "positions" are
    // normal with this deviation, and biases 0.  0: PyTorch's default for the
    // layer.
    float deviation;
} cadre_layer;

typedef struct cadre_net_param {
    char name[64];    // "fc1.weight"
    int64_t shape[4]; // row-major, as PyTorch's: linear weight (out, in),
                      // convolution weight (out, in / groups, kernel,
                      // kernel)
    int n_dims;
    size_t count; // elements

    // Initial values: normal, if there is a deviation; uniform in
    // [-bound, bound), if there is a bound; else all the same.
    float init_deviation;
    float init_bound;
    float init_value;

    // A running statistic and no parameter: what a pass gives as its gradient
    // is the statistic of its samples times their number.
    bool buffer;
} cadre_net_param;

/**
 * Plans a net for samples of a plain shape and n_classes classes; the last
 * layer must have n_classes outputs.  layers are copied.  A text comes as
 * numbers of tokens: one channel.
 *
 * Where a layer wants its input to lie otherwise than the one before leaves it,
 * a layer that moves it is put between them.  "linear" takes an image as a row
 * of its elements, in the order (C, H, W).
 *
 * Errors: CADRE_ERR_INVALID_ARG  names the layer and what is wrong with it
 */
cadre_status cadre_net_create(const cadre_layer *layers, int n_layers,
    cadre_shape input, int64_t n_classes, cadre_net **out);
void cadre_net_destroy(cadre_net *net); // NULL is allowed

/**
 * Lets training passes keep nothing that is computed between a "residual" and
 * its "add", but compute it again when backward comes there: less memory, more
 * time, the same bits.  Before there is a worker.
 */
void cadre_net_recompute(cadre_net *net);

/**
 * Rounds the factors of "linear", "unembedding" and "conv2d" to bf16, forward
 * and backward; sums, activations and gradients stay f32, and so do the
 * products of attention and of nn/few_channels.h.  Before there is a worker.
 */
void cadre_net_use_bf16(cadre_net *net);

int cadre_net_param_count(const cadre_net *net);
const cadre_net_param *cadre_net_param_at(const cadre_net *net, int index);

/**
 * Fills values with the initial values of parameter index, from counters of
 * (seed, parameter, element).  PyTorch's default for "linear" and "conv2d" is
 * uniform, bound 1 / sqrt(fan in), weight and bias alike.
 */
void cadre_net_initialize(
    const cadre_net *net, uint64_t seed, int index, float *values);

/**
 * Makes a worker for passes of the given numbers of samples.
 *
 * sizes has n_sizes entries, each at least 1.  A pass of another number makes
 * what it needs once.  net is borrowed for the worker's life.
 *
 * Errors: CADRE_ERR_INVALID_ARG, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_net_worker_create(const cadre_net *net, const int64_t *sizes,
    int n_sizes, cadre_net_worker **out);
void cadre_net_worker_destroy(cadre_net_worker *worker); // NULL is allowed

/**
 * Bytes of memory for activations and their gradients: as many as the largest
 * pass so far needs at its worst moment, as planned.
 */
size_t cadre_net_worker_bytes(const cadre_net_worker *worker);

/** Time that training passes have taken, less what listeners took. */
typedef struct cadre_pass_times {
    int64_t forward_ns; // up to the losses
    int64_t backward_ns;
} cadre_pass_times;

cadre_pass_times cadre_net_worker_times(const cadre_net_worker *worker);

/** Where gradients go, and who hears of them.  Called inside a pass. */
typedef struct cadre_grad_listener {
    void *ctx;
    float *(*grad)(void *ctx, int index); // zeroed at first, then kept
    cadre_status (*ready)(void *ctx, int index);
} cadre_grad_listener;

/** In place of a label: this one adds nothing to the loss. */
enum { CADRE_NO_LABEL = -1 };

/** What a pass is of. */
typedef struct cadre_pass {
    const float *x;        // (n_samples, elements of a sample)
    const int32_t *labels; // (n_samples, labels of one), in [0, n_classes) or
                           // CADRE_NO_LABEL
    int64_t n_samples;
    float label_smoothing; // at least 0, below 1

    // Which part of a leaf it is.  first: gradients are written; else this
    // pass's gradient is computed and then added, one rounding.  last: each
    // gradient is announced as ready.
    bool first;
    bool last;

    // What dropout draws its numbers from, beside layer and element.
    uint64_t seed;
    int64_t step;
    int64_t first_sample; // the first sample's place in the step's global batch
} cadre_pass;

/**
 * One pass forward and backward.
 *
 * params has an entry per parameter.  *loss_sum gets the sum of the labels' f32
 * losses, added in f64 in order.
 *
 * Errors: CADRE_ERR_INTERNAL   the compute library failed
 *         CADRE_ERR_NO_MEMORY  a pass larger than those that were planned
 *         and what ready returns, at once
 */
cadre_status cadre_net_pass(cadre_net_worker *worker,
    const float *const *params, const cadre_pass *pass,
    const cadre_grad_listener *listener, double *loss_sum);

/**
 * Forward alone, without dropout: each label's loss, and the class that is taken
 * for it.
 */
cadre_status cadre_net_predict(cadre_net_worker *worker,
    const float *const *params, const float *x, const int32_t *labels,
    int64_t n_samples, float *losses, int32_t *classes);

/**
 * Forward alone, as above: *scores gets those of all classes, a row per sample
 * or token.  Valid until the worker's next pass.
 */
cadre_status cadre_net_scores(cadre_net_worker *worker,
    const float *const *params, const float *x, int64_t n_samples,
    cadre_matrix_view *scores);

/** "oneDNN 2.6.3" and the instruction set it uses, such as "avx2". */
const char *cadre_compute_version(void);
const char *cadre_compute_isa(void);

/**
 * Whether bf16 pays here: the processor has instructions for its products.
 * Tests can have it assumed, which changes no other thing: a net with bf16
 * computes the same on any processor, though slowly.
 */
bool cadre_compute_has_bf16(void);
void cadre_compute_assume_bf16(bool yes);

#endif // CADRE_NN_NET_H
