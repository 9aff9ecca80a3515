// SPDX-License-Identifier: Apache-2.0

#include "keys.h"

#include "nearest.h"
#include "number.h"
#include "path.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef enum key_kind {
    KEY_INT,    // int
    KEY_COUNT,  // int64_t
    KEY_SEED,   // uint64_t
    KEY_REAL,   // double
    KEY_FLAG,   // bool
    KEY_PATH,   // char[CADRE_PATH_BYTES]
    KEY_CHOICE, // an enum, by name
    KEY_WORD,   // char[], one of some names
    KEY_FOLD,   // int: a name or a power of two
} key_kind;

typedef struct choice {
    const char *word;
    int value;
    bool unbuilt;
} choice;

enum { MOST_CHOICES = 8, HIGHEST_FOLD = 65536 };

typedef struct key {
    const char *name;
    key_kind kind;
    size_t offset; // into cadre_train_config
    double lowest; // of a number
    double highest;
    bool below;            // the highest itself is out of range
    const choice *choices; // ended by a NULL word
    const char *help;      // at most 40 characters
} key;

static_assert(sizeof(cadre_optimizer) == sizeof(int), "set as an int");
static_assert(sizeof(cadre_schedule) == sizeof(int), "set as an int");
static_assert(sizeof(cadre_decay) == sizeof(int), "set as an int");
static_assert(sizeof(cadre_damaged) == sizeof(int), "set as an int");
static_assert(sizeof(cadre_mode) == sizeof(int), "set as an int");
static_assert(sizeof(cadre_precision) == sizeof(int), "set as an int");
static_assert(sizeof(cadre_overlap) == sizeof(int), "set as an int");

// Of a word that is chosen among some.
enum { WORD_BYTES = 16 };

static_assert(sizeof(((cadre_train_config *)0)->order) == WORD_BYTES &&
                  sizeof(((cadre_train_config *)0)->transport) == WORD_BYTES,
    "set as words");

// clang-format off
static const choice precisions[] = {{"f32", CADRE_PRECISION_F32, false},
    {"bf16", CADRE_PRECISION_BF16, false}, {0}};
static const choice optimizers[] = {{"sgd", CADRE_SGD, false},
    {"adamw", CADRE_ADAMW, false}, {"lars", 0, true}, {"lamb", 0, true}, {0}};
static const choice decays[] = {{"all", CADRE_DECAY_ALL, false},
    {"weights", CADRE_DECAY_WEIGHTS, false}, {0}};
static const choice damages[] = {{"refuse", CADRE_DAMAGED_REFUSE, false},
    {"skip", CADRE_DAMAGED_SKIP, false}, {0}};
static const choice schedules[] = {{"constant", CADRE_CONSTANT, false},
    {"cosine", CADRE_COSINE, false}, {"linear", CADRE_LINEAR, false},
    {"step", CADRE_STEP, false}, {0}};
static const choice modes[] = {{"ddp", CADRE_DDP, false}, {"zero1", CADRE_ZERO1, false},
    {"zero2", 0, true}, {"zero3", 0, true}, {"local", 0, true},
    {"diloco", 0, true}, {"fedavg", 0, true}, {"server", 0, true}, {0}};
static const choice folds[] = {{"deferred", CADRE_FOLD_DEFERRED, false},
    {"eager", CADRE_FOLD_EAGER, false}, {0}};
static const choice overlaps[] = {{"on", CADRE_OVERLAP_ON, false},
    {"off", CADRE_OVERLAP_OFF, false}, {0}};
static const choice orders[] =
    {{"canonical", 0, false}, {"ring", 0, false}, {0}};
static const choice transports[] = {{"auto", 0, false}, {"inproc", 0, false},
    {"tcp", 0, false}, {"shm", 0, false}, {"ucx", 0, true}, {0}};

#define AT(field) .offset = offsetof(cadre_train_config, field)

enum { RECIPE, STEPS, EPOCHS }; // the first three rows

