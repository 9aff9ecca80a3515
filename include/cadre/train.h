// SPDX-License-Identifier: Apache-2.0
//
// The trainer (libcadre_nn): real models on real data, as `cadre train` runs
// them.
//
//     cadre_train_config config;
//     cadre_recipe_config("mlp-fashion", &config);
//     config.steps = 100;
//     cadre_train(world, &config, NULL, &summary);
//
// Threads: one thread at a time per group.

#ifndef CADRE_TRAIN_H
#define CADRE_TRAIN_H

#include "cadre/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CADRE_TEXT_BYTES = 256, CADRE_PATH_BYTES = 4096 };

typedef enum cadre_decay {
    CADRE_DECAY_ALL = 0,
    CADRE_DECAY_WEIGHTS = 1, // not of biases and gains: tensors of one extent
} cadre_decay;

/** What is done about an image of a folder that is damaged. */
typedef enum cadre_damaged {
    CADRE_DAMAGED_REFUSE = 0,
    CADRE_DAMAGED_SKIP = 1, // the next sound one takes its place
} cadre_damaged;

/**
 * What the factors of matrix products and convolutions, and activations that
 * are kept for backward, are rounded to.
 */
typedef enum cadre_precision {
    CADRE_PRECISION_F32 = 0,  // nothing: they are f32
    CADRE_PRECISION_BF16 = 1, // where the processor has instructions for it
} cadre_precision;

/** Everything that a run is made of; CLI names of the keys beside each. */
typedef struct cadre_train_config {
    char recipe[CADRE_TEXT_BYTES];
    int64_t steps;              // --steps; 0: as many as epochs say
    int64_t epochs;             // --epochs
    int threads;                // --threads, at least 1
    char out[CADRE_PATH_BYTES]; // --out: the run's folder; "": no files

    char data_path[CADRE_PATH_BYTES];      // data.path; "": the package's place
    char data_tokenizer[CADRE_PATH_BYTES]; // data.tokenizer; "": bytes
    char data_cache[CADRE_PATH_BYTES];     // data.cache; "": none
    bool data_drop_last;                   // data.drop_last
    bool data_in_memory;                   // data.in_memory; never bits
    int data_side;                         // data.side; 0: no folder of images
    bool data_augment;                     // data.augment
    cadre_damaged data_damaged;            // data.damaged

    int model_layers;  // model.layers; 0: the recipe's
    int model_width;   // model.width; 0: the recipe's
    int model_heads;   // model.heads; 0 where there is no attention
    int model_context; // model.context: tokens of a sample; 0: no text
    // model.kv_heads: heads of keys and values; 0: as many as of queries
    int model_kv_heads;

    int64_t global_batch; // train.global_batch
    int64_t micro_batch;  // train.micro_batch; 0: the whole leaf
    bool recompute;       // train.recompute; never bits
    int threads_per_leaf; // train.threads_per_leaf; only 1 is built
    uint64_t seed;        // train.seed
    // train.precision
    cadre_precision precision;
    // train.label_smoothing: the part of a label that all classes share
    double label_smoothing;
    int64_t eval_every;  // train.eval_every; 0: at the end only
    int64_t log_every;   // train.log_every
    int64_t trace_first; // --trace: steps that trace.json shows,
    int64_t trace_count; // and how many; 0: no trace

    cadre_optimizer optimizer; // optim.name; hyper-parameters are values:
    double lr;                 // optim.lr          here 0 means 0
    double weight_decay;       // optim.weight_decay
    cadre_decay decay;         // optim.decay
    double momentum;           // optim.momentum
    double beta1;              // optim.beta1
    double beta2;              // optim.beta2
    double eps;                // optim.eps
    double clip;               // optim.clip; 0: none
    int64_t warmup_steps;      // optim.warmup_steps
    cadre_schedule schedule;   // optim.schedule
    int64_t total_steps;       // optim.total_steps; 0: the run's
    double min_lr_factor;      // optim.min_lr_factor
    int64_t step_every;        // optim.step_every
    double step_factor;        // optim.step_factor

    cadre_mode mode;       // parallel.mode
    int leaves;            // parallel.leaves; 0: ranks x threads
    int fold;              // parallel.fold, as in cadre_engine_options
    double bucket_mb;      // parallel.bucket_mb, MiB
    cadre_overlap overlap; // parallel.overlap
    bool progress_thread;  // parallel.progress_thread
    char order[16];        // parallel.order, as in cadre_init_options
    char transport[16];    // parallel.transport, as in cadre_init_options
    int timeout_ms;        // parallel.timeout_ms

    int64_t checkpoint_every;      // checkpoint.every; 0: at the end only
    int checkpoint_keep;           // checkpoint.keep; 0: all
    char resume[CADRE_PATH_BYTES]; // --resume: out again; "": a new run
    // What cadre_train_adopt() fills in: the checkpoint's step, and whether the
    // run ended there, with its evaluation.
    int64_t resume_step;
    bool resume_ended;
} cadre_train_config;

