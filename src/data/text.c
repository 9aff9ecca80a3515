// SPDX-License-Identifier: Apache-2.0

#include "data/text.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/program.h"
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CLASSES = 256 };

// It lies in memory as a whole.
enum { MOST_BYTES = 1 << 30 };

typedef struct text {
    cadre_dataset base;
    uint8_t *bytes;       // of both splits
    const uint8_t *first; // of this split
} text;

static text *as_text(cadre_dataset *dataset)
{
    return (text *)dataset;
}

static const text *as_const_text(const cadre_dataset *dataset)
{
    return (const text *)dataset;
}

static cadre_status read_open(int fd, const char *path, text *t, size_t *nbytes)
{
    struct stat about;
    if (fstat(fd, &about) != 0) {
        return cadre_fail_errno(CADRE_ERR_IO, errno, "cannot read '%s'", path);
    }
    if (about.st_size < 1 || about.st_size > MOST_BYTES) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "'%s' has %" PRId64 " bytes; a text of 1 to %d bytes is wanted",
            path, (int64_t)about.st_size, (int)MOST_BYTES);
    }
    size_t wanted = (size_t)about.st_size;
    t->bytes = cadre_alloc(wanted);
    if (t->bytes == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    for (*nbytes = 0; *nbytes < wanted;) {
        ssize_t n = read(fd, t->bytes + *nbytes, wanted - *nbytes);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return cadre_fail_errno(CADRE_ERR_IO, n == 0 ? EIO : errno,
                "cannot read '%s' to its end", path);
        }
        *nbytes += n > 0 ? (size_t)n : 0;
    }
    return CADRE_OK;
}

static cadre_status read_file(const char *path, text *t, size_t *nbytes)
{
    int fd;
    cadre_status status = cadre_regular_file_open(path, &fd);
    if (status != CADRE_OK) {
        return cadre_fail(status, "%s; data.path has to name a file of text",
            cadre_error_text());
    }
    status = read_open(fd, path, t, nbytes);
    close(fd);
    return status;
}

static cadre_status read_bible(text *t, size_t *nbytes)
{
    enum { TIMEOUT_MS = 60000 };
    static const char *const argv[] = {
        "/usr/bin/bible", "-f", "Gen1:1-Rev22:21", NULL};
    cadre_status status =
        cadre_program_output(argv, MOST_BYTES, TIMEOUT_MS, &t->bytes, nbytes);
    return status == CADRE_ERR_NOT_FOUND
               ? cadre_fail(status,
                     "%s; install the Debian package bible-kjv, or set "
                     "data.path to a file of text",
                     cadre_error_text())
               : status;
}

static cadre_status cut(
    text *t, size_t nbytes, cadre_split split, int64_t context)
{
    size_t n_train = nbytes * 95 / 100;
    bool trains = split == CADRE_SPLIT_TRAIN;
    t->first = t->bytes + (trains ? 0 : n_train);
    int64_t n = (int64_t)(trains ? n_train : nbytes - n_train);
    if (context < 1 || n <= context) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "the %s part of the text has %" PRId64
            " bytes, too few for samples of model.context %" PRId64,
            trains ? "training" : "test", n, context);
    }
    t->base = (cadre_dataset){
        .ops = &cadre_text,
        .n_samples = (n - 1) / context,
        .sample_elements = context,
        .channels = 1,
        .height = 1,
        .width = 1,
        .tokens = context,
        .n_classes = CLASSES,
        .content_hash = cadre_hash(t->first, (size_t)n, 0),
    };
    return CADRE_OK;
}

static void close_text(cadre_dataset *dataset)
{
    text *t = as_text(dataset);
    cadre_free(t->bytes);
    cadre_free(t);
}

static cadre_status open_text(
    const cadre_dataset_options *options, cadre_dataset **out)
{
    const char *path = options->path;
    text *t = cadre_alloc(sizeof(*t));
    if (t == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    size_t nbytes = 0;
    cadre_status status =
        path == NULL ? read_bible(t, &nbytes) : read_file(path, t, &nbytes);
    if (status == CADRE_OK) {
        status = cut(t, nbytes, options->split, options->context);
    }
    if (status != CADRE_OK) {
        close_text(&t->base);
        return status;
    }
    *out = &t->base;
    return CADRE_OK;
}

static cadre_status read_text(
    const cadre_dataset *dataset, cadre_place place, float *x, int32_t *labels)
{
    const uint8_t *bytes =
        as_const_text(dataset)->first + place.sample * dataset->tokens;
    for (int64_t i = 0; i < dataset->tokens; i++) {
        x[i] = bytes[i];
        labels[i] = bytes[i + 1];
    }
    return CADRE_OK;
}

const cadre_dataset_ops cadre_text = {
    .kind = "text",
    .open = open_text,
    .read = read_text,
    .close = close_text,
};