static const key keys[] = {
    [RECIPE] = {"recipe", KEY_WORD, AT(recipe), .help = "name of a built-in recipe"},
    [STEPS] = {"steps", KEY_COUNT, AT(steps), 1, 1e15, .help = "how long; instead of epochs"},
    [EPOCHS] = {"epochs", KEY_COUNT, AT(epochs), 1, 1e9, .help = "how long; instead of steps"},

    {"model.layers", KEY_INT, AT(model_layers), 0, 1000, .help = "layers, hidden ones; 0: the recipe's"},
    {"model.width", KEY_INT, AT(model_width), 0, 65536, .help = "width of each; 0: the recipe's"},
    {"model.heads", KEY_INT, AT(model_heads), 0, 1024, .help = "attention heads of a GPT"},
    {"model.kv_heads", KEY_INT, AT(model_kv_heads), 0, 1024, .help = "of keys and values; 0: as many"},
    {"model.context", KEY_INT, AT(model_context), 0, 1048576, .help = "bytes of a sample of text"},

    {"data.path", KEY_PATH, AT(data_path), .help = "folder with the data; '': its package's"},
    {"data.tokenizer", KEY_PATH, AT(data_tokenizer), .help = "its folder; '': a text's bytes"},
    {"data.cache", KEY_PATH, AT(data_cache), .help = "file where a text's tokens are kept"},
    {"data.drop_last", KEY_FLAG, AT(data_drop_last), .help = "drop an epoch's short last batch"},
    {"data.in_memory", KEY_FLAG, AT(data_in_memory), .help = "training images; Fashion-MNIST only"},
    {"data.side", KEY_INT, AT(data_side), 0, 1024, .help = "pixels of an image's side; folders only"},
    {"data.augment", KEY_FLAG, AT(data_augment), .help = "random parts of images; folders only"},
    {"data.damaged", KEY_CHOICE, AT(data_damaged), .choices = damages, .help = "images of a folder"},

    {"train.global_batch", KEY_COUNT, AT(global_batch), 1, 1e9, .help = "samples per step, over all ranks"},
    {"train.micro_batch", KEY_COUNT, AT(micro_batch), 0, 1e9, .help = "samples per leaf and pass; 0: all"},
    {"train.threads_per_leaf", KEY_INT, AT(threads_per_leaf), 1, 1024, .help = "only 1 is built yet"},
    {"train.label_smoothing", KEY_REAL, AT(label_smoothing), 0, 1, .below = true, .help = "part of a label that all classes share"},
    {"train.seed", KEY_SEED, AT(seed), .help = "of order and initial values"},
    {"train.precision", KEY_CHOICE, AT(precision), .choices = precisions, .help = "of factors and activations; bf16 where built in"},
    {"train.recompute", KEY_FLAG, AT(recompute), .help = "keep less for backward, compute it again; never bits"},
    {"train.eval_every", KEY_COUNT, AT(eval_every), 0, 1e15, .help = "steps; 0: at the end only"},
    {"train.log_every", KEY_COUNT, AT(log_every), 1, 1e15, .help = "steps"},

    {"optim.name", KEY_CHOICE, AT(optimizer), .choices = optimizers, .help = "optimizer"},
    {"optim.lr", KEY_REAL, AT(lr), 0, 1e6, .help = "learning rate"},
    {"optim.weight_decay", KEY_REAL, AT(weight_decay), 0, 1e6, .help = "weight decay"},
    {"optim.decay", KEY_CHOICE, AT(decay), .choices = decays, .help = "what it is of; weights: no biases"},
    {"optim.momentum", KEY_REAL, AT(momentum), 0, 0.999999, .help = "sgd"},
    {"optim.beta1", KEY_REAL, AT(beta1), 0, 0.999999, .help = "adamw"},
    {"optim.beta2", KEY_REAL, AT(beta2), 0, 0.9999999, .help = "adamw"},
    {"optim.eps", KEY_REAL, AT(eps), 0, 1, .help = "adamw"},
    {"optim.clip", KEY_REAL, AT(clip), 0, 1e30, .help = "limit of the gradient's norm; 0: none"},
    {"optim.warmup_steps", KEY_COUNT, AT(warmup_steps), 0, 1e15, .help = "steps of rising learning rate"},
    {"optim.schedule", KEY_CHOICE, AT(schedule), .choices = schedules, .help = "of the learning rate"},

    {"optim.total_steps", KEY_COUNT, AT(total_steps), 0, 1e15, .help = "cosine, linear; 0: the run's steps"},
    {"optim.min_lr_factor", KEY_REAL, AT(min_lr_factor), 0, 1, .help = "cosine, linear: the end, times lr"},
    {"optim.step_every", KEY_COUNT, AT(step_every), 0, 1e15, .help = "step: steps from fall to fall"},
    {"optim.step_factor", KEY_REAL, AT(step_factor), 0, 1, .help = "step: what a fall multiplies by"},

    {"parallel.mode", KEY_CHOICE, AT(mode), .choices = modes, .help = "what ranks share"},
    {"parallel.leaves", KEY_INT, AT(leaves), 1, 65536, .help = "parts of a batch (ranks x threads)"},
    {"parallel.fold", KEY_FOLD, AT(fold), .choices = folds, .help = "memory against traffic; never bits"},
    {"parallel.bucket_mb", KEY_REAL, AT(bucket_mb), 1e-6, 65536, .help = "most MiB of gradients sent together"},
    {"parallel.overlap", KEY_CHOICE, AT(overlap), .choices = overlaps, .help = "send while backward goes on"},
    {"parallel.progress_thread", KEY_FLAG, AT(progress_thread), .help = "a thread that moves gradients"},
    {"parallel.order", KEY_WORD, AT(order), .choices = orders, .help = "of summation; ring: bits depend on ranks"},
    {"parallel.transport", KEY_WORD, AT(transport), .choices = transports, .help = "inproc: ranks are threads"},
    {"parallel.timeout_ms", KEY_INT, AT(timeout_ms), 1, 86400000, .help = "a rank silent that long is lost"},

    {"checkpoint.every", KEY_COUNT, AT(checkpoint_every), 0, 1e15, .help = "steps; 0: at the end only"},
    {"checkpoint.keep", KEY_INT, AT(checkpoint_keep), 0, 1e6, .help = "the newest so many; 0: all"},
};
// clang-format on

