// SPDX-License-Identifier: Apache-2.0

#include "data/resample.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "kernel/vector.h"
#include <stdint.h>

// Weights and sums of them times a byte stay below 2^31.
enum { WEIGHT_BITS = 22, CHANNELS = 3 };

// How one direction is scaled: pixel i of the result is the sum of n[i] of the
// source from first[i] on, by weights that stand in rows of most.
typedef struct filter {
    int *first;       // (count)
    int *n;           // (count)
    int32_t *weights; // (count, most)
    int most;
    int count;
} filter;

// A pixel of the result covers scale pixels of the source, one at least.
static double width_of(double scale)
{
    return scale < 1 ? 1 : scale;
}

static int most_weights(int from, int to)
{
    return 2 * (int)(width_of((double)from / to) + 1) + 1;
}

static double triangle(double at)
{
    double distance = at < 0 ? -at : at;
    return distance < 1 ? 1 - distance : 0;
}

// The weights of pixel i of to, of from pixels: doubles, and only by the four
// operations and roundings that IEEE 754 defines.
static void weigh(filter *f, int i, int place, int from, int to)
{
    const double scale = (double)from / to;
    const double width = width_of(scale);
    const double shrink = 1 / width;
    const double centre = (place + 0.5) * scale;
    int lo = (int)(centre - width + 0.5);
    int hi = (int)(centre + width + 0.5);
    lo = centre - width + 0.5 < 0 ? 0 : lo;
    hi = hi > from ? from : hi;
    CADRE_ASSERT(hi - lo >= 1 && hi - lo <= f->most);

    double sum = 0;
    for (int k = lo; k < hi; k++) {
        sum += triangle((k - centre + 0.5) * shrink);
    }
    int32_t *weights = f->weights + (size_t)i * (size_t)f->most;
    for (int k = lo; k < hi; k++) {
        double weight = triangle((k - centre + 0.5) * shrink) / sum;
        weights[k - lo] = (int32_t)(weight * (1 << WEIGHT_BITS) + 0.5);
    }
    f->first[i] = lo;
    f->n[i] = hi - lo;
}

static uint8_t rounded(int32_t sum)
{
    // A sum of rounded weights may be a little above 1.
    int32_t value = sum >> WEIGHT_BITS;
    return (uint8_t)(value > 255 ? 255 : value);
}

enum { HALF = 1 << (WEIGHT_BITS - 1) };

// One row from left to right.
static void scale_row(
    const filter *f, const uint8_t *restrict in, uint8_t *restrict out)
{
    for (int i = 0; i < f->count; i++) {
        const int32_t *weights = f->weights + (size_t)i * (size_t)f->most;
        const uint8_t *at = in + (size_t)f->first[i] * CHANNELS;
        int32_t red = HALF;
        int32_t green = HALF;
        int32_t blue = HALF;
        for (int k = 0; k < f->n[i]; k++, at += CHANNELS) {
            red += at[0] * weights[k];
            green += at[1] * weights[k];
            blue += at[2] * weights[k];
        }
        *out++ = rounded(red);
        *out++ = rounded(green);
        *out++ = rounded(blue);
    }
}

// n rows become one, from top to bottom.
CADRE_VECTOR_BODY void join_rows_body(const uint8_t *restrict rows,
    size_t row_bytes, const int32_t *restrict weights, int n,
    uint8_t *restrict out)
{
    enum { GRAIN = 64 }; // bytes whose sums fit in registers
    for (size_t begin = 0; begin < row_bytes; begin += GRAIN) {
        size_t left = row_bytes - begin;
        size_t count = left < GRAIN ? left : GRAIN;
        int32_t sums[GRAIN];
        for (size_t i = 0; i < count; i++) {
            sums[i] = HALF;
        }
        for (int k = 0; k < n; k++) {
            const uint8_t *row = rows + (size_t)k * row_bytes + begin;
            for (size_t i = 0; i < count; i++) {
                sums[i] += row[i] * weights[k];
            }
        }
        for (size_t i = 0; i < count; i++) {
            int32_t value = sums[i] >> WEIGHT_BITS;
            out[begin + i] = (uint8_t)(value > 255 ? 255 : value);
        }
    }
}
CADRE_VECTOR(join_rows,
    (const uint8_t *restrict rows, size_t row_bytes,
        const int32_t *restrict weights, int n, uint8_t *restrict out),
    (rows, row_bytes, weights, n, out));

