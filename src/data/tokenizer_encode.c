// SPDX-License-Identifier: Apache-2.0
//
// From bytes to tokens.  A word's tokens are a linked list in which pairs are
// joined; a heap says which pair is next, so a word of n bytes takes n log n
// steps.

#include "base/alloc.h"
#include "base/fail.h"
#include "base/log.h"
#include "data/tokenizer_tables.h"
#include "data/words.h"
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

// No text has such words, and they would take more memory than there is.
enum { MOST_WORD = 1 << 24 };

// Between two lines about how far it got.
enum { TELL_BYTES = 1 << 26 };

// A pair that stood at a place when it was found.
typedef struct candidate {
    int32_t rank;
    int32_t place; // of the left one; of equals the first is next
    uint64_t pair;
} candidate;

typedef struct encoder {
    const cadre_tokenizer *tokenizer;
    size_t room;       // bytes of a word
    int32_t *tokens;   // (room); -1: joined to the one on the left
    int32_t *next;     // (room): place of the neighbour; the word's end
    int32_t *previous; // (room); -1
    candidate *heap;   // (3 room): each of its two children is later
    size_t n_candidates;
    int32_t *out; // tokens so far
    size_t n_out;
    size_t out_room;
} encoder;

static bool is_earlier(const candidate *a, const candidate *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->place < b->place);
}

static void push(encoder *e, candidate added)
{
    size_t at = e->n_candidates++;
    while (at > 0 && is_earlier(&added, &e->heap[(at - 1) / 2])) {
        e->heap[at] = e->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    e->heap[at] = added;
}

static candidate pop(encoder *e)
{
    candidate first = e->heap[0];
    candidate moved = e->heap[--e->n_candidates];
    size_t at = 0;
    for (size_t child = 1; child < e->n_candidates; child = 2 * at + 1) {
        if (child + 1 < e->n_candidates &&
            is_earlier(&e->heap[child + 1], &e->heap[child])) {
            child++;
        }
        if (!is_earlier(&e->heap[child], &moved)) {
            break;
        }
        e->heap[at] = e->heap[child];
        at = child;
    }
    e->heap[at] = moved;
    return first;
}

// Notes the pair that begins at a place, if it may be joined.
static void consider(encoder *e, int32_t place, int32_t end)
{
    if (place < 0 || e->next[place] == end) {
        return;
    }
    uint64_t pair = cadre_pair(e->tokens[place], e->tokens[e->next[place]]);
    const cadre_merge *merge = cadre_merge_place(e->tokenizer, pair);
    if (merge->rank != 0) {
        push(e, (candidate){merge->rank, place, pair});
    }
}

// Joins what a candidate names, if it still stands there.
static void join(encoder *e, const candidate *c, int32_t end)
{
    int32_t left = c->place;
    int32_t right = e->next[left];
    if (e->tokens[left] < 0 || right == end ||
        cadre_pair(e->tokens[left], e->tokens[right]) != c->pair) {
        return;
    }
    e->tokens[left] = cadre_merge_place(e->tokenizer, c->pair)->joined;
    e->tokens[right] = -1;
    e->next[left] = e->next[right];
    if (e->next[left] != end) {
        e->previous[e->next[left]] = left;
    }
    consider(e, e->previous[left], end);
    consider(e, left, end);
}

static void encode_word(encoder *e, const uint8_t *word, int32_t end)
{
    for (int32_t i = 0; i < end; i++) {
        e->tokens[i] = e->tokenizer->of_byte[word[i]];
        e->next[i] = i + 1;
        e->previous[i] = i - 1;
    }
    e->n_candidates = 0;
    for (int32_t i = 0; i < end; i++) {
        consider(e, i, end);
    }
    while (e->n_candidates > 0) {
        const candidate c = pop(e);
        join(e, &c, end);
    }
    for (int32_t i = 0; i < end; i = e->next[i]) {
        e->out[e->n_out++] = e->tokens[i];
    }
}

static void release_word(encoder *e)
{
    cadre_free(e->tokens);
    cadre_free(e->next);
    cadre_free(e->previous);
    cadre_free(e->heap);
}

static cadre_status make_word_room(encoder *e, size_t nbytes)
{
    if (nbytes <= e->room) {
        return CADRE_OK;
    }
    if (nbytes > MOST_WORD) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "the text has a word of %zu bytes, at most %d are possible: it is "
            "no text",
            nbytes, (int)MOST_WORD);
    }
    release_word(e);
    e->room = 0;
    size_t room = 2 * nbytes;
    e->tokens = cadre_alloc_array(room, sizeof(*e->tokens));
    e->next = cadre_alloc_array(room, sizeof(*e->next));
    e->previous = cadre_alloc_array(room, sizeof(*e->previous));
    e->heap = cadre_alloc_array(3 * room, sizeof(*e->heap));
    if (e->tokens == NULL || e->next == NULL || e->previous == NULL ||
        e->heap == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    e->room = room;
    return CADRE_OK;
}

// For the tokens of one more word, which are at most its bytes.
static cadre_status make_out_room(encoder *e, size_t nbytes)
{
    enum { FIRST = 1024 };
    if (e->out_room - e->n_out >= nbytes) {
        return CADRE_OK;
    }
    size_t room = 2 * e->out_room + FIRST + nbytes;
    int32_t *out = cadre_alloc_array(room, sizeof(*out));
    if (out == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    if (e->n_out > 0) {
        memcpy(out, e->out, e->n_out * sizeof(*out));
    }
    cadre_free(e->out);
    e->out = out;
    e->out_room = room;
    return CADRE_OK;
}

static cadre_status encode_all(encoder *e, const uint8_t *text, size_t nbytes)
{
    size_t told = 0;
    for (size_t at = 0; at < nbytes;) {
        size_t n = cadre_word_bytes(text + at, nbytes - at);
        CADRE_TRY(make_word_room(e, n));
        CADRE_TRY(make_out_room(e, n));
        encode_word(e, text + at, (int32_t)n);
        at += n;
        if (at - told >= TELL_BYTES) {
            told = at;
            cadre_log(CADRE_LOG_INFO, "data",
                "%zu of %zu bytes of text are tokens", at, nbytes);
        }
    }
    return CADRE_OK;
}

cadre_status cadre_tokenizer_encode(const cadre_tokenizer *tokenizer,
    const uint8_t *text, size_t nbytes, int32_t **tokens, size_t *count)
{
    encoder e = {.tokenizer = tokenizer};
    cadre_status status = encode_all(&e, text, nbytes);
    release_word(&e);
    if (status != CADRE_OK) {
        cadre_free(e.out);
        return status;
    }
    *tokens = e.out;
    *count = e.n_out;
    return CADRE_OK;
}
