// SPDX-License-Identifier: Apache-2.0
//
// A net of layers (libcadre_nn): described as a table, and computed forward and
// backward, a leaf at a time.
//
//     static const cadre_layer layers[] = {
//         {.kind = "linear", .name = "fc1", .width = 128},
//         {.kind = "relu"},
//         {.kind = "linear", .name = "fc2", .width = 10},
//     };
//     cadre_net *net;
//     cadre_net_create(layers, 3, (cadre_shape){.channels = 784}, 10, &net);
//     // add each of its parameters to a model, fill in its initial values
//     cadre_net_worker *worker;
//     cadre_net_worker_create(net, &n_samples, 1, &worker);
//     // in a step, with a leaf from the engine: its samples, their labels
//     cadre_net_pass(worker, params, &pass, &listener, &loss);
//
// A net knows no model and no engine: it asks where a gradient goes, and says
// when it is complete, which is cadre_leaf_grad() and cadre_grad_ready().
// examples/04_own_net has the whole.
//
// At the end of the layers stands a softmax cross-entropy.  A sample has one
// label; a text has one for each of its tokens.  What goes past some layers and
// is added to their output is written as a pair of layers around them, and a
// "shortcut" between the two begins another path for what goes past:
//
//     {.kind = "residual"},
//     {.kind = "conv2d", .name = "conv", .width = 32, .kernel = 3, ...},
//     {.kind = "batch_norm2d", .name = "bn"},
//     {.kind = "shortcut"},
//     {.kind = "conv2d", .name = "skip", .width = 32, .kernel = 1, ...},
//     {.kind = "add"},
//     {.kind = "relu"},
//
// A net is a plan: shapes and names, no numbers.  Parameters and gradients are
// memory of the caller.  A worker holds what one thread needs to run passes:
// activations and their gradients, made before the first pass.  A pass is
// computed by the calling thread alone; what it computes is a function of
// (parameters, cadre_pass) and of nothing else.
//
// Threads: a net is immutable and shared; a worker belongs to one thread at a
// time.

#ifndef CADRE_NET_H
#define CADRE_NET_H

#include "cadre/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cadre_net cadre_net;
typedef struct cadre_net_worker cadre_net_worker;

/**
 * What a sample is: an image, channel after channel, each in rows of pixels; a
 * row of so many channels; or a text of so many tokens.  An extent that is left
 * 0 is 1: {.channels = 784}, {.tokens = 128}.
 */
typedef struct cadre_shape {
    int64_t channels;
    int64_t height;
    int64_t width;
    int64_t block;  // channels that lie side by side; of a sample 1
    int64_t tokens; // of a text: rows that a sample has; 0: it is no text
} cadre_shape;

/**
 * A layer.  What its kind does not take stays 0; a layer with parameters has a
 * name of its own.  What PyTorch has as well computes what PyTorch's does.
 *
 *     kind                    takes, beside a name if it has parameters
 *     linear                  width; of an image all its elements in a row
 *     conv2d                  width, kernel; or more of the window; groups
 *     maxpool2d, avgpool2d    kernel; stride, padding
 *     global_avgpool2d        (the mean of each channel)
 *     batch_norm2d            (named; its running statistics are buffers)
 *     layer_norm, rms_norm    (named; over a row)
 *     local_response_norm     (that of AlexNet)
 *     relu, gelu, silu        (each element by itself; gelu is the exact one)
 *     swiglu                  (rows of a and b become silu(a) b)
 *     dropout                 rate
 *     residual, shortcut, add (see above)
 *     embedding               width, vocabulary; first in a net of texts
 *     positions               (named; adds a row for each place of a text)
 *     causal_attention,       heads, kv_heads; of rows with q, k and v, head
 *       attention             after head each, as a "linear" makes them:
 *                             (heads + 2 kv_heads) D become heads D channels
 *     rotary                  heads, kv_heads; turns q and k of such rows
 *     unembedding             tied; scores by an embedding's own weight
 */
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

/** A parameter as cadre_model_add() takes it. */
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
 * Plans a net for samples of a shape and n_classes classes; the last layer must
 * have n_classes outputs.  layers are copied.  Give *out to
 * cadre_net_destroy().
 *
 * Errors: CADRE_ERR_INVALID_ARG  names the layer and what is wrong with it
 *         CADRE_ERR_NO_MEMORY
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_net_create(
    const cadre_layer *layers, int n_layers, cadre_shape input,
    int64_t n_classes, cadre_net **out);

/** NULL is allowed.  After its workers. */
CADRE_API void cadre_net_destroy(cadre_net *net);

