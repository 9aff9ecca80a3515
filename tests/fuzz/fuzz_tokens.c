// SPDX-License-Identifier: Apache-2.0
//
// Files of tokens; and a tokenizer's merges, or its vocabulary, by which what is
// left is cut.  The first byte says which.

#include "fuzz.h"

#include "base/alloc.h"
#include "data/tokenizer.h"
#include "data/tokens.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void map_tokens(const uint8_t *data, size_t nbytes)
{
    cadre_tokens t;
    cadre_status status = cadre_tokens_map(fuzz_file(data, nbytes), &t);
    FUZZ_CHECK(status == CADRE_OK || status == CADRE_ERR_CORRUPT);
    if (status == CADRE_OK) {
        uint32_t sum = 0;
        for (int64_t i = 0; i < t.count; i++) {
            sum += cadre_token_at(&t, i);
        }
        FUZZ_CHECK(t.count > 0 || sum == 0);
        cadre_tokens_fini(&t);
    }
}

// The 256 bytes as GPT-2 writes them, and some tokens of two.
static void write_vocabulary(FILE *stream)
{
    int next = 256;
    for (int byte = 0; byte < 256; byte++) {
        bool itself =
            (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
        fprintf(stream, "%c\"\\u%04x\": %d", byte == 0 ? '{' : ',',
            (unsigned)(itself ? byte : next++), byte);
    }
    fprintf(stream, ",\"aa\": 256, \"aaaa\": 257, \"ab\": 258, \"aab\": 259}");
}

static void write_file(
    const char *folder, const char *name, const uint8_t *data, size_t nbytes)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *stream = fopen(path, "wb");
    FUZZ_CHECK(stream != NULL);
    if (data == NULL) {
        write_vocabulary(stream);
    } else {
        (void)fwrite(data, 1, nbytes, stream);
    }
    FUZZ_CHECK(fclose(stream) == 0);
}

// What is cut comes back.
static void cut(const cadre_tokenizer *t, const uint8_t *text, size_t nbytes)
{
    int32_t *tokens = NULL;
    size_t count = 0;
    size_t used = 0;
    FUZZ_CHECK(
        cadre_tokenizer_encode(t, text, nbytes, &tokens, &count) == CADRE_OK);
    for (size_t i = 0; i < count; i++) {
        size_t n;
        const uint8_t *bytes = cadre_tokenizer_decode(t, tokens[i], &n);
        FUZZ_CHECK(n <= nbytes - used && memcmp(bytes, text + used, n) == 0);
        used += n;
    }
    FUZZ_CHECK(used == nbytes);
    cadre_free(tokens);
}

static void open_tokenizer(
    const uint8_t *vocabulary, const uint8_t *merges, size_t nbytes)
{
    char folder[] = "/tmp/cadre-fuzz-XXXXXX";
    FUZZ_CHECK(mkdtemp(folder) != NULL);
    write_file(folder, "vocab.json", vocabulary, nbytes);
    write_file(folder, "merges.txt", merges, nbytes);
    cadre_tokenizer *t = NULL;
    cadre_status status = cadre_tokenizer_open(folder, &t);
    FUZZ_CHECK(status == CADRE_OK || status == CADRE_ERR_CORRUPT ||
               status == CADRE_ERR_INVALID_ARG);
    if (status == CADRE_OK) {
        cut(t, merges, nbytes);
        cadre_tokenizer_close(t);
    }
    for (int i = 0; i < 2; i++) {
        char path[128];
        snprintf(path, sizeof(path), "%s/%s", folder,
            i == 0 ? "vocab.json" : "merges.txt");
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    fuzz_input in = {data, nbytes};
    switch (fuzz_byte(&in) % 3) {
    case 0:
        map_tokens(in.data, in.left);
        break;
    case 1:
        open_tokenizer(NULL, in.data, in.left);
        break;
    default:
        open_tokenizer(in.data, in.data, in.left);
        break;
    }
    return 0;
}
