// SPDX-License-Identifier: Apache-2.0
//
// The inside of nets, for the trainer: beside what <cadre/net.h> shows, scores,
// and what passes cost.
//
// Where a layer wants its input to lie otherwise than the one before leaves it,
// a layer that moves it is put between them.  "linear" takes an image as a row
// of its elements, in the order (C, H, W).
//
// Gradients are announced one by one, in the order in which backward finishes
// them (last layer first), to whoever listens.
//
// Threads: a net is immutable and shared; a worker belongs to one thread at a
// time.

#ifndef CADRE_NN_NET_H
#define CADRE_NN_NET_H

#include "cadre/net.h"
#include "nn/shape.h"

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

/**
 * Forward alone, as cadre_net_predict(): *scores gets those of all classes, a
 * row per sample or token.  Valid until the worker's next pass.
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
