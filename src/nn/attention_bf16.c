// SPDX-License-Identifier: Apache-2.0

#include "nn/attention_bf16.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "kernel/bits.h"
#include "kernel/vector.h"
#include "nn/compute.h"
#include "nn/compute_bf16.h"

// The products of a block of n queries that meets m keys.
typedef struct block_products {
    int64_t n;
    int64_t m;
    cadre_bf16_product *score;  // (n, m) = (n, D) (m, D)^T
    cadre_bf16_product *mix;    // (n, D) = (n, m) (m, D)
    cadre_bf16_product *spread; // (m, D) += (n, m)^T (n, D)
} block_products;

struct cadre_attention_bf16 {
    size_t pad; // floats that some product wants
    size_t scratch;
    cadre_bf16_product *spread; // (m, D) = ..., of the last block
    int64_t n_blocks;
    block_products blocks[]; // as their queries in the text
};

// What scratch is for, each of it without gaps between rows.
typedef struct room {
    uint16_t *q; // (T, D), as k, v and dy
    uint16_t *k;
    uint16_t *v;
    uint16_t *dy;
    float *dk; // (T, D), as dv
    float *dv;
    float *out; // (n, D): of y, or of dq
    float *s;   // (n, m), as all that follow
    float *dp;
    uint16_t *p;
    uint16_t *ds;
    float *pad;
} room;

static float *take(float **free, size_t count)
{
    float *taken = *free;
    *free += count;
    return taken;
}

static size_t head_count(const cadre_layer_plan *plan)
{
    return (size_t)(plan->in.tokens * cadre_attention_depth(plan));
}

static size_t block_count(int64_t columns)
{
    return (size_t)(CADRE_ATTENTION_BLOCK * columns);
}

// In whole cache lines.
static size_t wide_floats(size_t count)
{
    return 2 * cadre_narrow_floats(count);
}

static size_t room_floats(const cadre_layer_plan *plan)
{
    const size_t head = head_count(plan);
    const size_t scores = block_count(plan->in.tokens);
    return 4 * cadre_narrow_floats(head) + 2 * wide_floats(head) +
           wide_floats(block_count(cadre_attention_depth(plan))) +
           2 * wide_floats(scores) + 2 * cadre_narrow_floats(scores);
}

static room divide(const cadre_layer_call *call)
{
    const size_t head = head_count(call->plan);
    const size_t scores = block_count(call->plan->in.tokens);
    const size_t out = block_count(cadre_attention_depth(call->plan));
    float *free = call->scratch;
    room r;
    r.q = (void *)take(&free, cadre_narrow_floats(head));
    r.k = (void *)take(&free, cadre_narrow_floats(head));
    r.v = (void *)take(&free, cadre_narrow_floats(head));
    r.dy = (void *)take(&free, cadre_narrow_floats(head));
    r.dk = take(&free, wide_floats(head));
    r.dv = take(&free, wide_floats(head));
    r.out = take(&free, wide_floats(out));
    r.s = take(&free, wide_floats(scores));
    r.dp = take(&free, wide_floats(scores));
    r.p = (void *)take(&free, cadre_narrow_floats(scores));
    r.ds = (void *)take(&free, cadre_narrow_floats(scores));
    r.pad = free;
    return r;
}

static cadre_status make_product(cadre_attention_bf16 *a, cadre_bf16_factor x,
    cadre_bf16_factor y, cadre_matrix to, bool adds, cadre_bf16_product **out)
{
    CADRE_TRY(cadre_bf16_product_create(x, y, to, adds, out));
    size_t pad = cadre_bf16_product_scratch(*out);
    a->pad = pad > a->pad ? pad : a->pad;
    return CADRE_OK;
}

static cadre_status make_spread(cadre_attention_bf16 *a,
    const block_products *b, int64_t depth, bool adds, cadre_bf16_product **out)
{
    const cadre_bf16_factor shares = {{NULL, b->n, b->m, b->m}, true};
    const cadre_bf16_factor queries = {{NULL, b->n, depth, depth}, false};
    return make_product(a, shares, queries,
        (cadre_matrix){NULL, b->m, depth, depth}, adds, out);
}

