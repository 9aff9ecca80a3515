// SPDX-License-Identifier: Apache-2.0

#include "parallel/control.h"

#include "base/alloc.h"
#include "base/fail.h"
#include <string.h>

enum {
    SQUARES = 0,
    LOSS = CADRE_EXACT_WORDS,
    WEIGHT = 2 * CADRE_EXACT_WORDS,
    NOT_FINITE,
    STOP,
    N_WORDS,
};

// Far above any sum that cadre_exact_add() lets in, far below an overflow.
#define MOST_TOP_WORD ((int64_t)1 << 48)

struct cadre_control_exchange {
    cadre_group *group;
    int n_peers;
    int64_t *words; // per rank
    cadre_run *runs;
    cadre_part *sends;
    cadre_part *receives;
    cadre_work *work; // between begin and end
};

// What a rank said, or says.
static int64_t *words_of(const cadre_control_exchange *x, int rank)
{
    return x->words + (size_t)rank * N_WORDS;
}

cadre_status cadre_control_create(
    cadre_group *group, cadre_control_exchange **out)
{
    cadre_control_exchange *x = cadre_alloc(sizeof(*x));
    if (x == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    size_t n = (size_t)cadre_world_size(group);
    int rank = cadre_rank(group);
    x->group = group;
    x->words = cadre_alloc_array(n, N_WORDS * sizeof(*x->words));
    x->runs = cadre_alloc_array(n, sizeof(*x->runs));
    x->sends = cadre_alloc_array(n, sizeof(*x->sends));
    x->receives = cadre_alloc_array(n, sizeof(*x->receives));
    if (x->words == NULL || x->runs == NULL || x->sends == NULL ||
        x->receives == NULL) {
        cadre_control_destroy(x);
        return CADRE_ERR_NO_MEMORY;
    }
    for (int r = 0; r < (int)n; r++) {
        x->runs[r] = (cadre_run){
            .data = words_of(x, r), .nbytes = N_WORDS * sizeof(*x->words)};
        if (r == rank) {
            continue;
        }
        x->sends[x->n_peers] =
            (cadre_part){.peer = r, .runs = &x->runs[rank], .n_runs = 1};
        x->receives[x->n_peers] =
            (cadre_part){.peer = r, .runs = &x->runs[r], .n_runs = 1};
        x->n_peers++;
    }
    *out = x;
    return CADRE_OK;
}

void cadre_control_destroy(cadre_control_exchange *exchange)
{
    if (exchange == NULL) {
        return;
    }
    cadre_free(exchange->words);
    cadre_free(exchange->runs);
    cadre_free(exchange->sends);
    cadre_free(exchange->receives);
    cadre_free(exchange);
}

static void pack(cadre_control *control, int64_t *words)
{
    cadre_exact_settle(&control->squares);
    cadre_exact_settle(&control->loss);
    memcpy(
        words + SQUARES, control->squares.word, sizeof(control->squares.word));
    memcpy(words + LOSS, control->loss.word, sizeof(control->loss.word));
    words[WEIGHT] = control->weight;
    words[NOT_FINITE] = control->finite ? 0 : 1;
    words[STOP] = control->stop;
}

// True if these can be the settled words of a sum.
static bool plausible(const int64_t *words)
{
    for (int i = 0; i < CADRE_EXACT_WORDS - 1; i++) {
        if (words[i] < 0 || words[i] > UINT32_MAX) {
            return false;
        }
    }
    int64_t top = words[CADRE_EXACT_WORDS - 1];
    return top >= -MOST_TOP_WORD && top <= MOST_TOP_WORD;
}

// Adds what one rank said.
static cadre_status add(cadre_control *sum, const int64_t *words, int rank)
{
    if (!plausible(words + SQUARES) || !plausible(words + LOSS) ||
        words[WEIGHT] < 0 ||
        __builtin_add_overflow(sum->weight, words[WEIGHT], &sum->weight)) {
        return cadre_fail(CADRE_ERR_CORRUPT,
            "rank %d sent sums that are out of range, or the weights of a step "
            "add up to more than 2^63",
            rank);
    }
    cadre_exact_merge(&sum->squares, words + SQUARES);
    cadre_exact_merge(&sum->loss, words + LOSS);
    sum->finite = sum->finite && words[NOT_FINITE] == 0;
    sum->stop |= (uint32_t)words[STOP];
    return CADRE_OK;
}

cadre_status cadre_control_begin(
    cadre_control_exchange *exchange, cadre_control *control)
{
    pack(control, words_of(exchange, cadre_rank(exchange->group)));
    cadre_call call = {
        .operation = CADRE_OP_CONTROL,
        .dtype = CADRE_I64,
        .reduce_op = CADRE_SUM,
        .root = -1,
        .count = N_WORDS,
    };
    return cadre_exchange(exchange->group, call, exchange->sends,
        exchange->n_peers, exchange->receives, exchange->n_peers,
        &exchange->work);
}

cadre_status cadre_control_end(
    cadre_control_exchange *exchange, cadre_control *out)
{
    int n = cadre_world_size(exchange->group);
    CADRE_TRY(cadre_work_wait(exchange->work, 0));

    cadre_control sum = {.finite = true};
    for (int r = 0; r < n; r++) {
        CADRE_TRY(add(&sum, words_of(exchange, r), r));
    }
    *out = sum;
    return CADRE_OK;
}