enum { N_KEYS = sizeof(keys) / sizeof(keys[0]) };

int key_count(void)
{
    return N_KEYS;
}

const char *key_name(int i)
{
    return keys[i].name;
}

static const key *find(const char *name)
{
    for (int i = 0; i < N_KEYS; i++) {
        if (strcmp(keys[i].name, name) == 0) {
            return &keys[i];
        }
    }
    return NULL;
}

// What the key's value may be, in words.
static void describe(const key *k, char *text, size_t nbytes)
{
    char lowest[NUMBER_BYTES];
    char highest[NUMBER_BYTES];
    size_t used = 0;
    switch (k->kind) {
    case KEY_INT:
    case KEY_COUNT:
        snprintf(text, nbytes, "%.0f to %.0f", k->lowest, k->highest);
        break;
    case KEY_REAL:
        real_to_text(k->lowest, lowest);
        real_to_text(k->highest, highest);
        snprintf(text, nbytes, "%s %s %s", lowest, k->below ? "to below" : "to",
            highest);
        break;
    case KEY_SEED:
        snprintf(text, nbytes, "0 to 2^64-1");
        break;
    case KEY_FLAG:
        snprintf(text, nbytes, "true, false");
        break;
    case KEY_PATH:
        snprintf(text, nbytes, "a path");
        break;
    case KEY_CHOICE:
    case KEY_WORD:
    case KEY_FOLD:
        // A recipe's name is none of some words that are known here.
        snprintf(text, nbytes, "%s",
            k->choices == NULL ? "as `cadre train --list` shows" : "");
        for (const choice *c = k->choices; c != NULL && c->word != NULL; c++) {
            if (!c->unbuilt && used < nbytes) {
                used += (size_t)snprintf(text + used, nbytes - used, "%s%s",
                    used == 0 ? "" : ", ", c->word);
            }
        }
        if (k->kind == KEY_FOLD && used < nbytes) {
            snprintf(text + used, nbytes - used, ", a power of two up to %d",
                HIGHEST_FOLD);
        }
        break;
    }
}