static cadre_status make_block(
    cadre_attention_bf16 *a, int64_t depth, block_products *b)
{
    const cadre_bf16_factor queries = {{NULL, b->n, depth, depth}, false};
    const cadre_bf16_factor keys = {{NULL, b->m, depth, depth}, true};
    const cadre_bf16_factor shares = {{NULL, b->n, b->m, b->m}, false};
    const cadre_bf16_factor values = {{NULL, b->m, depth, depth}, false};
    CADRE_TRY(make_product(a, queries, keys,
        (cadre_matrix){NULL, b->n, b->m, b->m}, false, &b->score));
    CADRE_TRY(make_product(a, shares, values,
        (cadre_matrix){NULL, b->n, depth, depth}, false, &b->mix));
    return make_spread(a, b, depth, true, &b->spread);
}

static cadre_status make_blocks(
    const cadre_layer_plan *plan, cadre_attention_bf16 *a)
{
    const int64_t n_tokens = plan->in.tokens;
    const int64_t depth = cadre_attention_depth(plan);
    for (int64_t i = 0; i < a->n_blocks; i++) {
        const int64_t first = i * CADRE_ATTENTION_BLOCK;
        const int64_t left = n_tokens - first;
        block_products *b = &a->blocks[i];
        b->n = left < CADRE_ATTENTION_BLOCK ? left : CADRE_ATTENTION_BLOCK;
        b->m = cadre_attention_is_causal(plan) ? first + b->n : n_tokens;
        CADRE_TRY(make_block(a, depth, b));
    }
    return make_spread(
        a, &a->blocks[a->n_blocks - 1], depth, false, &a->spread);
}

