// SPDX-License-Identifier: Apache-2.0

#include "train/recipe.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "train/alexnet.h"
#include "train/resnet.h"
#include "train/vgg.h"
#include <stdio.h>
#include <string.h>

static const cadre_layer mlp_layers[] = {
    {.kind = "linear", .name = "fc1", .width = 512},
    {.kind = "relu"},
    {.kind = "linear", .name = "fc2", .width = 256},
    {.kind = "relu"},
    {.kind = "linear", .name = "fc3", .width = 10},
};

static const cadre_layer cnn_layers[] = {
    {.kind = "conv2d", .name = "conv1", .width = 32, .kernel = 3, .padding = 1},
    {.kind = "relu"},
    {.kind = "conv2d", .name = "conv2", .width = 32, .kernel = 3, .padding = 1},
    {.kind = "relu"},
    {.kind = "maxpool2d", .kernel = 2},
    {.kind = "conv2d", .name = "conv3", .width = 64, .kernel = 3, .padding = 1},
    {.kind = "relu"},
    {.kind = "conv2d", .name = "conv4", .width = 64, .kernel = 3, .padding = 1},
    {.kind = "relu"},
    {.kind = "maxpool2d", .kernel = 2},
    {.kind = "linear", .name = "fc1", .width = 128},
    {.kind = "relu"},
    {.kind = "linear", .name = "fc2", .width = 10},
};

static const cadre_layer lenet_layers[] = {
    {.kind = "conv2d", .name = "conv1", .width = 6, .kernel = 5, .padding = 2},
    {.kind = "relu"},
    {.kind = "maxpool2d", .kernel = 2},
    {.kind = "conv2d", .name = "conv2", .width = 16, .kernel = 5},
    {.kind = "relu"},
    {.kind = "maxpool2d", .kernel = 2},
    {.kind = "linear", .name = "fc1", .width = 120},
    {.kind = "relu"},
    {.kind = "linear", .name = "fc2", .width = 84},
    {.kind = "relu"},
    {.kind = "linear", .name = "fc3", .width = 10},
};

// NOLINTBEGIN(bugprone-macro-parentheses): a string literal fills an array

// What all have in common that learn Fashion-MNIST.
#define FASHION(name, n_epochs, rate, shape)                                \
    {                                                                       \
        .recipe = name, .epochs = (n_epochs), .threads = 1,                 \
        .global_batch = 128, .threads_per_leaf = 1, .seed = 1,              \
        .log_every = 50, .optimizer = CADRE_ADAMW, .lr = (rate),            \
        .weight_decay = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8,    \
        .schedule = (shape), .warmup_steps = 50, .step_factor = 0.1,        \
        .fold = CADRE_FOLD_DEFERRED, .bucket_mb = 25, .order = "canonical", \
        .transport = "auto", .timeout_ms = 30000, .checkpoint_keep = 2,     \
    }

// What all have in common that learn from a folder of images.
#define FOLDER(name, text, builder, width_, rate)                       \
    {                                                                   \
        .summary = text ", on a folder of images", .dataset = "images", \
        .sizes = CADRE_SIZES_WIDTH, .build = (builder),                 \
        .config = {                                                     \
            .recipe = name,                                             \
            .epochs = 30,                                               \
            .threads = 1,                                               \
            .model_width = (width_),                                    \
            .data_side = 224,                                           \
            .data_augment = true,                                       \
            .global_batch = 32,                                         \
            .threads_per_leaf = 1,                                      \
            .seed = 1,                                                  \
            .log_every = 10,                                            \
            .optimizer = CADRE_ADAMW,                                   \
            .lr = (rate),                                               \
            .weight_decay = 1e-2,                                       \
            .beta1 = 0.9,                                               \
            .beta2 = 0.999,                                             \
            .eps = 1e-8,                                                \
            .decay = CADRE_DECAY_WEIGHTS,                               \
            .schedule = CADRE_COSINE,                                   \
            .warmup_steps = 50,                                         \
            .step_factor = 0.1,                                         \
            .fold = CADRE_FOLD_DEFERRED,                                \
            .bucket_mb = 25,                                            \
            .order = "canonical",                                       \
            .transport = "auto",                                        \
            .timeout_ms = 30000,                                        \
            .checkpoint_keep = 2,                                       \
        },                                                              \
    }

