// SPDX-License-Identifier: Apache-2.0

#include "train/transformer.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include <math.h>
#include <stdio.h>

// At most, of a block, and of what comes before and after the blocks.
enum { BLOCK_LAYERS = 14, OTHER_LAYERS = 8, NAME_BYTES = 32 };

static const float deviation = 0.02f;

// Layers as they are written down, one after another.
typedef struct plan {
    const cadre_transformer *size;
    cadre_layer *layers;
    char (*names)[NAME_BYTES]; // one for each layer
    int n;
    int block; // whose layers are written, or -1
} plan;

const char *cadre_family_name(cadre_family family)
{
    static const char *const names[] = {"gpt", "gpt2", "llama", "bert"};
    return names[family];
}

static cadre_status check_heads(const cadre_transformer *size)
{
    const int kv_heads = size->kv_heads > 0 ? size->kv_heads : size->heads;
    if (size->width < 1 || size->heads < 1 || size->width % size->heads != 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "model.width is %d and model.heads %d: each head needs the same "
            "part of the width",
            size->width, size->heads);
    }
    if (size->family != CADRE_LLAMA && size->kv_heads > 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "model.kv_heads is %d, but only the llama recipes share keys and "
            "values",
            size->kv_heads);
    }
    if (kv_heads > size->heads || size->heads % kv_heads != 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "model.heads is %d and model.kv_heads %d: as many heads have to "
            "share each of those",
            size->heads, kv_heads);
    }
    if (size->family == CADRE_LLAMA && size->width / size->heads % 2 != 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "model.width is %d and model.heads %d: a head of %d channels has "
            "no pairs to turn",
            size->width, size->heads, size->width / size->heads);
    }
    return CADRE_OK;
}

cadre_status cadre_transformer_check(const cadre_transformer *size)
{
    enum { MOST_LAYERS = 100 };
    if (size->layers < 1 || size->layers > MOST_LAYERS) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "model.layers is %d; 1 to %d are possible", size->layers,
            (int)MOST_LAYERS);
    }
    if (size->context < 1) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "model.context is %d, at least 1 is needed", size->context);
    }
    return check_heads(size);
}

// Writes a layer down; name: "qkv", of the block that is written, or NULL.
static cadre_layer *add(plan *p, const char *kind, const char *name)
{
    CADRE_ASSERT(
        p->n < p->size->layers * (int)BLOCK_LAYERS + (int)OTHER_LAYERS);
    cadre_layer *layer = &p->layers[p->n];
    *layer = (cadre_layer){.kind = kind};
    if (name != NULL && p->block >= 0) {
        snprintf(p->names[p->n], NAME_BYTES, "blocks.%d.%s", p->block, name);
        layer->name = p->names[p->n];
    } else {
        layer->name = name;
    }
    p->n++;
    return layer;
}

static cadre_layer *add_weights(
    plan *p, const char *kind, const char *name, int64_t width)
{
    cadre_layer *layer = add(p, kind, name);
    layer->width = width;
    layer->deviation = deviation;
    return layer;
}

static void add_plain(plan *p, const char *name, int64_t width)
{
    add_weights(p, "linear", name, width)->no_bias = true;
}

static void add_embedding(plan *p)
{
    cadre_layer *layer = add_weights(p, "embedding", "tok", p->size->width);
    layer->vocabulary = p->size->vocabulary;
}

static void add_positions(plan *p)
{
    add_weights(p, "positions", "pos", 0);
}

static void add_attention(plan *p, const char *kind)
{
    cadre_layer *layer = add(p, kind, NULL);
    layer->heads = p->size->heads;
    layer->kv_heads = p->size->kv_heads;
}

static void add_unembedding(plan *p)
{
    add(p, "unembedding", NULL)->tied = "tok";
}

// What ends a block adds to what goes past it, so many times.
static void make_smaller(const plan *p, cadre_layer *layer)
{
    if (p->size->family == CADRE_GPT2) {
        layer->deviation /= sqrtf(2.0f * (float)p->size->layers);
    }
}

// x = x + proj(attention(qkv(ln1(x)))); x = x + down(gelu(up(ln2(x)))).
static void add_gpt_block(plan *p)
{
    const int64_t width = p->size->width;
    add(p, "residual", NULL);
    add(p, "layer_norm", "ln1");
    add_weights(p, "linear", "qkv", 3 * width);
    add_attention(p, "causal_attention");
    make_smaller(p, add_weights(p, "linear", "proj", width));
    add(p, "add", NULL);
    add(p, "residual", NULL);
    add(p, "layer_norm", "ln2");
    add_weights(p, "linear", "up", 4 * width);
    add(p, "gelu", NULL);
    make_smaller(p, add_weights(p, "linear", "down", width));
    add(p, "add", NULL);
}

