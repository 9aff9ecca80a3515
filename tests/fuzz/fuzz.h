// SPDX-License-Identifier: Apache-2.0
//
// What the fuzz targets have in common.  A target defines
// LLVMFuzzerTestOneInput(), which libFuzzer calls with inputs of its own, and
// replay.c with those of a corpus.
//
// A target takes its input apart from the front: a few bytes say what is done,
// and where they are out the input is at its end.  It may crash for no input,
// and what FUZZ_CHECK() says must hold for all.
//
// Memory:  a target leaves nothing behind, neither memory nor descriptors.
// Threads: one.

#ifndef CADRE_TESTS_FUZZ_FUZZ_H
#define CADRE_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name for it
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

#define FUZZ_CHECK(condition) \
    ((condition) ? (void)0 : fuzz_failed(#condition, __FILE__, __LINE__))

_Noreturn void fuzz_failed(const char *what, const char *file, int line);

/** What is left of an input. */
typedef struct fuzz_input {
    const uint8_t *data;
    size_t left;
} fuzz_input;

/** The next byte; 0 at the end. */
uint8_t fuzz_byte(fuzz_input *in);

/** The next nbytes, or as many as there are; *nbytes says how many. */
const uint8_t *fuzz_bytes(fuzz_input *in, size_t *nbytes);

/**
 * Changes bytes as the input says: a count, then pairs of place and value, which
 * is exclusive-or-ed.  True if any byte is another than before.
 */
bool fuzz_patch(fuzz_input *in, uint8_t *bytes, size_t nbytes);

/** A file with this content, in memory: its path, until the next call. */
const char *fuzz_file(const uint8_t *data, size_t nbytes);

/** Two ends of a Unix connection, neither of which blocks. */
void fuzz_connection(int ends[2]);

#endif // CADRE_TESTS_FUZZ_FUZZ_H
