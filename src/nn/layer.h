// SPDX-License-Identifier: Apache-2.0
//
// A kind of layer: the table that a new one fills in.
//
// A layer sees samples as rows of a matrix, a row per sample or per token of
// one, as its shape says that they lie (nn/shape.h).  It computes in three calls: forward, then in
// backward the gradient of each parameter and the gradient of its input.
//
// Letters: N rows of a pass, I floats of a row before the layer, O floats after
// it.
//
// Threads: any; the functions keep nothing but in a state, which belongs to one
// thread.

#ifndef CADRE_NN_LAYER_H
#define CADRE_NN_LAYER_H

#include "cadre/status.h"
#include "nn/narrow_matrix.h"
#include "nn/net.h"

enum { CADRE_LAYER_NAME_BYTES = 48 };

typedef struct cadre_layer_ops cadre_layer_ops;
typedef struct cadre_layer_plan cadre_layer_plan;

/** A layer in its place in a net. */
struct cadre_layer_plan {
    const cadre_layer_ops *ops;
    char name[CADRE_LAYER_NAME_BYTES]; // empty if it has none
    int number;                        // in the user's list, from 0
    cadre_shape in;
    cadre_shape out;
    int64_t kernel;
    int64_t stride;
    int64_t padding;
    int64_t dilation;
    int64_t groups;
    int64_t heads;
    int64_t kv_heads;
    int64_t vocabulary;
    float rate;
    float deviation;
    // Of an "add": the layer whose output it adds; of a "shortcut": its
    // "residual".  Both in the net.
    int partner;
    const cadre_layer_plan *tied; // the layer whose parameter it uses, or NULL
    bool lends;                   // its parameter is used by a later layer too
    bool then_relu;               // its forward does the ReLU that follows
    bool done;                    // a ReLU that its predecessor's forward does
    bool masked;                  // a ReLU whose backward another layer does
    bool masks;                   // that of the ReLU before it
    int first_param;              // its first parameter in the net
    int n_params;                 // as its kind has, or fewer; set by plan()
    bool passes_down;             // its input's gradient is wanted
    bool recomputed;    // its output is not kept: backward computes it again
    bool bf16;          // its products are of bf16 factors
    bool wide_gradient; // but that of its weights' gradient; set by plan()
    // With bf16, as nn/rounding.h sets it:
    bool narrow;       // its output is wanted in 16 bits
    bool narrows;      // and complete behind it
    bool makes_narrow; // and made by it in these alone
    bool takes_narrow; // its input comes so, though it is no factor
    bool narrow_dy;    // the gradient of its output is in 16 bits alone
    bool narrow_dx;    // that of its input is
    size_t scratch;    // floats that a call wants; set by plan()
};

/**
 * What a layer keeps for passes of one number of samples.  A kind's own struct
 * starts with it, as its member `base`.
 */
typedef struct cadre_layer_state {
    size_t scratch; // floats that a call wants
} cadre_layer_state;

/**
 * Makes a state of head_bytes, which begin with the base, and n items behind
 * them, all zero.  A kind whose state is nothing more uses both calls.
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_layer_state_create(const cadre_layer_plan *plan,
    size_t head_bytes, size_t n_items, size_t item_bytes,
    cadre_layer_state **out);
void cadre_layer_state_destroy(cadre_layer_state *state); // NULL is allowed

/** A layer's part of a pass. */
typedef struct cadre_layer_call {
    const cadre_layer_plan *plan;
    cadre_layer_state *state;   // for this many samples; NULL if it keeps none
    const float *const *params; // the layer's own
    cadre_matrix_view x;        // (N, I); written over if it is in place
    cadre_matrix_view y;        // (N, O), backward only
    cadre_matrix_view dy;       // (N, O), backward only
    // If plan->bf16: x and dy as factors.  There is no x then, but in backward
    // for a wide gradient; and no dy if plan->narrow_dy.  If plan->takes_narrow:
    // x, which there is not in f32.
    cadre_narrow_view narrow_x;
    cadre_narrow_view narrow_dy;
    // If plan->makes_narrow: y, forward; if plan->narrow_dx: dx.  There is none
    // in f32 then.
    cadre_narrow_matrix narrow_y;
    cadre_narrow_matrix narrow_dx;
    // If plan->takes_narrow: room for a row of x, and one of y or dx.
    float *row_room;
    // Of "residual", "shortcut" and "add": what is added; backward the gradient
    // that waits while backward goes through other layers.
    cadre_matrix past;
    const cadre_pass *pass; // NULL if nothing is trained
    const float *tokens;    // of the texts from their first on, CADRE_NO_TOKEN
                            // among them; NULL if samples are none
    int64_t place; // of the first row in its text; rows of x and y that came
                   // before it lie before it.  0 but in a forward that goes on
    float *scratch;
} cadre_layer_call;