// What all have in common that learn text.
#define TEXT(name, n_layers_, width_, heads_, context_, batch, rate)          \
    .recipe = name, .steps = 1000, .threads = 1, .model_layers = (n_layers_), \
    .model_width = (width_), .model_heads = (heads_),                         \
    .model_context = (context_), .global_batch = (batch),                     \
    .threads_per_leaf = 1, .seed = 1, .log_every = 10,                        \
    .optimizer = CADRE_ADAMW, .lr = (rate), .beta1 = 0.9, .eps = 1e-8,        \
    .decay = CADRE_DECAY_WEIGHTS, .clip = 1, .schedule = CADRE_COSINE,        \
    .min_lr_factor = 0.1, .step_factor = 0.1, .fold = CADRE_FOLD_DEFERRED,    \
    .bucket_mb = 25, .order = "canonical", .transport = "auto",               \
    .timeout_ms = 30000, .checkpoint_keep = 2

// Of the models that are small.
#define SMALL .weight_decay = 1e-2, .beta2 = 0.999, .warmup_steps = 50

// What is large: a sample at a time goes through the net.
#define GPT2(name, n_layers_, width_, heads_, rate)                           \
    {                                                                         \
        .summary = "GPT-2, " #n_layers_ " layers, " #width_ " wide, on text", \
        .dataset = "text", .sizes = CADRE_SIZES_TRANSFORMER,                  \
        .family = CADRE_GPT2,                                                 \
        .config = {                                                           \
            TEXT(name, n_layers_, width_, heads_, 1024, 8, rate),             \
            .micro_batch = 1,                                                 \
            .weight_decay = 0.1,                                              \
            .beta2 = 0.95,                                                    \
            .warmup_steps = 100,                                              \
        },                                                                    \
    }

// NOLINTEND(bugprone-macro-parentheses)

#define LAYERS(list) \
    .layers = (list), .n_layers = sizeof(list) / sizeof((list)[0])

static const cadre_recipe recipes[] = {
    {
        .summary = "784-512-256-10, ReLU, on Fashion-MNIST",
        .dataset = "fashion",
        LAYERS(mlp_layers),
        .sizes = CADRE_SIZES_STACK,
        .config = FASHION("mlp-fashion", 5, 1e-3, CADRE_CONSTANT),
        .config.data_in_memory = true,
    },
    {
        .summary = "four 3x3 convolutions, two linear layers, on Fashion-MNIST",
        .dataset = "fashion",
        LAYERS(cnn_layers),
        .config = FASHION("cnn-fashion", 2, 2e-3, CADRE_LINEAR),
    },
    {
        .summary = "LeNet-5 on Fashion-MNIST",
        .dataset = "fashion",
        LAYERS(lenet_layers),
        .config = FASHION("lenet-fashion", 10, 1e-3, CADRE_CONSTANT),
        // What a layer leaves to the next stays in a core's cache so.
        .config.micro_batch = 32,
        .config.data_in_memory = true,
    },
    {
        .summary = "ResNet-18 on Fashion-MNIST",
        .dataset = "fashion",
        .sizes = CADRE_SIZES_WIDTH,
        .build = cadre_resnet18_net,
        .config = FASHION("resnet18-fashion", 4, 3e-3, CADRE_LINEAR),
        .config.model_width = 16,
    },
    FOLDER("resnet50", "ResNet-50", cadre_resnet50_net, 64, 1e-3),
    FOLDER("alexnet", "AlexNet", cadre_alexnet_net, 96, 3e-4),
    FOLDER("vgg16", "VGG-16", cadre_vgg16_net, 64, 1e-4),
    {
        .summary = "GPT, 6 layers, 384 wide, bytes of the King James Bible",
        .dataset = "text",
        .sizes = CADRE_SIZES_TRANSFORMER,
        .config = {TEXT("gpt-kjv", 6, 384, 6, 256, 8, 1e-3), SMALL},
    },
    {
        .summary = "GPT, 4 layers, 128 wide, bytes of the King James Bible",
        .dataset = "text",
        .sizes = CADRE_SIZES_TRANSFORMER,
        .config = {TEXT("gpt-kjv-small", 4, 128, 4, 128, 16, 2e-3), SMALL},
    },
    {
        .summary = "Llama, 4 layers, 128 wide, bytes of the King James Bible",
        .dataset = "text",
        .sizes = CADRE_SIZES_TRANSFORMER,
        .family = CADRE_LLAMA,
        .config = {TEXT("llama-kjv-small", 4, 128, 4, 128, 16, 2e-3), SMALL,
            .model_kv_heads = 2},
    },
    {
        .summary = "BERT, 4 layers, 128 wide, bytes of the King James Bible",
        .dataset = "masked_text",
        .sizes = CADRE_SIZES_TRANSFORMER,
        .family = CADRE_BERT,
        .config = {TEXT("bert-kjv", 4, 128, 4, 128, 16, 1e-3), SMALL},
    },
    GPT2("gpt2", 12, 768, 12, 6e-4),
    GPT2("gpt2-medium", 24, 1024, 16, 3e-4),
    GPT2("gpt2-large", 36, 1280, 20, 2.5e-4),
    GPT2("gpt2-xl", 48, 1600, 25, 2e-4),
};

