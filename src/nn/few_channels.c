// SPDX-License-Identifier: Apache-2.0
//
// A tap is an element of a filter: its gradient is the sum, over an image's
// outputs, of dy times the input that lies under the tap.  Some output channels,
// side by side in a block, and some taps at a time have their sums in registers
// while an image is walked over.  The sums of images are added in their order.
//
// An image is copied with its padding first, so that every tap is in it.

#include "nn/few_channels.h"

#include "kernel/vector.h"
#include <string.h>

enum {
    N_LANES = 8, // output channels at a time
    N_TAPS = 5,  // taps at a time
};

// In an array of plain floats, however its loops are written, gcc keeps the sums
// in memory: that takes three times as long.
typedef float lanes __attribute__((vector_size(N_LANES * sizeof(float))));

// Where things lie in a padded image.
typedef struct walk {
    int64_t n_rows; // of outputs
    int64_t n_columns;
    int64_t dy_step; // floats from output to output
    int64_t x_step;  // floats of the image from output to output,
    int64_t x_row;   // and from row to row of outputs
} walk;

// The gradients of some taps, of one image: offsets[t] is where the first output
// has tap t.
CADRE_VECTOR_BODY void tap_sums_body(const walk *w, const float *restrict x,
    const int64_t offsets[N_TAPS], const float *restrict dy, lanes *out)
{
    lanes sums[N_TAPS] = {0};
    for (int64_t row = 0; row < w->n_rows; row++) {
        const float *at = x + row * w->x_row;
        for (int64_t i = 0; i < w->n_columns; i++) {
            lanes d;
            memcpy(&d, dy, sizeof(d));
            for (int t = 0; t < N_TAPS; t++) {
                sums[t] += d * at[offsets[t]];
            }
            dy += w->dy_step;
            at += w->x_step;
        }
    }
    for (int t = 0; t < N_TAPS; t++) {
        out[t] = sums[t];
    }
}
CADRE_VECTOR(tap_sums,
    (const walk *w, const float *restrict x, const int64_t offsets[N_TAPS],
        const float *restrict dy, lanes *out),
    (w, x, offsets, dy, out));

static int64_t padded_width(const cadre_conv_options *o)
{
    return o->in.width + 2 * o->padding;
}

// Floats of a channel of a padded image.
static int64_t padded_plane(const cadre_conv_options *o)
{
    return (o->in.height + 2 * o->padding) * padded_width(o);
}

static int64_t filter_taps(const cadre_conv_options *o)
{
    return o->in.channels * o->kernel * o->kernel;
}

// Copies an image into one whose padding is zeros.
static void pad(const cadre_conv_options *o, const float *x, float *padded)
{
    const int64_t width = padded_width(o);
    for (int64_t c = 0; c < o->in.channels; c++) {
        float *to = padded + c * padded_plane(o) + o->padding * (width + 1);
        for (int64_t h = 0; h < o->in.height; h++) {
            memcpy(to, x, (size_t)o->in.width * sizeof(*x));
            to += width;
            x += o->in.width;
        }
    }
}

// Where the first output has a tap.  The one behind the last of a filter is the
// bias, a tap that lies on ones.
static int64_t offset_of(const cadre_conv_options *o, int64_t tap)
{
    int64_t cells = o->kernel * o->kernel;
    int64_t row = tap % cells / o->kernel;
    int64_t column = tap % o->kernel;
    return tap / cells * padded_plane(o) +
           (row * padded_width(o) + column) * o->dilation;
}

// Adds an image's part to the gradients of up to N_LANES output channels, from
// `first` on.
static void add_image(const cadre_conv_options *o, const float *padded,
    const float *dy, int64_t first, float *dweight, float *dbias)
{
    const walk w = {
        .n_rows = o->out.height,
        .n_columns = o->out.width,
        .dy_step = o->out.block,
        .x_step = o->stride,
        .x_row = o->stride * padded_width(o),
    };
    const int64_t filter = filter_taps(o);
    const int64_t n_taps = filter + (dbias != NULL ? 1 : 0);
    for (int64_t tap = 0; tap < n_taps; tap += N_TAPS) {
        int64_t offsets[N_TAPS];
        for (int64_t t = 0; t < N_TAPS; t++) {
            int64_t real = tap + t < n_taps ? tap + t : tap;
            offsets[t] = offset_of(o, real);
        }
        lanes sums[N_TAPS];
        tap_sums[cadre_isa_in_use()](&w, padded, offsets, dy, sums);
        for (int64_t t = tap; t < tap + N_TAPS && t < n_taps; t++) {
            for (int64_t c = first; c < first + N_LANES && c < o->out.channels;
                 c++) {
                float *to = t < filter ? &dweight[c * filter + t] : &dbias[c];
                *to += sums[t - tap][c - first];
            }
        }
    }
}

// Groups and a block of one channel are the library's.
bool cadre_few_channels(const cadre_conv_options *o)
{
    return o->in.block == 1 && o->groups == 1 && o->out.block % N_LANES == 0;
}

size_t cadre_few_channels_scratch(const cadre_conv_options *o)
{
    return (size_t)((o->in.channels + 1) * padded_plane(o));
}

void cadre_few_channels_gradients(const cadre_conv_options *o,
    cadre_matrix_view x, const float *dy, float *dweight, float *dbias,
    float *scratch)
{
    const int64_t n_outputs = o->out.channels;
    const int64_t dy_block = o->out.height * o->out.width * o->out.block;
    const int64_t zeros = o->in.channels * padded_plane(o);
    memset(scratch, 0, (size_t)zeros * sizeof(*scratch));
    for (int64_t i = 0; i < padded_plane(o); i++) {
        scratch[zeros + i] = 1.0f;
    }
    memset(dweight, 0, (size_t)(n_outputs * filter_taps(o)) * sizeof(*dweight));
    if (dbias != NULL) {
        memset(dbias, 0, (size_t)n_outputs * sizeof(*dbias));
    }
    for (int64_t n = 0; n < o->n_samples; n++) {
        pad(o, cadre_matrix_view_row(x, n), scratch);
        for (int64_t c = 0; c < n_outputs; c += N_LANES) {
            const float *lane =
                dy + c / o->out.block * dy_block + c % o->out.block;
            add_image(o, scratch, lane, c, dweight, dbias);
        }
        dy += cadre_shape_blocks(o->out) * dy_block;
    }
}