static bool refuse(char problem[KEY_PROBLEM_BYTES], const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

static bool refuse(char problem[KEY_PROBLEM_BYTES], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): the line above does
    vsnprintf(problem, KEY_PROBLEM_BYTES, format, arguments);
    va_end(arguments);
    return false;
}

static bool refuse_name(const char *name, char problem[KEY_PROBLEM_BYTES])
{
    const char *names[N_KEYS];
    for (int i = 0; i < N_KEYS; i++) {
        names[i] = keys[i].name;
    }
    return refuse(problem,
        "there is no key '%s'; did you mean '%s'?  `cadre train --help keys` "
        "lists all",
        name, nearest(name, names, N_KEYS));
}

static bool refuse_value(
    const key *k, const char *value, char problem[KEY_PROBLEM_BYTES])
{
    char range[128];
    describe(k, range, sizeof(range));
    return refuse(
        problem, "%s is '%.128s'; it can be %s", k->name, value, range);
}

// Refuses a word that is none of the key's, or that is not built yet.
static const choice *choose(
    const key *k, const char *value, char problem[KEY_PROBLEM_BYTES])
{
    const char *words[MOST_CHOICES];
    int n = 0;
    for (const choice *c = k->choices; c->word != NULL; c++) {
        if (strcmp(c->word, value) != 0) {
            words[n] = c->word;
            n += !c->unbuilt;
            continue;
        }
        if (c->unbuilt) {
            (void)refuse(
                problem, "%s: '%s' is not built yet", k->name, c->word);
            return NULL;
        }
        return c;
    }
    char range[128];
    describe(k, range, sizeof(range));
    (void)refuse(problem, "%s is '%.128s'; it can be %s; did you mean '%s'?",
        k->name, value, range, nearest(value, words, n));
    return NULL;
}

static bool in_range(const key *k, double value)
{
    return value >= k->lowest &&
           (k->below ? value < k->highest : value <= k->highest);
}

static bool set_number(
    const key *k, void *at, const char *value, char problem[KEY_PROBLEM_BYTES])
{
    int64_t number;
    if (!number_from_text(value, &number) || !in_range(k, (double)number)) {
        return refuse_value(k, value, problem);
    }
    if (k->kind == KEY_INT) {
        *(int *)at = (int)number;
    } else {
        *(int64_t *)at = number;
    }
    return true;
}

static bool set_real(
    const key *k, void *at, const char *value, char problem[KEY_PROBLEM_BYTES])
{
    double number;
    if (!real_from_text(value, &number) || !in_range(k, number)) {
        return refuse_value(k, value, problem);
    }
    *(double *)at = number;
    return true;
}

static bool set_flag(
    const key *k, void *at, const char *value, char problem[KEY_PROBLEM_BYTES])
{
    bool yes = strcmp(value, "true") == 0;
    if (!yes && strcmp(value, "false") != 0) {
        return refuse_value(k, value, problem);
    }
    *(bool *)at = yes;
    return true;
}

static bool set_path(
    const key *k, char *at, const char *value, char problem[KEY_PROBLEM_BYTES])
{
    if (strlen(value) >= CADRE_PATH_BYTES) {
        return refuse(problem, "%s is longer than %d bytes", k->name,
            CADRE_PATH_BYTES - 1);
    }
    if (!path_is_utf8(value)) {
        return refuse(problem,
            "%s is no UTF-8, which config.yaml is: give a link with another "
            "name",
            k->name);
    }
    snprintf(at, CADRE_PATH_BYTES, "%s", value);
    return true;
}

// A power of two or a word.
static bool set_fold(
    const key *k, int *at, const char *value, char problem[KEY_PROBLEM_BYTES])
{
    int64_t number;
    if (!number_from_text(value, &number)) {
        const choice *c = choose(k, value, problem);
        *at = c == NULL ? *at : c->value;
        return c != NULL;
    }
    if (number < 1 || number > HIGHEST_FOLD || (number & (number - 1)) != 0) {
        return refuse_value(k, value, problem);
    }
    *at = (int)number;
    return true;
}