enum { N_RECIPES = sizeof(recipes) / sizeof(recipes[0]) };

const char *cadre_recipe_name(int i)
{
    return i >= 0 && i < N_RECIPES ? recipes[i].config.recipe : NULL;
}

const char *cadre_recipe_summary(int i)
{
    return i >= 0 && i < N_RECIPES ? recipes[i].summary : NULL;
}

const char *cadre_recipe_data(int i)
{
    return i >= 0 && i < N_RECIPES ? recipes[i].dataset : NULL;
}

static const cadre_recipe *find(const char *name)
{
    for (int i = 0; i < N_RECIPES; i++) {
        if (strcmp(recipes[i].config.recipe, name) == 0) {
            return &recipes[i];
        }
    }
    return NULL;
}

static cadre_status refuse(const char *name)
{
    char names[CADRE_TEXT_BYTES] = "";
    for (int i = 0; i < N_RECIPES; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof(names) - used, "%s%s", i == 0 ? "" : ", ",
            recipes[i].config.recipe);
    }
    return cadre_fail(CADRE_ERR_NOT_FOUND,
        "there is no recipe '%s'; there is: %s", name, names);
}

cadre_status cadre_recipe_find(const char *name, const cadre_recipe **out)
{
    const cadre_recipe *recipe = find(name);
    if (recipe == NULL) {
        return refuse(name);
    }
    *out = recipe;
    return CADRE_OK;
}

cadre_status cadre_recipe_config(const char *name, cadre_train_config *out)
{
    if (name == NULL || out == NULL) {
        return cadre_fail(
            CADRE_ERR_INVALID_ARG, "cadre_recipe_config needs a name and out");
    }
    const cadre_recipe *recipe = find(name);
    if (recipe == NULL) {
        return refuse(name);
    }
    *out = recipe->config;
    return CADRE_OK;
}

const char *cadre_train_library(void)
{
    return cadre_compute_version();
}

const char *cadre_train_isa(void)
{
    return cadre_compute_isa();
}

// Hidden layers of one width: what takes the place of a recipe's own layers.
enum { HIDDEN_LAYERS = 2, HIDDEN_WIDTH = 512, LAYER_NAME_BYTES = 16 };

typedef struct stack {
    cadre_layer *layers;
    char (*names)[LAYER_NAME_BYTES];
    int n;
} stack;

static void add_linear(stack *s, int number, int64_t width)
{
    snprintf(s->names[s->n], LAYER_NAME_BYTES, "fc%d", number);
    s->layers[s->n] =
        (cadre_layer){.kind = "linear", .name = s->names[s->n], .width = width};
    s->n++;
}

static cadre_status plan_stack(const cadre_train_config *config,
    cadre_shape sample, int64_t n_classes, cadre_net **out)
{
    int depth = config->model_layers > 0 ? config->model_layers : HIDDEN_LAYERS;
    int64_t width =
        config->model_width > 0 ? config->model_width : HIDDEN_WIDTH;
    size_t n = 2 * (size_t)depth + 1;
    stack s = {
        .layers = cadre_alloc_array(n, sizeof(*s.layers)),
        .names = cadre_alloc_array(n, sizeof(*s.names)),
    };
    cadre_status status = CADRE_ERR_NO_MEMORY;
    if (s.layers != NULL && s.names != NULL) {
        for (int i = 1; i <= depth; i++) {
            add_linear(&s, i, width);
            s.layers[s.n++] = (cadre_layer){.kind = "relu"};
        }
        add_linear(&s, depth + 1, n_classes);
        status = cadre_net_create(s.layers, s.n, sample, n_classes, out);
    }
    cadre_free(s.names);
    cadre_free(s.layers);
    return status;
}

