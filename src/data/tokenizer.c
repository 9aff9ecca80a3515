// SPDX-License-Identifier: Apache-2.0
//
// Reading a tokenizer's files, neither of which is trusted.  Both write bytes as
// characters: printable ones of Latin-1 stand for themselves, the others are
// those from U+0100 on, in order.

#include "data/tokenizer.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/tokenizer_tables.h"
#include "data/whole_file.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <string.h>

// Far above any that is used; a float holds every number.
enum { MOST_TOKENS = 1 << 22, MOST_FILE_BYTES = 1 << 28 };

// --- bytes as characters ---

enum { FIRST_OTHER = 256, N_OTHERS = 68, N_CHARACTERS = 256 + N_OTHERS };

static bool stands_for_itself(int byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
           byte >= 0xae;
}

// What a character stands for, or -1.
static int byte_of(uint32_t character)
{
    if (character < FIRST_OTHER) {
        return stands_for_itself((int)character) ? (int)character : -1;
    }
    uint32_t left = character - FIRST_OTHER;
    for (int byte = 0; byte < 256 && left < N_OTHERS; byte++) {
        if (!stands_for_itself(byte) && left-- == 0) {
            return byte;
        }
    }
    return -1;
}

// Bytes that characters, of one or two bytes of UTF-8 each, stand for; there are
// at most as many.  False if one stands for none.
static bool read_characters(
    const char *text, size_t nbytes, uint8_t *out, size_t *n_out)
{
    *n_out = 0;
    for (size_t i = 0; i < nbytes;) {
        uint32_t character = (uint8_t)text[i++];
        if (character >= 0x80) {
            bool two = (character & 0xe0) == 0xc0 && i < nbytes &&
                       ((uint8_t)text[i] & 0xc0) == 0x80;
            if (!two) {
                return false;
            }
            character = (character & 0x1f) << 6 | ((uint8_t)text[i++] & 0x3f);
        }
        int byte = byte_of(character);
        if (byte < 0) {
            return false;
        }
        out[(*n_out)++] = (uint8_t)byte;
    }
    return true;
}

// --- opening ---

// What is needed while a tokenizer is made.
typedef struct maker {
    cadre_tokenizer *t;
    const char *path;  // of the file at hand
    const char **keys; // (n_tokens): of vocab.json, by number
    int32_t *by_bytes; // tokens by a hash of their bytes; -1: empty
    size_t mask;       // places less 1
    uint8_t *joined;   // room for a merge's two
} maker;

static cadre_status corrupt(const maker *m, const char *what)
{
    return cadre_fail(CADRE_ERR_CORRUPT,
        "'%s' %s, so it is not of a tokenizer as GPT-2 has it", m->path, what);
}

static size_t places_for(size_t n)
{
    size_t places = 2;
    while (places < 2 * n) {
        places *= 2;
    }
    return places;
}

