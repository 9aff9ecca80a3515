// SPDX-License-Identifier: Apache-2.0
//
// Reading of the references that tools/make_nn_references.py makes, and the
// comparison with them.

#ifndef CADRE_TESTS_NN_REFERENCE_H
#define CADRE_TESTS_NN_REFERENCE_H

#include "base/alloc.h"
#include "base/number.h"
#include "support/check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_STORED = 8192 };

typedef char word[32];

/** An entry. */
typedef struct reference {
    word kind;
    word tensor;
    int n;
    int i;
    int o;
    int tokens; // and on: of texts, else 0
    int heads;
    int kv_heads;
    int height; // and on: of images, else 0
    int width;
    int kernel;
    int stride;
    int padding;
    int dilation;
    int groups;
    size_t step;
    size_t count;
    double norm;
    float values[MOST_STORED];
} reference;

static inline FILE *references_open(void)
{
    FILE *file = fopen(CADRE_NN_REFERENCES, "re");
    assert_non_null(file);
    return file;
}

static inline int64_t read_int(FILE *file)
{
    word text;
    int64_t value = 0;
    assert_int_equal(fscanf(file, "%31s", text), 1);
    assert_true(cadre_parse_int(text, 0, INT32_MAX, &value));
    return value;
}

static inline float read_pattern(FILE *file)
{
    word text;
    char *end = NULL;
    assert_int_equal(fscanf(file, "%31s", text), 1);
    uint32_t pattern = (uint32_t)strtoul(text, &end, 16);
    assert_true(end == text + 8);
    float value;
    memcpy(&value, &pattern, sizeof(value));
    return value;
}

static inline bool is_image(const reference *r)
{
    return strstr(r->kind, "2d") != NULL ||
           strcmp(r->kind, "local_response_norm") == 0;
}

static inline bool is_text(const reference *r)
{
    return strstr(r->kind, "attention") != NULL ||
           strcmp(r->kind, "embedding") == 0 ||
           strcmp(r->kind, "positions") == 0 || strcmp(r->kind, "rotary") == 0;
}

static inline bool is_net(const reference *r)
{
    return strchr(r->kind, '-') != NULL;
}

static inline bool read_reference(FILE *file, reference *r)
{
    if (fscanf(file, "%31s", r->kind) != 1) {
        return false;
    }
    r->n = (int)read_int(file);
    r->i = (int)read_int(file);
    r->o = (int)read_int(file);
    int *window[] = {&r->height, &r->width, &r->kernel, &r->stride, &r->padding,
        &r->dilation, &r->groups};
    for (size_t k = 0; k < sizeof(window) / sizeof(window[0]); k++) {
        *window[k] = is_image(r) ? (int)read_int(file) : 0;
    }
    r->tokens = is_text(r) ? (int)read_int(file) : 0;
    r->heads = is_text(r) ? (int)read_int(file) : 0;
    r->kv_heads = is_text(r) ? (int)read_int(file) : 0;
    assert_int_equal(fscanf(file, "%31s", r->tensor), 1);
    r->step = (size_t)read_int(file);
    r->count = (size_t)read_int(file);
    word norm;
    char *end;
    assert_int_equal(fscanf(file, "%31s", norm), 1);
    r->norm = strtod(norm, &end);
    assert_string_equal(end, "");
    assert_in_range(r->count, 1, MOST_STORED);
    for (size_t k = 0; k < r->count; k++) {
        r->values[k] = read_pattern(file);
    }
    return true;
}

// ||ours - theirs|| / ||theirs|| over the stored elements, and the norms of all
// of them, within 1e-5.
static inline void compare(const reference *r, const float *ours, size_t count)
{
    assert_int_equal((count - 1) / r->step + 1, r->count);
    double difference = 0.0;
    double theirs = 0.0;
    double all = 0.0;
    for (size_t k = 0; k < r->count; k++) {
        double d = (double)ours[k * r->step] - (double)r->values[k];
        difference += d * d;
        theirs += (double)r->values[k] * (double)r->values[k];
    }
    for (size_t k = 0; k < count; k++) {
        all += (double)ours[k] * (double)ours[k];
    }
    double error = sqrt(difference) / sqrt(theirs);
    double norm_error = fabs(sqrt(all) - r->norm) / r->norm;
    if (!(error <= 1e-5) || !(norm_error <= 1e-5)) {
        fail_msg("%s %d x %d -> %d: %s is off by %g, its norm by %g", r->kind,
            r->n, r->i, r->o, r->tensor, error, norm_error);
    }
}

static inline float *floats(size_t count)
{
    float *values = cadre_alloc_array(count, sizeof(*values));
    assert_non_null(values);
    return values;
}

#endif // CADRE_TESTS_NN_REFERENCE_H