/** Built-in recipes: the i-th name and what it is, or NULL after the last. */
CADRE_API const char *cadre_recipe_name(int i);
CADRE_API const char *cadre_recipe_summary(int i);

/** The kind of its data, "fashion" or "kjv"; those of one kind share it. */
CADRE_API const char *cadre_recipe_data(int i);

/**
 * Fills in a recipe's configuration.
 *
 * Errors: CADRE_ERR_NOT_FOUND  no such recipe; the text lists those there are
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_recipe_config(
    const char *name, cadre_train_config *out);

/**
 * Says whether cadre_train() would take this configuration on world_size ranks.
 * Starts nothing, but reads the data, so that a run is refused before it has
 * begun.  Local.
 *
 * Errors: CADRE_ERR_INVALID_ARG  a value, or values together, make no sense
 *         CADRE_ERR_UNSUPPORTED  not built yet
 *         CADRE_ERR_NOT_FOUND, CADRE_ERR_CORRUPT, CADRE_ERR_IO (data)
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_train_check(
    const cadre_train_config *config, int world_size);

/**
 * Fills in what the newest valid checkpoint in config->resume decides: its step,
 * and whether the run ended there; the leaves, unless they are given here, which
 * begins a new identity if they are others; and the schedule's total steps.
 * Local.
 *
 * Errors: CADRE_ERR_CORRUPT      there is no valid checkpoint; the text says
 *                                what is wrong with the newest
 *         CADRE_ERR_INVALID_ARG  a setting that may change bits is another one;
 *                                the text names the first
 *         CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_train_adopt(
    cadre_train_config *config);

/** The state of a run, for displays. */
typedef struct cadre_train_progress {
    int64_t step;    // done so far
    int64_t n_steps; // in all
    double loss;
    double lr;
    double grad_norm;
    double step_ms;
    double samples_per_second;
    double exposed_fraction; // of step_ms
    double hidden_fraction;  // of communication; NaN without any
    uint64_t bytes_sent;     // in this step
    bool skipped;            // this step
    int world_size;
    // Of all ranks, since the last logged step; until there is one, rss_rank
    // is -1.
    int slowest_rank;      // which computed longest
    double slowest_excess; // over the median, as a fraction of it
    int64_t rss_bytes;     // the largest peak
    int rss_rank;          // whose it is
    bool evaluated;        // then the next three are fresh
    double eval_loss;
    double eval_accuracy;      // NaN of text
    double eval_bits_per_byte; // NaN of all else
} cadre_train_progress;

typedef struct cadre_train_hooks {
    void *ctx;
    /** On rank 0 after every step and evaluation.  NULL: nobody looks. */
    void (*progress)(const cadre_train_progress *progress, void *ctx);
    /** Asked on every rank between steps: 0, or the signal to stop for. */
    int (*stop_signal)(void *ctx);
    /**
     * On rank 0, once all ranks have accepted the run and before anything of it
     * is written: NULL, or a sentence that says why it must not go on.
     */
    const char *(*begin)(void *ctx);
} cadre_train_hooks;