/** The fields of a cadre_layer that a kind takes; others must be 0. */
enum {
    CADRE_TAKES_WIDTH = 1,
    CADRE_TAKES_WINDOW = 2, // kernel, stride and padding
    CADRE_TAKES_RATE = 4,
    CADRE_TAKES_HEADS = 8,
    CADRE_TAKES_VOCABULARY = 16,
    CADRE_TAKES_TIED = 32,
    CADRE_TAKES_DEVIATION = 64,
    CADRE_TAKES_KV_HEADS = 128,
    CADRE_TAKES_FILTER = 256, // dilation and groups
    CADRE_TAKES_NO_BIAS = 512,
};

/** What a kind works on. */
typedef enum cadre_layer_matter {
    CADRE_ON_ANY = 0,
    CADRE_ON_ROWS,   // of elements: no images
    CADRE_ON_IMAGES, // no text
    CADRE_ON_TEXT,
} cadre_layer_matter;

struct cadre_layer_ops {
    const char *kind;
    unsigned takes;
    cadre_layer_matter on;
    int n_params; // at most; who has some needs a name, or is tied

    // y may be x, and dx may be dy: the layer needs no memory of its own, and
    // its dx is computed from y and dy alone.
    bool in_place;

    // The next layer must not write over y: backward reads it, or, if it is
    // passed on, what goes past layers is read again.
    bool keeps_output;

    // y is x untouched: they share their memory.
    bool passes_on;

    // Its backward does not read x, as that of none in place does.
    bool forgets_input;

    // It multiplies x, by weights or by itself: with bf16, if that is asked for.
    bool multiplies;

    // x may come in bf16 alone, forward and backward; y may be made in bf16
    // alone.  All else than products is computed in f32 of it, row by row.
    bool takes_narrow;
    bool makes_narrow;

    // The same of dy, if its products take that in bf16, and of dx.
    bool takes_narrow_dy;
    bool makes_narrow_dx;

    // Scratch is for input_gradient() alone, but with bf16.
    bool scratch_is_late;

    // It does the ReLU that follows, if plan->then_relu.
    bool takes_relu;

    // Its backward does that ReLU's, too, so dy comes from behind the ReLU; in
    // place it reads y for that.
    bool masks_gradient;

    // Its backward does that of a ReLU before it, if plan->masks.
    bool masks_input;

    /** (optional) The block that x must have; NULL: any. */
    int64_t (*input_block)(const cadre_layer *layer, cadre_shape in);

    /**
     * Checks what the user wrote and sets plan->out, scratch if it is not 0,
     * and n_params if it is not the kind's; the rest of plan is set.
     *
     * Errors: CADRE_ERR_INVALID_ARG  says what is wrong, not where
     */
    cadre_status (*plan)(const cadre_layer *layer, cadre_layer_plan *plan);

    /** Describes parameter i of the layer; NULL if there are none. */
    void (*param)(const cadre_layer_plan *plan, int i, cadre_net_param *param);

    /**
     * (optional) Makes what passes of n_samples need; give *out to release().
     *
     * Errors: CADRE_ERR_NO_MEMORY, CADRE_ERR_INTERNAL
     */
    cadre_status (*prepare)(const cadre_layer_plan *plan, int64_t n_samples,
        cadre_layer_state **out);
    void (*release)(cadre_layer_state *state); // NULL is allowed

    /** y (N, O). */
    cadre_status (*forward)(const cadre_layer_call *call, cadre_matrix y);

    /**
     * Writes the gradient of parameter i, summed over the samples.  Called for
     * each in turn, before input_gradient(); NULL if there are no parameters.
     */
    cadre_status (*param_gradient)(
        const cadre_layer_call *call, int i, float *grad);

    /** dx (N, I). */
    cadre_status (*input_gradient)(
        const cadre_layer_call *call, cadre_matrix dx);
};