/**
 * Lets training passes keep nothing that is computed between a "residual" and
 * its "add", but compute it again when backward comes there: less memory, more
 * time, the same bits.  Before there is a worker.
 */
CADRE_API void cadre_net_recompute(cadre_net *net);

/**
 * Rounds the factors of "linear", "unembedding" and "conv2d" to bf16, forward
 * and backward, and activations that backward reads, which are kept in 16 bits.
 * Sums and gradients stay f32, and so do the products of attention, and of the
 * weights' gradient of a "conv2d" of one to three channels.  Fast where the
 * processor has instructions for such products, slow elsewhere.  Before there
 * is a worker.
 */
CADRE_API void cadre_net_use_bf16(cadre_net *net);

/** The number of parameters (tensors), in the order of the layers. */
CADRE_API int cadre_net_param_count(const cadre_net *net);

/** Parameter index, or NULL if there is none.  Valid as long as the net. */
CADRE_API const cadre_net_param *cadre_net_param_at(
    const cadre_net *net, int index);

/**
 * Fills values with the initial values of parameter index, from counters of
 * (seed, parameter, element): the same on every rank.  PyTorch's default for
 * "linear" and "conv2d" is uniform, bound 1 / sqrt(fan in), weight and bias
 * alike.
 */
CADRE_API void cadre_net_initialize(
    const cadre_net *net, uint64_t seed, int index, float *values);

/**
 * Makes a worker for passes of the given numbers of samples.
 *
 * sizes has n_sizes entries, each at least 1.  A pass of another number makes
 * what it needs once.  net is borrowed for the worker's life.
 *
 * Errors: CADRE_ERR_INVALID_ARG, CADRE_ERR_NO_MEMORY
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_net_worker_create(
    const cadre_net *net, const int64_t *sizes, int n_sizes,
    cadre_net_worker **out);

/** NULL is allowed. */
CADRE_API void cadre_net_worker_destroy(cadre_net_worker *worker);

/** Where gradients go, and who hears of them.  Called inside a pass. */
typedef struct cadre_grad_listener {
    void *ctx;
    /**
     * Memory for the gradient of a parameter, never NULL: zeroed at first, then
     * kept until it is complete.
     */
    float *(*grad)(void *ctx, int index);
    /** It is complete.  The last layer's come first. */
    cadre_status (*ready)(void *ctx, int index);
} cadre_grad_listener;

/** In place of a label: this one adds nothing to the loss. */
enum { CADRE_NO_LABEL = -1 };

/**
 * In place of a token's number, where a text is shorter than the net's: before
 * it, behind it or inside.  An "embedding" gives it zeros, and no token sees it
 * in attention; one that would see such places alone gets zeros from there.
 * Other layers know no difference, so "positions" and "rotary" count it.  Its
 * own output means nothing: its label has to be CADRE_NO_LABEL.
 */
enum { CADRE_NO_TOKEN = -1 };

/** What a pass is of. */
typedef struct cadre_pass {
    const float *x;        // (n_samples, elements of a sample); of a text the
                           // numbers of its tokens, or CADRE_NO_TOKEN
    const int32_t *labels; // (n_samples, labels of one), in [0, n_classes) or
                           // CADRE_NO_LABEL
    int64_t n_samples;
    float label_smoothing; // at least 0, below 1

    // Which part of a leaf it is; a pass over the whole leaf is both.  first:
    // gradients are written; else this pass's gradient is computed and then
    // added, one rounding.  last: each gradient is announced as ready.
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
 * losses, added in f64 in order.  Allocates nothing for a number of samples that
 * the worker has seen.
 *
 * Errors: CADRE_ERR_INVALID_ARG  the number of samples, a label, a token or the
 *                                smoothing is out of its range, or
 *                                CADRE_NO_TOKEN has a label
 *         CADRE_ERR_INTERNAL     the compute library failed
 *         CADRE_ERR_NO_MEMORY    a pass larger than those that were planned
 *         and what ready returns, at once
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_net_pass(cadre_net_worker *worker,
    const float *const *params, const cadre_pass *pass,
    const cadre_grad_listener *listener, double *loss_sum);

/**
 * Forward alone, without dropout and with running statistics: each label's
 * loss, and the class that is taken for it.
 *
 * Errors: as above
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_net_predict(
    cadre_net_worker *worker, const float *const *params, const float *x,
    const int32_t *labels, int64_t n_samples, float *losses, int32_t *classes);

#ifdef __cplusplus
}
#endif

#endif // CADRE_NET_H