typedef struct cadre_train_summary {
    int64_t steps;  // done
    int stopped_by; // the signal all ranks stopped for, or 0
    double loss;    // mean over the last 10 steps, without skipped ones
    double eval_loss;
    double eval_accuracy;      // NaN of text
    double eval_bits_per_byte; // NaN of all else
    double samples_per_second;
    double step_ms_median;
    uint64_t params_hash;
    bool replicas_equal;
    char *json; // the whole of summary.json, on rank 0, else NULL
} cadre_train_summary;

/**
 * Trains.  Collective: all ranks with the same config but for threads.
 *
 * Rank 0 writes metrics.jsonl, events.out.tfevents.*, checkpoints, summary.json,
 * model.safetensors, report.html and, if wanted, trace.json into config->out.
 * With config->resume a run goes on: rank 0 adopts from its newest valid
 * checkpoint, as cadre_train_adopt() does, and all follow.  hooks may be NULL.
 * *out, also after a stop, is given to
 * cadre_train_summary_release().
 *
 * Errors: those of cadre_train_check(), CADRE_ERR_NOT_FINITE, CADRE_ERR_IO (the
 *         run's files), those of engine and group
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_train(cadre_group *world,
    const cadre_train_config *config, const cadre_train_hooks *hooks,
    cadre_train_summary *out);
CADRE_API void cadre_train_summary_release(cadre_train_summary *summary);

/** What layers are computed with: "oneDNN 2.6.3", and "avx2". */
CADRE_API const char *cadre_train_library(void);
CADRE_API const char *cadre_train_isa(void);

/** What this configuration runs in here: "bf16" only if the processor can. */
CADRE_API const char *cadre_train_precision(const cadre_train_config *config);

/**
 * Builds report.html in config->out from the other files of that run, finished
 * or not; the configuration is the run's.  Local.
 *
 * Errors: CADRE_ERR_NOT_FOUND  there is no run: no metrics.jsonl
 *         CADRE_ERR_CORRUPT    a file is damaged; the text has file and line
 *         CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_report(
    const cadre_train_config *config);

typedef struct cadre_eval_result {
    int64_t n_samples;
    double loss;          // mean over samples, of text over bytes
    double accuracy;      // of classes; NaN of text
    double bits_per_byte; // of text; NaN of all else
    uint64_t params_hash;
} cadre_eval_result;

/**
 * Evaluates a model file on the test split of its recipe.  Collective; samples
 * are dealt to ranks in passes of fixed size, and the result has the same bits
 * for any number of ranks.
 *
 * Errors: CADRE_ERR_NOT_FOUND, CADRE_ERR_CORRUPT, those of the group
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_evaluate(cadre_group *world,
    const cadre_train_config *config, const char *model_path,
    cadre_eval_result *out);

typedef struct cadre_generate_options {
    const char *prompt; // at least one byte, which are not written again
    int64_t length;     // bytes to write; tokens if data.tokenizer is given
    double temperature; // 0: always the likeliest byte; 1: as it learned
    int top_k;          // only the so many likeliest are drawn; 0: all
    uint64_t seed;      // of what is drawn
    /** false: no more is wanted, and the text ends here. */
    bool (*write)(uint8_t byte, void *ctx);
    void *ctx;
} cadre_generate_options;

/**
 * Writes text from a model file of a GPT: the same bytes for the same model,
 * options and instruction set.  Collective, though one rank is enough.
 *
 * Errors: CADRE_ERR_INVALID_ARG  an option, or a recipe that learns no text
 *         CADRE_ERR_NOT_FINITE   the model makes no numbers
 *         CADRE_ERR_NOT_FOUND, CADRE_ERR_CORRUPT, those of the group
 */
CADRE_API CADRE_MUST_CHECK cadre_status cadre_generate(cadre_group *world,
    const cadre_train_config *config, const char *model_path,
    const cadre_generate_options *options);

#ifdef __cplusplus
}
#endif

#endif // CADRE_TRAIN_H