// Sorts the keys by number: each number below their count must be there once.
static cadre_status sort_keys(maker *m, json_t *object)
{
    const char *key;
    json_t *value;
    size_t n = json_object_size(object);
    if (n < 256 || n > MOST_TOKENS) {
        return corrupt(m, "has fewer than 256 tokens, or more than 2^22");
    }
    m->t->n_tokens = (int32_t)n;
    m->keys = cadre_alloc_array(n, sizeof(*m->keys));
    if (m->keys == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    json_object_foreach(object, key, value)
    {
        json_int_t number =
            json_is_integer(value) ? json_integer_value(value) : -1;
        if (number < 0 || number >= (json_int_t)n || m->keys[number] != NULL) {
            return corrupt(m, "does not number its tokens from 0 on");
        }
        m->keys[number] = key;
    }
    return CADRE_OK;
}

// Turns the keys into bytes.
static cadre_status fill_bytes(maker *m)
{
    cadre_tokenizer *t = m->t;
    size_t total = 0;
    for (int32_t i = 0; i < t->n_tokens; i++) {
        total += strlen(m->keys[i]);
    }
    t->bytes = cadre_alloc(total);
    t->begins = cadre_alloc_array((size_t)t->n_tokens + 1, sizeof(*t->begins));
    if (t->bytes == NULL || t->begins == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    size_t used = 0;
    for (int32_t i = 0; i < t->n_tokens; i++) {
        size_t n;
        if (m->keys[i][0] == '\0' ||
            !read_characters(
                m->keys[i], strlen(m->keys[i]), t->bytes + used, &n)) {
            return corrupt(m, "has a token with a character that stands for "
                              "no byte");
        }
        used += n;
        t->begins[i + 1] = used;
    }
    return CADRE_OK;
}

static int32_t *bytes_place(const maker *m, const uint8_t *bytes, size_t nbytes)
{
    size_t at = (size_t)cadre_hash(bytes, nbytes, 0) & m->mask;
    for (; m->by_bytes[at] >= 0; at = (at + 1) & m->mask) {
        size_t n;
        const uint8_t *there =
            cadre_tokenizer_decode(m->t, m->by_bytes[at], &n);
        if (n == nbytes && memcmp(there, bytes, n) == 0) {
            break;
        }
    }
    return &m->by_bytes[at];
}

// Makes tokens be found by their bytes, and every byte by itself.
static cadre_status index_tokens(maker *m)
{
    cadre_tokenizer *t = m->t;
    size_t places = places_for((size_t)t->n_tokens);
    m->mask = places - 1;
    m->by_bytes = cadre_alloc_array(places, sizeof(*m->by_bytes));
    if (m->by_bytes == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    memset(m->by_bytes, 0xff, places * sizeof(*m->by_bytes));
    for (int32_t i = 0; i < t->n_tokens; i++) {
        size_t n;
        const uint8_t *bytes = cadre_tokenizer_decode(t, i, &n);
        *bytes_place(m, bytes, n) = i;
    }
    for (int byte = 0; byte < 256; byte++) {
        const uint8_t single = (uint8_t)byte;
        t->of_byte[byte] = *bytes_place(m, &single, 1);
        if (t->of_byte[byte] < 0) {
            return corrupt(m, "lacks tokens for single bytes");
        }
    }
    return CADRE_OK;
}

static cadre_status read_vocabulary(maker *m)
{
    uint8_t *data;
    size_t nbytes;
    CADRE_TRY(cadre_whole_file_read(m->path, MOST_FILE_BYTES, &data, &nbytes));
    json_error_t error;
    json_t *object =
        json_loadb((const char *)data, nbytes, JSON_REJECT_DUPLICATES, &error);
    cadre_free(data);
    if (!json_is_object(object)) {
        json_decref(object);
        return corrupt(m, "is no JSON object");
    }
    cadre_status status = sort_keys(m, object);
    if (status == CADRE_OK) {
        status = fill_bytes(m);
    }
    json_decref(object); // and with it what keys point to
    return status == CADRE_OK ? index_tokens(m) : status;
}

// The token of one word of a merge; its bytes go to out.
static int32_t find_token(const maker *m, const char *word, size_t nbytes,
    uint8_t *out, size_t *n_out)
{
    if (nbytes == 0 || !read_characters(word, nbytes, out, n_out)) {
        return -1;
    }
    return *bytes_place(m, out, *n_out);
}

static cadre_status add_merge(
    maker *m, const char *line, size_t nbytes, int32_t rank)
{
    const char *space = memchr(line, ' ', nbytes);
    size_t n_left = 0;
    size_t n_right = 0;
    int32_t left = -1;
    int32_t right = -1;
    int32_t joined = -1;
    if (space != NULL) {
        size_t before = (size_t)(space - line);
        left = find_token(m, line, before, m->joined, &n_left);
        right = find_token(
            m, space + 1, nbytes - before - 1, m->joined + n_left, &n_right);
    }
    if (left >= 0 && right >= 0) {
        joined = *bytes_place(m, m->joined, n_left + n_right);
    }
    if (joined < 0) {
        return cadre_fail(CADRE_ERR_CORRUPT,
            "'%s', merge %" PRId32 ": it is not two tokens of vocab.json that "
            "make a third",
            m->path, rank);
    }
    const cadre_merge merge = {
        .pair = cadre_pair(left, right), .rank = rank, .joined = joined};
    cadre_merge *place = cadre_merge_place(m->t, merge.pair);
    if (place->rank == 0) {
        *place = merge;
    }
    m->t->hash = cadre_hash(&merge.pair, sizeof(merge.pair), m->t->hash);
    return CADRE_OK;
}

static cadre_status add_merges(maker *m, const char *data, size_t nbytes)
{
    int32_t rank = 0;
    for (size_t at = 0; at < nbytes;) {
        const char *line = data + at;
        const char *end = memchr(line, '\n', nbytes - at);
        size_t n = end == NULL ? nbytes - at : (size_t)(end - line);
        bool names_version =
            at == 0 && n >= 8 && memcmp(line, "#version", 8) == 0;
        at += n + 1;
        n -= n > 0 && line[n - 1] == '\r';
        if (n > 0 && !names_version) {
            CADRE_TRY(add_merge(m, line, n, ++rank));
        }
    }
    return CADRE_OK;
}

static size_t count_lines(const char *data, size_t nbytes)
{
    size_t n = 1;
    for (size_t i = 0; i < nbytes; i++) {
        n += data[i] == '\n';
    }
    return n;
}

static cadre_status read_merges(maker *m)
{
    uint8_t *data;
    size_t nbytes;
    CADRE_TRY(cadre_whole_file_read(m->path, MOST_FILE_BYTES, &data, &nbytes));
    const char *text = (const char *)data;
    size_t places = places_for(count_lines(text, nbytes));
    m->t->mask = places - 1;
    m->t->merges = cadre_alloc_array(places, sizeof(*m->t->merges));
    m->joined = cadre_alloc(nbytes);
    cadre_status status = m->t->merges == NULL || m->joined == NULL
                              ? CADRE_ERR_NO_MEMORY
                              : add_merges(m, text, nbytes);
    cadre_free(data);
    return status;
}

static cadre_status read_file(maker *m, const char *folder, const char *name,
    cadre_status (*take)(maker *m))
{
    char *path = cadre_path_join(folder, name);
    if (path == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    m->path = path;
    cadre_status status = take(m);
    cadre_free(path);
    return status == CADRE_ERR_NOT_FOUND
               ? cadre_fail(status,
                     "%s; data.tokenizer has to name a folder with vocab.json "
                     "and merges.txt",
                     cadre_error_text())
               : status;
}

cadre_status cadre_tokenizer_open(const char *folder, cadre_tokenizer **out)
{
    maker m = {.t = cadre_alloc(sizeof(*m.t))};
    if (m.t == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    cadre_status status = read_file(&m, folder, "vocab.json", read_vocabulary);
    if (status == CADRE_OK) {
        cadre_tokenizer *t = m.t;
        t->hash = cadre_hash(t->begins,
            ((size_t)t->n_tokens + 1) * sizeof(*t->begins),
            cadre_hash(t->bytes, t->begins[t->n_tokens], 0));
        status = read_file(&m, folder, "merges.txt", read_merges);
    }
    cadre_free(m.keys);
    cadre_free(m.by_bytes);
    cadre_free(m.joined);
    if (status != CADRE_OK) {
        cadre_tokenizer_close(m.t);
        return status;
    }
    *out = m.t;
    return CADRE_OK;
}

void cadre_tokenizer_close(cadre_tokenizer *tokenizer)
{
    if (tokenizer != NULL) {
        cadre_free(tokenizer->bytes);
        cadre_free(tokenizer->begins);
        cadre_free(tokenizer->merges);
        cadre_free(tokenizer);
    }
}

int32_t cadre_tokenizer_vocabulary(const cadre_tokenizer *tokenizer)
{
    return tokenizer->n_tokens;
}

uint64_t cadre_tokenizer_hash(const cadre_tokenizer *tokenizer)
{
    return tokenizer->hash;
}

const uint8_t *cadre_tokenizer_decode(
    const cadre_tokenizer *tokenizer, int32_t token, size_t *nbytes)
{
    size_t begin = tokenizer->begins[token];
    *nbytes = tokenizer->begins[token + 1] - begin;
    return tokenizer->bytes + begin;
}
