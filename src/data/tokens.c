// SPDX-License-Identifier: Apache-2.0

#include "data/tokens.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/hash.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t magic[8] = {'C', 'D', 'T', 'O', 'K', 'E', 'N', 'S'};

enum { VERSION = 1, MOST_TOKENS = 1 << 24 };

// Where the header's fields lie.
enum {
    AT_VERSION = 8,
    AT_WIDTH = 12,
    AT_VOCABULARY = 16,
    AT_COUNT = 24,
    AT_HASH = 32,
    AT_TEXT_BYTES = 40,
    AT_SOURCE = 48,
    AT_CHECK = 56, // XXH64 of what is before
    HEAD_BYTES = 64,
};

static void write_head(const cadre_tokens *t)
{
    uint8_t *head = t->block;
    memcpy(head, magic, sizeof(magic));
    cadre_store_u32(head + AT_VERSION, VERSION);
    cadre_store_u32(head + AT_WIDTH, (uint32_t)t->width);
    cadre_store_u64(head + AT_VOCABULARY, (uint64_t)t->vocabulary);
    cadre_store_u64(head + AT_COUNT, (uint64_t)t->count);
    cadre_store_u64(head + AT_HASH, t->hash);
    cadre_store_u64(head + AT_TEXT_BYTES, (uint64_t)t->text_bytes);
    cadre_store_u64(head + AT_SOURCE, t->source);
    cadre_store_u64(head + AT_CHECK, cadre_hash(head, AT_CHECK, 0));
}

cadre_status cadre_tokens_pack(const int32_t *tokens, size_t count,
    const cadre_tokens_facts *facts, cadre_tokens *out)
{
    cadre_tokens t = {
        .width = facts->vocabulary <= 1 << 16 ? 2 : 4,
        .count = (int64_t)count,
        .vocabulary = facts->vocabulary,
        .text_bytes = facts->text_bytes,
        .source = facts->source,
    };
    t.block_bytes = HEAD_BYTES + count * (size_t)t.width;
    t.block = cadre_alloc(t.block_bytes);
    if (t.block == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    uint8_t *at = t.block + HEAD_BYTES;
    t.data = at;
    for (size_t i = 0; i < count; i++) {
        for (int byte = 0; byte < t.width; byte++) {
            *at++ = (uint8_t)((uint32_t)tokens[i] >> (8 * byte));
        }
    }
    t.hash = cadre_hash(t.data, count * (size_t)t.width, 0);
    write_head(&t);
    *out = t;
    return CADRE_OK;
}

static cadre_status write_file(const cadre_tokens *tokens, const char *path)
{
    cadre_new_file file;
    CADRE_TRY(cadre_new_file_open(path, &file));
    // What fails here is seen again, and reported, by commit.
    (void)fwrite(tokens->block, 1, tokens->block_bytes, file.stream);
    return cadre_new_file_commit(&file);
}

// A name that no other process writes to, for cadre_free(); NULL without memory.
static char *own_name(const char *path)
{
    size_t nbytes = strlen(path) + 32;
    char *own = cadre_alloc(nbytes);
    if (own != NULL) {
        snprintf(own, nbytes, "%s.%ld", path, (long)getpid());
    }
    return own;
}

cadre_status cadre_tokens_try(const char *path)
{
    char *own = own_name(path);
    if (own == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_new_file file;
    cadre_status status = cadre_new_file_open(own, &file);
    if (status == CADRE_OK) {
        cadre_new_file_discard(&file);
    }
    cadre_free(own);
    return status;
}

cadre_status cadre_tokens_save(const cadre_tokens *tokens, const char *path)
{
    char *own = own_name(path);
    if (own == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = write_file(tokens, own);
    if (status == CADRE_OK && rename(own, path) != 0) {
        status =
            cadre_fail_errno(CADRE_ERR_IO, errno, "cannot write '%s'", path);
        unlink(own);
    }
    cadre_free(own);
    return status;
}

static cadre_status corrupt(const char *path, const char *what)
{
    return cadre_fail(
        CADRE_ERR_CORRUPT, "'%s' is no sound file of tokens: %s", path, what);
}

static cadre_status read_head(const char *path, cadre_tokens *t)
{
    const uint8_t *head = t->block;
    if (memcmp(head, magic, sizeof(magic)) != 0) {
        return corrupt(path, "it begins as something else");
    }
    if (cadre_load_u64(head + AT_CHECK) != cadre_hash(head, AT_CHECK, 0)) {
        return corrupt(path, "its header is damaged");
    }
    if (cadre_load_u32(head + AT_VERSION) != VERSION) {
        return corrupt(path, "it is of another version");
    }
    uint32_t width = cadre_load_u32(head + AT_WIDTH);
    uint64_t vocabulary = cadre_load_u64(head + AT_VOCABULARY);
    uint64_t count = cadre_load_u64(head + AT_COUNT);
    if ((width != 2 && width != 4) || vocabulary < 1 ||
        vocabulary > MOST_TOKENS) {
        return corrupt(path, "its tokens are of no known kind");
    }
    size_t data_bytes = t->block_bytes - HEAD_BYTES;
    if (count != data_bytes / width || data_bytes % width != 0) {
        return corrupt(path, "it is cut, or goes on behind its end");
    }
    t->width = (int)width;
    t->vocabulary = (int32_t)vocabulary;
    t->count = (int64_t)count;
    t->hash = cadre_load_u64(head + AT_HASH);
    t->text_bytes = (int64_t)cadre_load_u64(head + AT_TEXT_BYTES);
    t->source = cadre_load_u64(head + AT_SOURCE);
    t->data = head + HEAD_BYTES;
    return CADRE_OK;
}

static cadre_status map_open(int fd, const char *path, cadre_tokens *t)
{
    struct stat about;
    if (fstat(fd, &about) != 0) {
        return cadre_fail_errno(CADRE_ERR_IO, errno, "cannot read '%s'", path);
    }
    if (about.st_size < HEAD_BYTES) {
        return corrupt(path, "it is shorter than a header");
    }
    void *block =
        mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (block == MAP_FAILED) {
        return cadre_fail_errno(CADRE_ERR_IO, errno, "cannot map '%s'", path);
    }
    *t = (cadre_tokens){
        .block = block, .block_bytes = (size_t)about.st_size, .mapped = true};
    return read_head(path, t);
}

cadre_status cadre_tokens_map(const char *path, cadre_tokens *out)
{
    int fd;
    CADRE_TRY(cadre_regular_file_open(path, &fd));
    cadre_tokens t = {0};
    cadre_status status = map_open(fd, path, &t);
    close(fd);
    if (status != CADRE_OK) {
        cadre_tokens_fini(&t);
        return status;
    }
    *out = t;
    return CADRE_OK;
}

void cadre_tokens_fini(cadre_tokens *tokens)
{
    if (tokens->mapped) {
        (void)munmap(tokens->block, tokens->block_bytes);
    } else {
        cadre_free(tokens->block);
    }
    *tokens = (cadre_tokens){0};
}

bool cadre_tokens_are_in(const char *path)
{
    int fd;
    if (cadre_regular_file_open(path, &fd) != CADRE_OK) {
        return false;
    }
    uint8_t head[sizeof(magic)];
    ssize_t n = read(fd, head, sizeof(head));
    close(fd);
    return n == (ssize_t)sizeof(head) &&
           memcmp(head, magic, sizeof(magic)) == 0;
}
