// SPDX-License-Identifier: Apache-2.0

#include "kernel/draw.h"

#include "kernel/vector.h"

CADRE_VECTOR_BODY void draw_body(uint64_t seed, cadre_stream stream, uint32_t a,
    const uint64_t *restrict b, size_t count, uint32_t *restrict words)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t drawn[4];
        cadre_random_words(seed, stream, a, b[i], drawn);
        for (size_t w = 0; w < 4; w++) {
            words[w * count + i] = drawn[w];
        }
    }
}
CADRE_VECTOR(draw,
    (uint64_t seed, cadre_stream stream, uint32_t a, const uint64_t *restrict b,
        size_t count, uint32_t *restrict words),
    (seed, stream, a, b, count, words));

void cadre_draw(uint64_t seed, cadre_stream stream, uint32_t a,
    const uint64_t *b, size_t count, uint32_t *words)
{
    draw[cadre_isa_in_use()](seed, stream, a, b, count, words);
}
