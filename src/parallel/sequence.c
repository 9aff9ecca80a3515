// SPDX-License-Identifier: Apache-2.0

#include "parallel/sequence.h"

#include "base/alloc.h"
#include "base/fail.h"
#include <limits.h>
#include <stdint.h>

// A gather comes so many folds after its own: the next fold does not wait for its
// sums, and when backward ends few gathers are left.
enum { GATHER_LAG = 1 };

// The folds of a round by diagonals: step s of bucket b is on diagonal b + s,
// where later steps come first.
static void lay_folds(const cadre_sequence *s, cadre_turn *turns)
{
    int n = 0;
    for (int diagonal = 0; diagonal < s->n_buckets + s->n_steps - 1;
         diagonal++) {
        for (int step = s->n_steps - 1; step >= 0; step--) {
            int bucket = diagonal - step;
            if (bucket >= 0 && bucket < s->n_buckets) {
                turns[n++] = (cadre_turn){
                    .kind = CADRE_TURN_FOLD, .bucket = bucket, .step = step};
            }
        }
    }
}

// The last round: its folds, and the gathers between and behind them.
static void lay_last(cadre_sequence *s)
{
    int n = 0;
    int gathered = 0;
    for (int i = 0; i < s->per_round; i++) {
        cadre_turn fold = s->rounds[i];
        s->last[n++] = fold;
        if (s->gather && fold.step == s->n_steps - 1 &&
            fold.bucket >= GATHER_LAG) {
            s->last[n++] =
                (cadre_turn){.kind = CADRE_TURN_GATHER, .bucket = gathered++};
        }
    }
    while (s->gather && gathered < s->n_buckets) {
        s->last[n++] =
            (cadre_turn){.kind = CADRE_TURN_GATHER, .bucket = gathered++};
    }
}

cadre_status cadre_sequence_init(cadre_sequence *sequence, int n_rounds,
    int n_buckets, int n_steps, bool gather)
{
    int64_t per_round = (int64_t)n_buckets * n_steps;
    if (per_round > INT_MAX / 4 ||
        per_round * n_rounds + n_buckets > (int64_t)INT_MAX / 2) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "engine: %d buckets in %d rounds are more exchanges than a step "
            "can have; take larger buckets or blocks",
            n_buckets, n_rounds);
    }
    cadre_sequence s = {
        .n_rounds = n_rounds,
        .n_buckets = n_buckets,
        .n_steps = n_steps,
        .gather = gather,
        .per_round = (int)per_round,
    };
    s.n_turns = s.per_round * n_rounds + n_buckets;
    s.n_before_control = s.n_turns - (gather ? 1 : n_buckets);
    s.n_until_folded = s.n_before_control -
                       (gather && n_buckets > GATHER_LAG ? GATHER_LAG : 0);
    size_t n_last = (size_t)s.per_round + (gather ? (size_t)n_buckets : 0);
    s.rounds = cadre_alloc_array((size_t)s.per_round, sizeof(*s.rounds));
    s.last = cadre_alloc_array(n_last, sizeof(*s.last));
    if (s.rounds == NULL || s.last == NULL) {
        cadre_sequence_fini(&s);
        return CADRE_ERR_NO_MEMORY;
    }
    lay_folds(&s, s.rounds);
    lay_last(&s);
    *sequence = s;
    return CADRE_OK;
}

void cadre_sequence_fini(cadre_sequence *sequence)
{
    cadre_free(sequence->rounds);
    cadre_free(sequence->last);
    *sequence = (cadre_sequence){0};
}

cadre_turn cadre_sequence_at(const cadre_sequence *s, int i)
{
    if (!s->gather && i >= s->n_before_control) {
        return (cadre_turn){
            .kind = CADRE_TURN_PUBLISH, .bucket = i - s->n_before_control};
    }
    int last_round = s->n_rounds - 1;
    int round = i / s->per_round < last_round ? i / s->per_round : last_round;
    int within = i - round * s->per_round;
    cadre_turn turn = round < last_round ? s->rounds[within] : s->last[within];
    turn.round = round;
    return turn;
}
