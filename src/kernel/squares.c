// SPDX-License-Identifier: Apache-2.0

#include "kernel/squares.h"

#include "kernel/vector.h"

enum { LANES = 8 };

CADRE_VECTOR_BODY void piece_squares_body(
    const float *x, size_t count, double *sum)
{
    double lane[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            double v = x[i + j];
            lane[j] += v * v;
        }
    }
    for (size_t j = 0; i + j < count; j++) {
        double v = x[i + j];
        lane[j] += v * v;
    }
    *sum = ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
           ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}
CADRE_VECTOR(piece_squares, (const float *x, size_t count, double *sum),
    (x, count, sum));

bool cadre_add_squares(
    cadre_exact *sum, const float *x, size_t index, size_t count)
{
    cadre_isa isa = cadre_isa_in_use();
    bool finite = true;
    while (count > 0) {
        size_t left = CADRE_QUANTUM - index % CADRE_QUANTUM;
        size_t part = left < count ? left : count;
        // Squares of finite f32 numbers cannot overflow f64.
        double squares;
        piece_squares[isa](x, part, &squares);
        finite = cadre_exact_add(sum, squares) && finite;
        x += part;
        index += part;
        count -= part;
    }
    return finite;
}