static bool set_word(const key *k, cadre_train_config *config,
    const char *value, char problem[KEY_PROBLEM_BYTES])
{
    if (k == &keys[RECIPE]) {
        return refuse(problem,
            "recipe is what the other keys are read for: it stands first, or "
            "in a file");
    }
    const choice *c = choose(k, value, problem);
    if (c == NULL) {
        return false;
    }
    snprintf((char *)config + k->offset, WORD_BYTES, "%s", c->word);
    return true;
}

bool key_set(cadre_train_config *config, const char *name, const char *value,
    char problem[KEY_PROBLEM_BYTES])
{
    const key *k = find(name);
    if (k == NULL) {
        return refuse_name(name, problem);
    }
    void *at = (char *)config + k->offset;
    const choice *c;
    switch (k->kind) {
    case KEY_INT:
    case KEY_COUNT:
        if (!set_number(k, at, value, problem)) {
            return false;
        }
        // Either of the two says how long.
        config->epochs = k == &keys[STEPS] ? 0 : config->epochs;
        config->steps = k == &keys[EPOCHS] ? 0 : config->steps;
        return true;
    case KEY_SEED:
        return seed_from_text(value, at) || refuse_value(k, value, problem);
    case KEY_REAL:
        return set_real(k, at, value, problem);
    case KEY_FLAG:
        return set_flag(k, at, value, problem);
    case KEY_PATH:
        return set_path(k, at, value, problem);
    case KEY_CHOICE:
        c = choose(k, value, problem);
        *(int *)at = c == NULL ? *(int *)at : c->value;
        return c != NULL;
    case KEY_WORD:
        return set_word(k, config, value, problem);
    case KEY_FOLD:
        break;
    }
    return set_fold(k, at, value, problem);
}

static const char *word_of(const key *k, int value)
{
    for (const choice *c = k->choices; c->word != NULL; c++) {
        if (!c->unbuilt && c->value == value) {
            return c->word;
        }
    }
    return NULL;
}

// An int as its word, if it has one.
static void get_choice(const key *k, int number, char value[CADRE_PATH_BYTES])
{
    const char *word = word_of(k, number);
    if (word != NULL) {
        snprintf(value, CADRE_PATH_BYTES, "%s", word);
    } else {
        snprintf(value, CADRE_PATH_BYTES, "%d", number);
    }
}

bool key_get(
    const cadre_train_config *config, int i, char value[CADRE_PATH_BYTES])
{
    const key *k = &keys[i];
    const void *at = (const char *)config + k->offset;
    int64_t number;
    switch (k->kind) {
    case KEY_INT:
    case KEY_COUNT:
        number = k->kind == KEY_INT ? *(const int *)at : *(const int64_t *)at;
        snprintf(value, CADRE_PATH_BYTES, "%" PRId64, number);
        return in_range(k, (double)number);
    case KEY_SEED:
        snprintf(value, CADRE_PATH_BYTES, "%" PRIu64, *(const uint64_t *)at);
        return true;
    case KEY_REAL:
        real_to_text(*(const double *)at, value);
        return true;
    case KEY_FLAG:
        snprintf(value, CADRE_PATH_BYTES, "%s",
            *(const bool *)at ? "true" : "false");
        return true;
    case KEY_PATH:
    case KEY_WORD:
        snprintf(value, CADRE_PATH_BYTES, "%s", (const char *)at);
        return true;
    case KEY_CHOICE:
    case KEY_FOLD:
        break;
    }
    get_choice(k, *(const int *)at, value);
    return true;
}

void key_help(const cadre_train_config *defaults)
{
    for (int i = 0; i < N_KEYS; i++) {
        char range[128];
        char value[CADRE_PATH_BYTES];
        describe(&keys[i], range, sizeof(range));
        bool has_value = key_get(defaults, i, value);
        printf("  %s%s%s\n      %s: %s\n", keys[i].name, has_value ? " = " : "",
            has_value ? value : "", keys[i].help, range);
    }
}