extern const cadre_layer_ops cadre_add;
extern const cadre_layer_ops cadre_attention;
extern const cadre_layer_ops cadre_avgpool2d;
extern const cadre_layer_ops cadre_batch_norm2d;
extern const cadre_layer_ops cadre_causal_attention;
extern const cadre_layer_ops cadre_conv2d;
extern const cadre_layer_ops cadre_dropout;
extern const cadre_layer_ops cadre_embedding;
extern const cadre_layer_ops cadre_gelu;
extern const cadre_layer_ops cadre_global_avgpool2d;
extern const cadre_layer_ops cadre_layer_norm;
extern const cadre_layer_ops cadre_linear;
extern const cadre_layer_ops cadre_local_response_norm;
extern const cadre_layer_ops cadre_maxpool2d;
extern const cadre_layer_ops cadre_positions;
extern const cadre_layer_ops cadre_relayout; // no kind for users
extern const cadre_layer_ops cadre_relu;
extern const cadre_layer_ops cadre_residual;
extern const cadre_layer_ops cadre_rms_norm;
extern const cadre_layer_ops cadre_rotary;
extern const cadre_layer_ops cadre_shortcut;
extern const cadre_layer_ops cadre_silu;
extern const cadre_layer_ops cadre_swiglu;
extern const cadre_layer_ops cadre_unembedding;

/**
 * The table of a layer's kind, if the layer has no field that its kind does not
 * take.
 *
 * Errors: CADRE_ERR_INVALID_ARG  there is no such kind (names those there are),
 *                                or no such field
 */
cadre_status cadre_layer_find(
    const cadre_layer *layer, const cadre_layer_ops **out);

/**
 * Checks the plan's window and sets plan->out's height and width to the number
 * of places that it can slide to.
 *
 * Errors: CADRE_ERR_INVALID_ARG
 */
cadre_status cadre_layer_slide(cadre_layer_plan *plan);

/**
 * Checks how the channels of plan->in are split into heads of q, k and v, and
 * sets plan->heads and kv_heads.
 *
 * Errors: CADRE_ERR_INVALID_ARG
 */
cadre_status cadre_layer_split_heads(
    const cadre_layer *layer, cadre_layer_plan *plan);

/** 1: of kinds that want images plain. */
int64_t cadre_layer_plain_block(const cadre_layer *layer, cadre_shape in);

/** Plans a layer whose output has its input's shape. */
cadre_status cadre_layer_plan_same(
    const cadre_layer *layer, cadre_layer_plan *plan);

/** Floats of call->row_room, which lies before what the kind wants as scratch. */
size_t cadre_layer_row_room(const cadre_layer_plan *plan);

/** Row n of x, of a kind that takes_narrow; until the next one is asked for. */
const float *cadre_layer_x_row(const cadre_layer_call *call, int64_t n);

/**
 * Where row n of y is to be computed, of a kind that makes_narrow too, and after
 * that its end.
 */
float *cadre_layer_y_row(
    const cadre_layer_call *call, cadre_matrix y, int64_t n);
void cadre_layer_end_y_row(const cadre_layer_call *call, int64_t n);

/** What a kind does to a row: y from x; n floats of y. */
typedef void (*cadre_row_forward)(float *y, const float *x, int64_t n);

/** dx of such a row from x and dy; n floats of dy. */
typedef void (*cadre_row_backward)(
    float *dx, const float *x, const float *dy, int64_t n);

/** Does it to each row in turn, of a kind that takes_narrow and makes_narrow. */
cadre_status cadre_layer_rows(
    const cadre_layer_call *call, cadre_row_forward row, cadre_matrix y);
cadre_status cadre_layer_rows_back(
    const cadre_layer_call *call, cadre_row_backward row, cadre_matrix dx);

/** Whether products of a layer's backward read dy in bf16. */
static inline bool cadre_layer_takes_narrow_dy(const cadre_layer_plan *plan)
{
    return plan->bf16 && (plan->passes_down || !plan->wide_gradient);
}

/** Channels of a head, of channels that hold q, k and v. */
static inline int64_t cadre_layer_head_channels(
    int64_t channels, const cadre_layer_plan *plan)
{
    return channels / (plan->heads + 2 * plan->kv_heads);
}

#endif // CADRE_NN_LAYER_H