// x = x + proj(attention(rotary(qkv(ln1(x)))));
// x = x + down(swiglu(up(ln2(x)))), as wide inside as makes it as large as the
// perceptron of a GPT, in whole cache lines.
static void add_llama_block(plan *p)
{
    enum { LINE = 32 };
    const int64_t width = p->size->width;
    const int64_t heads = p->size->heads;
    const int64_t kv_heads = p->size->kv_heads > 0 ? p->size->kv_heads : heads;
    const int64_t inside = (8 * width / 3 + LINE - 1) / LINE * LINE;
    add(p, "residual", NULL);
    add(p, "rms_norm", "ln1");
    add_plain(p, "qkv", width / heads * (heads + 2 * kv_heads));
    add_attention(p, "rotary");
    add_attention(p, "causal_attention");
    add_plain(p, "proj", width);
    add(p, "add", NULL);
    add(p, "residual", NULL);
    add(p, "rms_norm", "ln2");
    add_plain(p, "up", 2 * inside);
    add(p, "swiglu", NULL);
    add_plain(p, "down", width);
    add(p, "add", NULL);
}

// x = ln1(x + proj(attention(qkv(x)))); x = ln2(x + down(gelu(up(x)))).
static void add_bert_block(plan *p)
{
    const int64_t width = p->size->width;
    add(p, "residual", NULL);
    add_weights(p, "linear", "qkv", 3 * width);
    add_attention(p, "attention");
    add_weights(p, "linear", "proj", width);
    add(p, "add", NULL);
    add(p, "layer_norm", "ln1");
    add(p, "residual", NULL);
    add_weights(p, "linear", "up", 4 * width);
    add(p, "gelu", NULL);
    add_weights(p, "linear", "down", width);
    add(p, "add", NULL);
    add(p, "layer_norm", "ln2");
}

static void add_begin(plan *p)
{
    add_embedding(p);
    if (p->size->family != CADRE_LLAMA) {
        add_positions(p);
    }
    if (p->size->family == CADRE_BERT) {
        add(p, "layer_norm", "ln");
    }
}

static void add_block(plan *p)
{
    switch (p->size->family) {
    case CADRE_GPT:
    case CADRE_GPT2:
        add_gpt_block(p);
        break;
    case CADRE_LLAMA:
        add_llama_block(p);
        break;
    case CADRE_BERT:
        add_bert_block(p);
        break;
    }
}

static void add_end(plan *p)
{
    switch (p->size->family) {
    case CADRE_GPT:
    case CADRE_GPT2:
        add(p, "layer_norm", "ln");
        add_unembedding(p);
        break;
    case CADRE_LLAMA:
        add(p, "rms_norm", "ln");
        add_plain(p, "head", p->size->vocabulary);
        break;
    case CADRE_BERT:
        add_weights(p, "linear", "head", p->size->width);
        add(p, "gelu", NULL);
        add(p, "layer_norm", "ln_head");
        add_unembedding(p);
        break;
    }
}

static cadre_status make_net(plan *p, cadre_net **out)
{
    p->block = -1;
    add_begin(p);
    for (p->block = 0; p->block < p->size->layers; p->block++) {
        add_block(p);
    }
    p->block = -1;
    add_end(p);
    const cadre_shape text = {1, 1, 1, 1, p->size->context};
    return cadre_net_create(p->layers, p->n, text, p->size->vocabulary, out);
}

cadre_status cadre_transformer_net(
    const cadre_transformer *size, cadre_net **out)
{
    CADRE_TRY(cadre_transformer_check(size));
    const size_t most = (size_t)size->layers * BLOCK_LAYERS + OTHER_LAYERS;
    plan p = {
        .size = size,
        .layers = cadre_alloc_array(most, sizeof(*p.layers)),
        .names = cadre_alloc_array(most, sizeof(*p.names)),
    };
    cadre_status status = p.layers != NULL && p.names != NULL
                              ? make_net(&p, out)
                              : CADRE_ERR_NO_MEMORY;
    cadre_free(p.names);
    cadre_free(p.layers);
    return status;
}
