// SPDX-License-Identifier: Apache-2.0
//
// A dataset: labelled samples that can be had by number: images of a class each,
// or texts whose every token has a label, the token that follows it, or whose
// gaps have.  New kinds plug into the table of cadre_dataset_open().
//
// Threads: an open dataset looks immutable; any.

#ifndef CADRE_DATA_DATASET_H
#define CADRE_DATA_DATASET_H

#include "cadre/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum cadre_split {
    CADRE_SPLIT_TRAIN = 0,
    CADRE_SPLIT_TEST = 1,
} cadre_split;

typedef struct cadre_dataset_options {
    const char *path; // NULL: where the kind's Debian package puts it, or what
                      // its program writes
    cadre_split split;
    int64_t context;   // tokens of a sample, if it is text
    int64_t side;      // of an image from a folder, in pixels
    bool augment;      // images from a folder, of the training split
    bool skip_damaged; // images from a folder; false: a damaged one is refused
    uint64_t seed;     // of augmentation
    const char *tokenizer; // of text: its folder; NULL: bytes
    const char *cache;     // of text: a file for its tokens; NULL: none
    bool in_memory; // of fashion: samples are held there, not read from a file
} cadre_dataset_options;

/** Which sample is read, and in which pass over the data. */
typedef struct cadre_place {
    int64_t epoch; // what is random about a sample differs from pass to pass
    int64_t sample;
} cadre_place;

typedef struct cadre_dataset cadre_dataset;

typedef struct cadre_dataset_ops {
    const char *kind;         // "fashion"
    const char *default_path; // NULL: open knows what to do without
    cadre_status (*open)(
        const cadre_dataset_options *options, cadre_dataset **out);
    /** A sample is read soon; NULL if nothing is gained by knowing. */
    void (*expect)(const cadre_dataset *dataset, cadre_place place);
    /** Writes a sample, sample_elements floats, and its labels. */
    cadre_status (*read)(const cadre_dataset *dataset, cadre_place place,
        float *x, int32_t *labels);
    void (*close)(cadre_dataset *dataset);
} cadre_dataset_ops;

/** Every implementation starts with this struct, as its member `base`. */
struct cadre_dataset {
    const cadre_dataset_ops *ops;
    int64_t n_samples;
    int64_t sample_elements; // channels x height x width, in that order
    int64_t channels;
    int64_t height;
    int64_t width;
    int64_t tokens;         // of a text: labels that a sample has; 0: one
    int64_t n_masked;       // of a text: labels that there are, if not all
    double bytes_per_token; // of a text
    int64_t n_classes;
    uint64_t content_hash; // part of the identity of a run
    bool decodes;          // reading a sample is work for several threads
};

/** In place of a label, where a token has none. */
enum { CADRE_DATA_NO_LABEL = -1 };

/** Places for labels of a sample. */
static inline int64_t cadre_dataset_labels(const cadre_dataset *dataset)
{
    return dataset->tokens > 0 ? dataset->tokens : 1;
}

/** Labels that a sample has: what it weighs. */
static inline int64_t cadre_dataset_weight(const cadre_dataset *dataset)
{
    return dataset->n_masked > 0 ? dataset->n_masked
                                 : cadre_dataset_labels(dataset);
}

/**
 * Opens one split; options are borrowed for the call.
 *
 * Errors: CADRE_ERR_NOT_FOUND    no such kind, or a file is missing; names it
 *         CADRE_ERR_CORRUPT      a file is damaged; names it and says how
 *         CADRE_ERR_INVALID_ARG  the data cannot be cut into such samples
 *         CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_dataset_open(const char *kind,
    const cadre_dataset_options *options, cadre_dataset **out);

/**
 * Reads a sample.
 *
 * Errors: CADRE_ERR_CORRUPT  its file is damaged; names it and says how
 *         CADRE_ERR_NOT_FOUND, CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_dataset_read(
    const cadre_dataset *dataset, cadre_place place, float *x, int32_t *labels);

/** Says that a sample is read soon, so that its memory is on the way by then. */
void cadre_dataset_expect(const cadre_dataset *dataset, cadre_place place);

void cadre_dataset_close(cadre_dataset *dataset); // NULL is allowed

#endif // CADRE_DATA_DATASET_H
