// SPDX-License-Identifier: Apache-2.0

#include "train/gpt.h"

#include "base/alloc.h"
#include "base/fail.h"
#include <stdio.h>

// Layers of a block, and those before and after the blocks.
enum { BLOCK_LAYERS = 12, OTHER_LAYERS = 4, NAMED = 6, NAME_BYTES = 32 };

static const float deviation = 0.02f;

cadre_status cadre_gpt_check(const cadre_gpt *size)
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
    if (size->width < 1 || size->heads < 1 || size->width % size->heads != 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "model.width is %d and model.heads %d: each head needs the same "
            "part of the width",
            size->width, size->heads);
    }
    return CADRE_OK;
}

static cadre_layer linear(const char *name, int64_t width)
{
    return (cadre_layer){
        .kind = "linear", .name = name, .width = width, .deviation = deviation};
}

// x = x + proj(attention(qkv(ln1(x)))); x = x + down(gelu(up(ln2(x)))).
static void write_block(const cadre_gpt *size, int number,
    char names[NAMED][NAME_BYTES], cadre_layer layers[BLOCK_LAYERS])
{
    static const char *const words[NAMED] = {
        "ln1", "qkv", "proj", "ln2", "up", "down"};
    for (int i = 0; i < NAMED; i++) {
        snprintf(names[i], NAME_BYTES, "blocks.%d.%s", number, words[i]);
    }
    const int64_t width = size->width;
    const cadre_layer block[BLOCK_LAYERS] = {
        {.kind = "residual"},
        {.kind = "layer_norm", .name = names[0]},
        linear(names[1], 3 * width),
        {.kind = "causal_attention", .heads = size->heads},
        linear(names[2], width),
        {.kind = "add"},
        {.kind = "residual"},
        {.kind = "layer_norm", .name = names[3]},
        linear(names[4], 4 * width),
        {.kind = "gelu"},
        linear(names[5], width),
        {.kind = "add"},
    };
    for (int i = 0; i < BLOCK_LAYERS; i++) {
        layers[i] = block[i];
    }
}

static cadre_status plan_net(const cadre_gpt *size, cadre_layer *layers,
    char names[][NAMED][NAME_BYTES], cadre_net **out)
{
    int n = 0;
    layers[n++] = (cadre_layer){.kind = "embedding",
        .name = "tok",
        .width = size->width,
        .vocabulary = size->vocabulary,
        .deviation = deviation};
    layers[n++] = (cadre_layer){
        .kind = "positions", .name = "pos", .deviation = deviation};
    for (int b = 0; b < size->layers; b++) {
        write_block(size, b, names[b], &layers[n]);
        n += BLOCK_LAYERS;
    }
    layers[n++] = (cadre_layer){.kind = "layer_norm", .name = "ln"};
    layers[n++] = (cadre_layer){.kind = "unembedding", .tied = "tok"};
    const cadre_shape text = {1, 1, 1, 1, size->context};
    return cadre_net_create(layers, n, text, size->vocabulary, out);
}

cadre_status cadre_gpt_net(const cadre_gpt *size, cadre_net **out)
{
    CADRE_TRY(cadre_gpt_check(size));
    size_t n_blocks = (size_t)size->layers;
    cadre_layer *layers = cadre_alloc_array(
        n_blocks * BLOCK_LAYERS + OTHER_LAYERS, sizeof(*layers));
    char(*names)[NAMED][NAME_BYTES] =
        cadre_alloc_array(n_blocks, sizeof(*names));
    cadre_status status = layers != NULL && names != NULL
                              ? plan_net(size, layers, names, out)
                              : CADRE_ERR_NO_MEMORY;
    cadre_free(names);
    cadre_free(layers);
    return status;
}