static void mirror_row(uint8_t *row, int side)
{
    for (int left = 0, right = side - 1; left < right; left++, right--) {
        for (int c = 0; c < CHANNELS; c++) {
            uint8_t *a = &row[left * CHANNELS + c];
            uint8_t *b = &row[right * CHANNELS + c];
            uint8_t kept = *a;
            *a = *b;
            *b = kept;
        }
    }
}

// Where everything lies in a resampler's memory, aligned parts first.
typedef struct plan {
    filter columns;
    filter rows;
    uint8_t *scaled; // rows of the area that are wanted, (n, side, 3)
    uint8_t *result; // (side, side, 3)
} plan;

static size_t filter_bytes(const filter *f)
{
    return (size_t)f->count *
           (2 * sizeof(int) + (size_t)f->most * sizeof(int32_t));
}

static uint8_t *place_filter(filter *f, uint8_t *at)
{
    size_t count = (size_t)f->count;
    // Aligned: memory is, and all that lies before has the size of an int.
    f->first = (void *)at;
    f->n = f->first + count;
    f->weights = (int32_t *)(f->n + count);
    return at + filter_bytes(f);
}

static cadre_status make_room(cadre_resampler *r, size_t nbytes)
{
    if (nbytes <= r->room) {
        return CADRE_OK;
    }
    cadre_resampler_fini(r);
    r->memory = cadre_alloc(nbytes);
    if (r->memory == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    r->room = nbytes;
    return CADRE_OK;
}

static cadre_status make_plan(cadre_resampler *r, const cadre_view *v, plan *p)
{
    p->columns = (filter){
        .most = most_weights(v->area.width, v->width), .count = v->side};
    p->rows = (filter){
        .most = most_weights(v->area.height, v->height), .count = v->side};
    const size_t row_bytes = (size_t)v->side * CHANNELS;
    const size_t scaled_bytes = (size_t)v->area.height * row_bytes;
    CADRE_TRY(make_room(r, filter_bytes(&p->columns) + filter_bytes(&p->rows) +
                               scaled_bytes + (size_t)v->side * row_bytes));
    uint8_t *at = place_filter(&p->columns, r->memory);
    at = place_filter(&p->rows, at);
    p->scaled = at;
    p->result = at + scaled_bytes;
    for (int i = 0; i < v->side; i++) {
        weigh(&p->columns, i, v->x + i, v->area.width, v->width);
        weigh(&p->rows, i, v->y + i, v->area.height, v->height);
    }
    return CADRE_OK;
}

cadre_status cadre_resample(cadre_resampler *resampler,
    const cadre_picture *picture, const cadre_view *view,
    const uint8_t **pixels)
{
    plan p;
    CADRE_TRY(make_plan(resampler, view, &p));
    const size_t row_bytes = (size_t)view->side * CHANNELS;
    const int last = view->side - 1;
    const int lo = p.rows.first[0];
    const int hi = p.rows.first[last] + p.rows.n[last];
    for (int y = lo; y < hi; y++) {
        size_t place = (size_t)(view->area.y + y) * (size_t)picture->width +
                       (size_t)view->area.x;
        scale_row(&p.columns, picture->pixels + place * CHANNELS,
            p.scaled + (size_t)(y - lo) * row_bytes);
    }
    for (int i = 0; i < view->side; i++) {
        uint8_t *row = p.result + (size_t)i * row_bytes;
        join_rows[cadre_isa_in_use()](
            p.scaled + (size_t)(p.rows.first[i] - lo) * row_bytes, row_bytes,
            p.rows.weights + (size_t)i * (size_t)p.rows.most, p.rows.n[i], row);
        if (view->mirrored) {
            mirror_row(row, view->side);
        }
    }
    *pixels = p.result;
    return CADRE_OK;
}

void cadre_resampler_fini(cadre_resampler *resampler)
{
    cadre_free(resampler->memory);
    *resampler = (cadre_resampler){0};
}
