// SPDX-License-Identifier: Apache-2.0
//
// "rotary": turns each pair of elements of q and k by an angle that grows with
// the token's place in its text, so that what a query and a key have in common
// depends on how far apart they are.  A row has q, k and v as attention takes
// them; v passes through.
//
// Elements i and i + D / 2 of a head of D channels are a pair; token t turns
// them by t 10000^(-2i/D).
//
// Angles, sines and cosines come from plain operations in f64, rounded once, so
// that no C library is in the bits.
//
// Memory:  a state keeps cosines and sines of all places.
// Threads: any; a state is only read after it was made.

#include "base/fail.h"
#include "kernel/vector.h"
#include "nn/layer.h"
#include <string.h>

typedef struct rotary_state {
    cadre_layer_state base;
    float turns[]; // (T, 2, D / 2): a place's cosines, and its sines
} rotary_state;

static int64_t half_of(const cadre_layer_plan *plan)
{
    return cadre_layer_head_channels(plan->in.channels, plan) / 2;
}

static cadre_status plan_rotary(
    const cadre_layer *layer, cadre_layer_plan *plan)
{
    CADRE_TRY(cadre_layer_split_heads(layer, plan));
    if (cadre_layer_head_channels(plan->in.channels, plan) % 2 != 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "rotary with heads of %lld channels: an even number is needed",
            (long long)cadre_layer_head_channels(plan->in.channels, plan));
    }
    plan->out = plan->in;
    return CADRE_OK;
}

// e^a for a from -16 to 0: the series of e^(a / 1024), squared ten times.
static double exponential(double a)
{
    enum { SQUARINGS = 10, TERMS = 7 };
    double y = a / (1 << SQUARINGS);
    double value = 1.0;
    for (int term = TERMS; term > 0; term--) {
        value = 1.0 + value * (y / term);
    }
    for (int i = 0; i < SQUARINGS; i++) {
        value *= value;
    }
    return value;
}

// The series of the sine (first = 1) or the cosine (first = 0), |r| <= pi / 4.
static double series(double r, int first)
{
    enum { LAST = 17 };
    double value = 1.0;
    for (int power = LAST - 1 + first; power > first; power -= 2) {
        value = 1.0 - value * (r * r / (power * (power - 1)));
    }
    return first == 1 ? r * value : value;
}

// x = n pi / 2 + r; n counts quarters of a circle.
static void turn_of(double x, float *cosine, float *sine)
{
    const double round = 0x1.8p52;
    // pi / 2 in two parts; the product of the first with any n is exact.
    const double high = 0x1.921fb544p0;
    const double low = 0x1.0b4611a626331p-34;
    double n = (x * 0x1.45f306dc9c883p-1 + round) - round;
    double r = (x - n * high) - n * low;
    double c = series(r, 0);
    double s = series(r, 1);
    switch ((int64_t)n & 3) {
    case 0:
        *cosine = (float)c;
        *sine = (float)s;
        break;
    case 1:
        *cosine = (float)-s;
        *sine = (float)c;
        break;
    case 2:
        *cosine = (float)-c;
        *sine = (float)-s;
        break;
    default:
        *cosine = (float)s;
        *sine = (float)-c;
        break;
    }
}

static void fill(const cadre_layer_plan *plan, float *turns)
{
    const double ln_base = 9.210340371976184; // of 10000
    const int64_t half = half_of(plan);
    for (int64_t i = 0; i < half; i++) {
        double speed = exponential(-ln_base * (double)i / (double)half);
        for (int64_t t = 0; t < plan->in.tokens; t++) {
            float *place = turns + t * 2 * half;
            turn_of((double)t * speed, &place[i], &place[half + i]);
        }
    }
}

static cadre_status prepare(
    const cadre_layer_plan *plan, int64_t n_samples, cadre_layer_state **out)
{
    (void)n_samples;
    size_t n_turns = (size_t)(plan->in.tokens * 2 * half_of(plan));
    CADRE_TRY(cadre_layer_state_create(
        plan, sizeof(rotary_state), n_turns, sizeof(float), out));
    fill(plan, ((rotary_state *)*out)->turns);
    return CADRE_OK;
}

// Turns n heads one after another; way is 1, or -1 to turn them back.
CADRE_VECTOR_BODY void turn_heads_body(float *restrict x,
    const float *restrict turns, int64_t n, int64_t half, float way)
{
    const float *restrict cosine = turns;
    const float *restrict sine = turns + half;
    for (int64_t h = 0; h < n; h++) {
        float *restrict a = x + 2 * h * half;
        float *restrict b = a + half;
        for (int64_t i = 0; i < half; i++) {
            float s = way * sine[i];
            float turned = a[i] * cosine[i] - b[i] * s;
            b[i] = b[i] * cosine[i] + a[i] * s;
            a[i] = turned;
        }
    }
}
CADRE_VECTOR(turn_heads,
    (float *restrict x, const float *restrict turns, int64_t n, int64_t half,
        float way),
    (x, turns, n, half, way));

static void turn_rows(const cadre_layer_call *call, cadre_matrix_view from,
    cadre_matrix to, float way)
{
    const cadre_layer_plan *plan = call->plan;
    const float *turns = ((rotary_state *)call->state)->turns;
    const int64_t half = half_of(plan);
    for (int64_t n = 0; n < to.rows; n++) {
        float *row = cadre_matrix_row(to, n);
        if (from.data != to.data) {
            memcpy(row, cadre_matrix_view_row(from, n),
                (size_t)to.columns * sizeof(*row));
        }
        int64_t place = (call->place + n) % plan->in.tokens;
        turn_heads[cadre_isa_in_use()](row, turns + place * 2 * half,
            plan->heads + plan->kv_heads, half, way);
    }
}

static cadre_status forward(const cadre_layer_call *call, cadre_matrix y)
{
    turn_rows(call, call->x, y, 1.0f);
    return CADRE_OK;
}

static cadre_status input_gradient(
    const cadre_layer_call *call, cadre_matrix dx)
{
    turn_rows(call, call->dy, dx, -1.0f);
    return CADRE_OK;
}

const cadre_layer_ops cadre_rotary = {
    .kind = "rotary",
    .takes = CADRE_TAKES_HEADS | CADRE_TAKES_KV_HEADS,
    .in_place = true,
    .plan = plan_rotary,
    .prepare = prepare,
    .release = cadre_layer_state_destroy,
    .forward = forward,
    .input_gradient = input_gradient,
};
