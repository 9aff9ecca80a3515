// SPDX-License-Identifier: Apache-2.0

#include "nn/reader.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/thread.h"
#include "nn/plan.h"
#include <string.h>

// Rows that go through the net at a time: a block of queries.
enum { MOST_ROWS = 64 };

struct cadre_net_reader {
    const cadre_net *net; // borrowed
    int64_t place;
    cadre_layer_state **states; // of each layer; NULL of those that keep none
    size_t scratch_count;       // that the layer wants that wants most
    float *block;               // all that follows lies in it
    float *scratch;
    float *tokens;    // of the whole text, as far as it was read
    float *outputs[]; // of each layer: of a whole text where attention reads
                      // them, else of the rows that go through
};

static cadre_status check(const cadre_net *net)
{
    if (net->input.tokens == 0) {
        return cadre_fail(
            CADRE_ERR_INVALID_ARG, "the net reads images, and no text");
    }
    for (int l = 0; l < net->n_layers; l++) {
        if (net->layers[l].ops == &cadre_attention) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "tokens of the net see those behind them: no text goes on");
        }
        if (net->layers[l].bf16) { // made for one number of rows
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "the net uses bf16: texts go on in f32 alone");
        }
    }
    return CADRE_OK;
}

static int64_t rows_of(const cadre_net *net, int layer)
{
    bool attended = layer + 1 < net->n_layers &&
                    net->layers[layer + 1].ops == &cadre_causal_attention;
    int64_t tokens = net->input.tokens;
    return attended || tokens < MOST_ROWS ? tokens : MOST_ROWS;
}

static cadre_status prepare_states(cadre_net_reader *r)
{
    for (int l = 0; l < r->net->n_layers; l++) {
        const cadre_layer_plan *plan = &r->net->layers[l];
        size_t wanted = plan->scratch;
        if (plan->ops->prepare != NULL) {
            CADRE_TRY(plan->ops->prepare(plan, 1, &r->states[l]));
            wanted = r->states[l]->scratch;
        }
        r->scratch_count =
            wanted > r->scratch_count ? wanted : r->scratch_count;
    }
    return CADRE_OK;
}

static cadre_status make_room(cadre_net_reader *r)
{
    const cadre_net *net = r->net;
    // NOLINTNEXTLINE(bugprone-sizeof-expression): of a pointer it is meant
    r->states = cadre_alloc_array((size_t)net->n_layers, sizeof(r->states[0]));
    if (r->states == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    CADRE_TRY(prepare_states(r));
    size_t count = r->scratch_count + (size_t)net->input.tokens;
    for (int l = 0; l < net->n_layers; l++) {
        count +=
            (size_t)(rows_of(net, l) * cadre_shape_stride(net->layers[l].out));
    }
    r->block = cadre_alloc_array(count, sizeof(*r->block));
    if (r->block == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    float *at = r->block;
    for (int l = 0; l < net->n_layers; l++) {
        r->outputs[l] = at;
        at += rows_of(net, l) * cadre_shape_stride(net->layers[l].out);
    }
    r->scratch = at;
    r->tokens = at + r->scratch_count;
    return CADRE_OK;
}

cadre_status cadre_net_reader_create(
    const cadre_net *net, cadre_net_reader **out)
{
    CADRE_TRY(check(net));
    cadre_net_reader *r = cadre_alloc_flex(
        sizeof(*r), (size_t)net->n_layers, sizeof(r->outputs[0]));
    if (r == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    r->net = net;
    cadre_status status = make_room(r);
    if (status != CADRE_OK) {
        cadre_net_reader_destroy(r);
        return status;
    }
    *out = r;
    return CADRE_OK;
}

void cadre_net_reader_destroy(cadre_net_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    for (int l = 0; l < reader->net->n_layers && reader->states != NULL; l++) {
        const cadre_layer_ops *ops = reader->net->layers[l].ops;
        if (ops->release != NULL) {
            ops->release(reader->states[l]);
        }
    }
    cadre_free(reader->states);
    cadre_free(reader->block);
    cadre_free(reader);
}

void cadre_net_reader_restart(cadre_net_reader *reader)
{
    reader->place = 0;
}

int64_t cadre_net_reader_place(const cadre_net_reader *reader)
{
    return reader->place;
}

// Where a layer writes, and the next one reads, the rows that go through.
static cadre_matrix output_of(
    const cadre_net_reader *r, int layer, int64_t n_rows)
{
    const cadre_shape shape = r->net->layers[layer].out;
    const int64_t stride = cadre_shape_stride(shape);
    bool whole = rows_of(r->net, layer) == r->net->input.tokens;
    return (cadre_matrix){r->outputs[layer] + (whole ? r->place * stride : 0),
        n_rows, cadre_shape_columns(shape), stride};
}

// The layer whose output is there already, and is this one's as well, or -1.
static int same_as(const cadre_layer_plan *plan, int layer)
{
    return plan->ops == &cadre_shortcut ? plan->partner
           : plan->done                 ? layer - 1
                                        : -1;
}

static void copy(cadre_matrix from, cadre_matrix to)
{
    for (int64_t n = 0; n < to.rows; n++) {
        memcpy(cadre_matrix_row(to, n), cadre_matrix_row(from, n),
            (size_t)to.columns * sizeof(*to.data));
    }
}

// The tokens are in their place.
static cadre_status read_rows(
    cadre_net_reader *r, const float *const *params, int64_t n_rows)
{
    for (int l = 0; l < r->net->n_layers; l++) {
        const cadre_layer_plan *plan = &r->net->layers[l];
        const int same = same_as(plan, l);
        if (same >= 0) {
            copy(output_of(r, same, n_rows), output_of(r, l, n_rows));
            continue;
        }
        cadre_layer_call call = {
            .plan = plan,
            .state = r->states[l],
            .params = params + plan->first_param,
            .tokens = cadre_net_embeds(r->net) ? r->tokens : NULL,
            .x = l == 0
                     ? (cadre_matrix_view){r->tokens + r->place, n_rows, 1, 1}
                     : cadre_matrix_read(output_of(r, l - 1, n_rows)),
            .place = r->place,
            .scratch = r->scratch,
        };
        if (plan->ops == &cadre_add) {
            call.past = output_of(r, plan->partner, n_rows);
        }
        CADRE_TRY(plan->ops->forward(&call, output_of(r, l, n_rows)));
    }
    return CADRE_OK;
}

cadre_status cadre_net_reader_read(cadre_net_reader *reader,
    const float *const *params, const float *tokens, int64_t n_tokens,
    const float **scores)
{
    const int64_t most = reader->net->input.tokens;
    if (n_tokens < 1 || n_tokens > most - reader->place) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "%lld tokens after %lld, in a text of %lld", (long long)n_tokens,
            (long long)reader->place, (long long)most);
    }
    cadre_thread_plain_floats();
    memcpy(reader->tokens + reader->place, tokens,
        (size_t)n_tokens * sizeof(*tokens));
    const int last = reader->net->n_layers - 1;
    for (int64_t done = 0; done < n_tokens;) {
        int64_t left = n_tokens - done;
        int64_t n_rows = left < MOST_ROWS ? left : MOST_ROWS;
        CADRE_TRY(read_rows(reader, params, n_rows));
        *scores = cadre_matrix_row(output_of(reader, last, n_rows), n_rows - 1);
        reader->place += n_rows;
        done += n_rows;
    }
    return CADRE_OK;
}