cadre_status cadre_attention_bf16_create(
    const cadre_layer_plan *plan, cadre_attention_bf16 **out)
{
    const int64_t n_blocks =
        (plan->in.tokens + CADRE_ATTENTION_BLOCK - 1) / CADRE_ATTENTION_BLOCK;
    cadre_attention_bf16 *a =
        cadre_alloc_flex(sizeof(*a), (size_t)n_blocks, sizeof(a->blocks[0]));
    if (a == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    a->n_blocks = n_blocks;
    cadre_status status = make_blocks(plan, a);
    if (status != CADRE_OK) {
        cadre_attention_bf16_destroy(a);
        return status;
    }
    a->scratch = room_floats(plan) + a->pad;
    *out = a;
    return CADRE_OK;
}

void cadre_attention_bf16_destroy(cadre_attention_bf16 *a)
{
    if (a == NULL) {
        return;
    }
    for (int64_t i = 0; i < a->n_blocks; i++) {
        cadre_bf16_product_destroy(a->blocks[i].score);
        cadre_bf16_product_destroy(a->blocks[i].mix);
        cadre_bf16_product_destroy(a->blocks[i].spread);
    }
    cadre_bf16_product_destroy(a->spread);
    cadre_free(a);
}

size_t cadre_attention_bf16_scratch(const cadre_attention_bf16 *a)
{
    return a->scratch;
}

// One head of queries of one text.
typedef struct head {
    const cadre_attention_bf16 *a;
    const cadre_layer_call *call;
    room r;
    int64_t row;   // of the text, in x and y
    int64_t query; // head of queries
    int64_t key;   // and that of its keys and values
    bool leads;    // it is the first of those that share these
    bool ends;     // and the last
    const float *tokens;
    cadre_softmax_row *rows;
} head;

// Where a head's rows begin in x, of what comes behind so many other heads.
static int64_t begin_of(const head *h, int64_t heads_before, int64_t stride)
{
    return h->row * stride +
           heads_before * cadre_attention_depth(h->call->plan);
}

static int64_t query_heads_before(const head *h)
{
    return h->query;
}

static int64_t key_heads_before(const head *h)
{
    return h->call->plan->heads + h->key;
}

static int64_t value_heads_before(const head *h)
{
    return h->call->plan->heads + h->call->plan->kv_heads + h->key;
}

// The text's rows of a head, one after another.
static void gather(
    const head *h, cadre_narrow_view from, int64_t heads_before, uint16_t *to)
{
    const int64_t depth = cadre_attention_depth(h->call->plan);
    const uint16_t *row = from.data + begin_of(h, heads_before, from.stride);
    for (int64_t t = 0; t < h->call->plan->in.tokens; t++) {
        memcpy(to, row, (size_t)depth * sizeof(*to));
        row += from.stride;
        to += depth;
    }
}

CADRE_VECTOR_BODY void round_rows_body(uint16_t *restrict to, int64_t stride,
    const float *restrict from, int64_t n, int64_t depth)
{
    for (int64_t t = 0; t < n; t++) {
        for (int64_t i = 0; i < depth; i++) {
            to[t * stride + i] = cadre_bf16_of_f32(from[t * depth + i]);
        }
    }
}
CADRE_VECTOR(round_rows,
    (uint16_t *restrict to, int64_t stride, const float *restrict from,
        int64_t n, int64_t depth),
    (to, stride, from, n, depth));

// Where a head's rows go: in f32, or in bf16.
typedef struct target {
    bool is_narrow;
    cadre_matrix wide;
    cadre_narrow_matrix narrow;
} target;

// n rows back, from the text's first on.
static void scatter(const head *h, const float *from, int64_t first, int64_t n,
    int64_t heads_before, const target *to)
{
    const int64_t depth = cadre_attention_depth(h->call->plan);
    if (to->is_narrow) {
        const cadre_narrow_matrix m = to->narrow;
        round_rows[cadre_isa_in_use()](
            m.data + begin_of(h, heads_before, m.stride) + first * m.stride,
            m.stride, from, n, depth);
        return;
    }
    const cadre_matrix m = to->wide;
    float *row =
        m.data + begin_of(h, heads_before, m.stride) + first * m.stride;
    for (int64_t t = 0; t < n; t++) {
        memcpy(row, from, (size_t)depth * sizeof(*row));
        row += m.stride;
        from += depth;
    }
}

static void gather_keys(const head *h)
{
    gather(h, h->call->narrow_x, key_heads_before(h), h->r.k);
    gather(h, h->call->narrow_x, value_heads_before(h), h->r.v);
}

static cadre_status multiply(const head *h, cadre_bf16_product *product,
    const uint16_t *x, const uint16_t *y, float *to)
{
    return cadre_bf16_product_compute(product, x, y, to, h->r.pad);
}

static cadre_met_keys keys_of(
    const head *h, const block_products *b, int64_t first)
{
    return cadre_attention_keys(h->call->plan, first, b->m, h->tokens);
}

static cadre_matrix scores(const block_products *b, float *data)
{
    return (cadre_matrix){data, b->n, b->m, b->m};
}

static cadre_status forward_block(
    const head *h, const block_products *b, int64_t first, const target *y)
{
    const room *r = &h->r;
    const int64_t depth = cadre_attention_depth(h->call->plan);
    CADRE_TRY(multiply(h, b->score, r->q + first * depth, r->k, r->s));
    cadre_attention_softmax_bf16(
        scores(b, r->s), keys_of(h, b, first), h->rows + first, r->p);
    CADRE_TRY(multiply(h, b->mix, r->p, r->v, r->out));
    scatter(h, r->out, first, b->n, query_heads_before(h), y);
    return CADRE_OK;
}

static cadre_status forward_head(const head *h, const target *y)
{
    if (h->leads) {
        gather_keys(h);
    }
    gather(h, h->call->narrow_x, query_heads_before(h), h->r.q);
    for (int64_t i = 0; i < h->a->n_blocks; i++) {
        CADRE_TRY(
            forward_block(h, &h->a->blocks[i], i * CADRE_ATTENTION_BLOCK, y));
    }
    return CADRE_OK;
}

static cadre_status backward_block(const head *h, int64_t i, const target *dx)
{
    const block_products *b = &h->a->blocks[i];
    const int64_t first = i * CADRE_ATTENTION_BLOCK;
    const room *r = &h->r;
    const int64_t depth = cadre_attention_depth(h->call->plan);
    const uint16_t *query = r->q + first * depth;
    const uint16_t *dy = r->dy + first * depth;
    CADRE_TRY(multiply(h, b->score, query, r->k, r->s));
    CADRE_TRY(multiply(h, b->score, dy, r->v, r->dp));
    cadre_attention_softmax_gradient_bf16(scores(b, r->s), scores(b, r->dp),
        keys_of(h, b, first), h->rows + first, r->p, r->ds);
    CADRE_TRY(multiply(h, b->mix, r->ds, r->k, r->out));
    scatter(h, r->out, first, b->n, query_heads_before(h), dx);
    // The last block comes first, and meets all keys: it writes, others add; so
    // do the other heads that share these keys.
    cadre_bf16_product *spread =
        h->leads && i + 1 == h->a->n_blocks ? h->a->spread : b->spread;
    CADRE_TRY(multiply(h, spread, r->ds, query, r->dk));
    return multiply(h, spread, r->p, dy, r->dv);
}

static cadre_status backward_head(const head *h, const target *dx)
{
    if (h->leads) {
        gather_keys(h);
    }
    gather(h, h->call->narrow_x, query_heads_before(h), h->r.q);
    gather(h, h->call->narrow_dy, query_heads_before(h), h->r.dy);
    for (int64_t i = h->a->n_blocks - 1; i >= 0; i--) {
        CADRE_TRY(backward_block(h, i, dx));
    }
    if (h->ends) {
        const int64_t n_tokens = h->call->plan->in.tokens;
        scatter(h, h->r.dk, 0, n_tokens, key_heads_before(h), dx);
        scatter(h, h->r.dv, 0, n_tokens, value_heads_before(h), dx);
    }
    return CADRE_OK;
}

static cadre_status each_head(const cadre_attention_bf16 *a,
    const cadre_layer_call *call, cadre_softmax_row *rows, const target *to,
    cadre_status (*work)(const head *h, const target *to))
{
    const cadre_layer_plan *plan = call->plan;
    const int64_t n_tokens = plan->in.tokens;
    const int64_t share = plan->heads / plan->kv_heads;
    const room r = divide(call);
    for (int64_t i = 0; i * n_tokens < call->narrow_x.rows; i++) {
        const float *tokens = cadre_attention_hiding_tokens(call, i, n_tokens);
        for (int64_t q = 0; q < plan->heads; q++, rows += n_tokens) {
            const head h = {
                .a = a,
                .call = call,
                .r = r,
                .row = i * n_tokens,
                .query = q,
                .key = q / share,
                .leads = q % share == 0,
                .ends = q % share + 1 == share,
                .tokens = tokens,
                .rows = rows,
            };
            cadre_compute_begin();
            cadre_status status = work(&h, to);
            cadre_compute_end();
            CADRE_TRY(status);
        }
    }
    return CADRE_OK;
}

cadre_status cadre_attention_bf16_forward(const cadre_attention_bf16 *a,
    const cadre_layer_call *call, cadre_softmax_row *rows, cadre_matrix y)
{
    const target to = {call->plan->makes_narrow, y, call->narrow_y};
    return each_head(a, call, rows, &to, forward_head);
}

cadre_status cadre_attention_bf16_input_gradient(const cadre_attention_bf16 *a,
    const cadre_layer_call *call, cadre_softmax_row *rows, cadre_matrix dx)
{
    const target to = {call->plan->narrow_dx, dx, call->narrow_dx};
    return each_head(a, call, rows, &to, backward_head);
}