static cadre_transformer transformer_of(const cadre_recipe *recipe,
    const cadre_train_config *config, int64_t n_classes)
{
    return (cadre_transformer){
        .family = recipe->family,
        .layers = config->model_layers,
        .width = config->model_width,
        .heads = config->model_heads,
        .kv_heads = config->model_kv_heads,
        .context = config->model_context,
        .vocabulary = (int)n_classes,
    };
}

static bool is_resized(const cadre_train_config *config)
{
    return config->model_layers > 0 || config->model_width > 0;
}

// What is for text is for nothing else.
static cadre_status check_text_keys(
    const cadre_recipe *recipe, const cadre_train_config *config)
{
    const char *key = config->data_tokenizer[0] != '\0' ? "data.tokenizer"
                      : config->data_cache[0] != '\0'   ? "data.cache"
                                                        : NULL;
    return key == NULL || strstr(recipe->dataset, "text") != NULL
               ? CADRE_OK
               : cadre_fail(CADRE_ERR_INVALID_ARG,
                     "%s is given, but recipe '%s' reads no text", key,
                     config->recipe);
}

// What is for folders of images is for nothing else.
static cadre_status check_image_keys(
    const cadre_recipe *recipe, const cadre_train_config *config)
{
    const char *key = config->data_side > 0  ? "data.side"
                      : config->data_augment ? "data.augment"
                      : config->data_damaged != CADRE_DAMAGED_REFUSE
                          ? "data.damaged"
                          : NULL;
    return key == NULL || strcmp(recipe->dataset, "images") == 0
               ? CADRE_OK
               : cadre_fail(CADRE_ERR_INVALID_ARG,
                     "%s is given, but recipe '%s' reads no folder of images",
                     key, config->recipe);
}

// What is for Fashion-MNIST is for nothing else.
static cadre_status check_fashion_keys(
    const cadre_recipe *recipe, const cadre_train_config *config)
{
    return !config->data_in_memory || strcmp(recipe->dataset, "fashion") == 0
               ? CADRE_OK
               : cadre_fail(CADRE_ERR_INVALID_ARG,
                     "data.in_memory is given, but recipe '%s' does not read "
                     "Fashion-MNIST",
                     config->recipe);
}

cadre_status cadre_recipe_check_size(
    const cadre_recipe *recipe, const cadre_train_config *config)
{
    CADRE_TRY(check_fashion_keys(recipe, config));
    CADRE_TRY(check_image_keys(recipe, config));
    CADRE_TRY(check_text_keys(recipe, config));
    if (recipe->sizes == CADRE_SIZES_TRANSFORMER) {
        const cadre_transformer size = transformer_of(recipe, config, 1);
        return cadre_transformer_check(&size);
    }
    if (config->model_heads > 0 || config->model_kv_heads > 0 ||
        config->model_context > 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "%s is given, but recipe '%s' has no attention",
            config->model_heads > 0      ? "model.heads"
            : config->model_kv_heads > 0 ? "model.kv_heads"
                                         : "model.context",
            config->recipe);
    }
    if (config->model_layers > 0 && recipe->sizes == CADRE_SIZES_WIDTH) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "model.layers is given, but the layers of recipe '%s' are what it "
            "is; it takes model.width",
            config->recipe);
    }
    if (is_resized(config) && recipe->sizes == CADRE_SIZES_ONE) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "%s is given, but recipe '%s' has one size",
            config->model_layers > 0 ? "model.layers" : "model.width",
            config->recipe);
    }
    return CADRE_OK;
}

cadre_status cadre_recipe_net(const cadre_recipe *recipe,
    const cadre_train_config *config, cadre_shape sample, int64_t n_classes,
    cadre_net **out)
{
    CADRE_TRY(cadre_recipe_check_size(recipe, config));
    if (recipe->sizes == CADRE_SIZES_TRANSFORMER) {
        const cadre_transformer size =
            transformer_of(recipe, config, n_classes);
        return cadre_transformer_net(&size, out);
    }
    if (recipe->build != NULL) {
        int width = config->model_width > 0 ? config->model_width
                                            : recipe->config.model_width;
        return recipe->build(width, sample, n_classes, out);
    }
    return is_resized(config) ? plan_stack(config, sample, n_classes, out)
                              : cadre_net_create(recipe->layers,
                                    recipe->n_layers, sample, n_classes, out);
}
