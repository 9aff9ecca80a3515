// SPDX-License-Identifier: Apache-2.0
//
// Convolutions by oneDNN's primitives.
//
// Images lie in blocks of channels (nn/shape.h), which is where oneDNN is
// fastest.  Measured (oneDNN 2.6.3, AVX2, one thread, 64 > 64 channels, 3 x 3,
// 128 images of 14 x 14, medians): forward 22.9 ms, weights' gradient 29.1,
// input's gradient 21.9; with channels last 26.1, 36.1 and 22.8.
//
// Weights are packed anew for each call and their gradient is unpacked, so that
// nobody has to say when parameters have changed.
//
// A last block of input channels that is not full counts as full, with zeros
// for weights: oneDNN's fast code for fewer channels than a block wants them
// plain.  Such weights are widened before they are packed.
//
// So are those of groups whose channels do not fill blocks, for which the
// library has but its plainest loops: neighbours are computed together, with
// zeros for the weights from one to the other.  Measured (as above, 16 images of
// 28 x 28, a whole pass through that layer, the best of some): 64 channels in 32
// groups 10.4 ms instead of 2518, 24 in 8 groups 5.8 instead of 1488.
//
// With bf16 images come so, and weights are rounded before they are packed; what
// comes out, and the bias, are f32.  Where the library does not take bf16 it
// gets widened copies.
//
// Memory:  the library's objects at creation; all data is the caller's.
// Threads: as the header says.

#include "nn/compute_conv.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "kernel/narrow.h"
#include "nn/compute.h"
#include "nn/compute_conv_shapes.h"
#include "nn/compute_job.h"
#include <string.h>

struct cadre_conv {
    dnnl_stream_t stream;
    cadre_dnnl_job pack_forward; // weights for forward
    cadre_dnnl_job forward;
    cadre_dnnl_job pack_backward; // weights for the input's gradient
    cadre_dnnl_job input_gradient;
    cadre_dnnl_job pack_input; // into blocks, for the weights' gradient
    cadre_dnnl_job weight_gradient;
    cadre_dnnl_job unpack; // the weights' gradient

    bool bf16;
    dnnl_data_type_t type; // of images and weights that meet
    size_t n_x;            // elements of all images, gaps included
    size_t n_dy;

    // An output channel's weights: the caller's, and with the channels that
    // fill a block, or are another group's.
    size_t narrow;
    size_t wide;
    size_t n_outputs;
    size_t group_outputs; // of a group of the caller's,
    size_t together;      // of which the library has so many in one

    // Some weights lie on padding alone, so that their gradient is 0.
    bool has_idle_weights;

    // The scratch, in floats: widened or rounded weights (0 if they are
    // neither), packed weights, a packed input (0 if it comes so), widened
    // images and gradients (0 if they are not), the library's scratchpad; each
    // for the job that wants most.
    size_t wide_count;
    size_t packed_count;
    size_t input_count;
    size_t x_count;
    size_t dy_count;
    size_t pad_count;
};

static size_t whole_lines(size_t count)
{
    enum { LINE = 16 }; // floats
    return (count + LINE - 1) / LINE * LINE;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

// Makes a job that moves data from one format to the other.
static cadre_status make_reorder(cadre_conv *conv,
    const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
    const_dnnl_primitive_attr_t attr, cadre_dnnl_job *job)
{
    dnnl_primitive_desc_t pd;
    CADRE_TRY(cadre_dnnl_check(
        dnnl_reorder_primitive_desc_create(
            &pd, from, cadre_dnnl_engine(), to, cadre_dnnl_engine(), attr),
        "reorder"));
    const int args[] = {DNNL_ARG_FROM, DNNL_ARG_TO};
    cadre_status status =
        cadre_dnnl_job_make(pd, args, 2, job, &conv->pad_count);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

// The format that a primitive wants its packed weights in.
static const dnnl_memory_desc_t *packed(
    cadre_conv *conv, const_dnnl_primitive_desc_t pd, int arg)
{
    const dnnl_memory_desc_t *md =
        dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
    conv->packed_count = larger(conv->packed_count, cadre_dnnl_floats(md));
    return md;
}

// Both attributes have the caller's memory as scratchpad; one has the ReLU.
typedef struct attributes {
    dnnl_primitive_attr_t plain;
    dnnl_primitive_attr_t relu;
} attributes;

static cadre_status make_forward(cadre_conv *conv, const cadre_conv_shapes *d,
    const attributes *a, bool relu, dnnl_primitive_desc_t *out)
{
    dnnl_convolution_desc_t cd;
    CADRE_TRY(cadre_dnnl_check(
        dnnl_dilated_convolution_forward_desc_init(&cd, dnnl_forward_training,
            dnnl_convolution_direct, &d->x, &d->packable, &d->bias, &d->y,
            d->strides, d->dilates, d->before, d->after),
        "describe a convolution"));
    CADRE_TRY(cadre_dnnl_check(
        dnnl_primitive_desc_create(
            out, &cd, relu ? a->relu : a->plain, cadre_dnnl_engine(), NULL),
        "plan a convolution"));

    const int args[] = {
        DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS};
    CADRE_TRY(cadre_dnnl_job_make(*out, args, d->bias.ndims > 0 ? 4 : 3,
        &conv->forward, &conv->pad_count));
    return make_reorder(conv, &d->weight, packed(conv, *out, DNNL_ARG_WEIGHTS),
        a->plain, &conv->pack_forward);
}

static cadre_status make_weight_gradient(cadre_conv *conv,
    const cadre_conv_shapes *d, const attributes *a,
    const_dnnl_primitive_desc_t hint)
{
    dnnl_convolution_desc_t cd;
    CADRE_TRY(cadre_dnnl_check(
        dnnl_dilated_convolution_backward_weights_desc_init(&cd,
            dnnl_convolution_direct, &d->x_blocked, &d->dpackable, &d->bias,
            &d->dy, d->strides, d->dilates, d->before, d->after),
        "describe a convolution's weight gradient"));
    dnnl_primitive_desc_t pd;
    CADRE_TRY(cadre_dnnl_check(dnnl_primitive_desc_create(&pd, &cd, a->plain,
                                   cadre_dnnl_engine(), hint),
        "plan a convolution's weight gradient"));

    const int args[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
        DNNL_ARG_DIFF_BIAS};
    cadre_status status = cadre_dnnl_job_make(pd, args,
        d->bias.ndims > 0 ? 4 : 3, &conv->weight_gradient, &conv->pad_count);
    if (status == CADRE_OK) {
        status = make_reorder(conv, packed(conv, pd, DNNL_ARG_DIFF_WEIGHTS),
            &d->dweight, a->plain, &conv->unpack);
    }
    if (status == CADRE_OK && !dnnl_memory_desc_equal(&d->x, &d->x_blocked)) {
        conv->input_count = cadre_dnnl_floats(&d->x_blocked);
        status = make_reorder(
            conv, &d->x, &d->x_blocked, a->plain, &conv->pack_input);
    }
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static cadre_status make_input_gradient(cadre_conv *conv,
    const cadre_conv_shapes *d, const attributes *a,
    const_dnnl_primitive_desc_t hint)
{
    dnnl_convolution_desc_t cd;
    CADRE_TRY(cadre_dnnl_check(
        dnnl_dilated_convolution_backward_data_desc_init(&cd,
            dnnl_convolution_direct, &d->dx, &d->packable, &d->dy, d->strides,
            d->dilates, d->before, d->after),
        "describe a convolution's input gradient"));
    dnnl_primitive_desc_t pd;
    CADRE_TRY(cadre_dnnl_check(dnnl_primitive_desc_create(&pd, &cd, a->plain,
                                   cadre_dnnl_engine(), hint),
        "plan a convolution's input gradient"));

    const int args[] = {DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC};
    cadre_status status = cadre_dnnl_job_make(
        pd, args, 3, &conv->input_gradient, &conv->pad_count);
    if (status == CADRE_OK) {
        status = make_reorder(conv, &d->weight,
            packed(conv, pd, DNNL_ARG_WEIGHTS), a->plain, &conv->pack_backward);
    }
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static cadre_status make_attributes(attributes *a)
{
    static const char what[] = "make a convolution's attributes";
    dnnl_primitive_attr_t *both[] = {&a->plain, &a->relu};
    for (int i = 0; i < 2; i++) {
        CADRE_TRY(cadre_dnnl_job_attributes(both[i]));
    }
    dnnl_post_ops_t ops;
    CADRE_TRY(cadre_dnnl_check(dnnl_post_ops_create(&ops), what));
    dnnl_status_t result =
        dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
    if (result == dnnl_success) {
        result = dnnl_primitive_attr_set_post_ops(a->relu, ops);
    }
    dnnl_post_ops_destroy(ops);
    return cadre_dnnl_check(result, what);
}

static void drop_attributes(attributes *a)
{
    dnnl_primitive_attr_t both[] = {a->plain, a->relu};
    for (int i = 0; i < 2; i++) {
        if (both[i] != NULL) {
            dnnl_primitive_attr_destroy(both[i]);
        }
    }
}

static cadre_status make_jobs(cadre_conv *conv, const cadre_conv_options *o,
    const cadre_conv_shapes *d, const attributes *a)
{
    CADRE_TRY(
        cadre_dnnl_check(dnnl_stream_create(&conv->stream, cadre_dnnl_engine(),
                             dnnl_stream_default_flags),
            "open a stream"));
    dnnl_primitive_desc_t forward = NULL;
    cadre_status status = make_forward(conv, d, a, o->relu, &forward);
    if (status == CADRE_OK && o->param_gradients) {
        status = make_weight_gradient(conv, d, a, forward);
    }
    if (status == CADRE_OK && o->input_gradient) {
        status = make_input_gradient(conv, d, a, forward);
    }
    if (forward != NULL) {
        dnnl_primitive_desc_destroy(forward);
    }
    return status;
}

static bool is_idle(
    const cadre_conv_options *o, int64_t tap, int64_t in, int64_t out)
{
    for (int64_t i = 0; i < out; i++) {
        int64_t at = i * o->stride - o->padding + tap * o->dilation;
        if (at >= 0 && at < in) {
            return false;
        }
    }
    return true;
}

// Whether a row or column of the window, of so many places, meets padding alone.
static bool is_idle_somewhere(
    const cadre_conv_options *o, int64_t in, int64_t out)
{
    for (int64_t tap = 0; tap < o->kernel; tap++) {
        if (is_idle(o, tap, in, out)) {
            return true;
        }
    }
    return false;
}

// How much there is of everything.
static void measure(
    cadre_conv *conv, const cadre_conv_options *o, const cadre_conv_shapes *d)
{
    size_t window = (size_t)(o->kernel * o->kernel);
    size_t groups = (size_t)cadre_conv_groups(o);
    conv->narrow = (size_t)(o->in.channels / o->groups) * window;
    conv->wide = (size_t)cadre_conv_filled(o) / groups * window;
    conv->n_outputs = (size_t)o->out.channels;
    conv->group_outputs = (size_t)(o->out.channels / o->groups);
    conv->together = (size_t)o->groups / groups;
    if (conv->wide != conv->narrow || conv->bf16) {
        conv->wide_count = whole_lines(conv->n_outputs * conv->wide);
    }
    conv->has_idle_weights =
        is_idle_somewhere(o, o->in.height, o->out.height) ||
        is_idle_somewhere(o, o->in.width, o->out.width);
    const bool widens = conv->bf16 && conv->type == dnnl_f32;
    if (widens) {
        conv->n_x = dnnl_memory_desc_get_size(&d->dx) / sizeof(float);
        conv->n_dy = dnnl_memory_desc_get_size(&d->y) / sizeof(float);
        conv->x_count = cadre_dnnl_floats(&d->x);
    }
    if (widens && (o->param_gradients || o->input_gradient)) {
        conv->dy_count = cadre_dnnl_floats(&d->dy);
    }
}

cadre_status cadre_conv_create(
    const cadre_conv_options *options, cadre_conv **out)
{
    dnnl_data_type_t type = options->bf16 ? cadre_dnnl_bf16() : dnnl_f32;
    cadre_conv_shapes d = {0};
    CADRE_TRY(cadre_conv_describe(options, type, &d));
    cadre_conv *conv = cadre_alloc(sizeof(*conv));
    if (conv == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    conv->bf16 = options->bf16;
    conv->type = type;
    measure(conv, options, &d);

    cadre_compute_begin();
    attributes a = {0};
    cadre_status status = make_attributes(&a);
    if (status == CADRE_OK) {
        status = make_jobs(conv, options, &d, &a);
    }
    drop_attributes(&a);
    cadre_compute_end();
    if (status != CADRE_OK) {
        cadre_conv_destroy(conv);
        return status;
    }
    *out = conv;
    return CADRE_OK;
}

void cadre_conv_destroy(cadre_conv *conv)
{
    if (conv == NULL) {
        return;
    }
    cadre_dnnl_job_drop(&conv->pack_forward);
    cadre_dnnl_job_drop(&conv->forward);
    cadre_dnnl_job_drop(&conv->pack_backward);
    cadre_dnnl_job_drop(&conv->input_gradient);
    cadre_dnnl_job_drop(&conv->pack_input);
    cadre_dnnl_job_drop(&conv->weight_gradient);
    cadre_dnnl_job_drop(&conv->unpack);
    if (conv->stream != NULL) {
        dnnl_stream_destroy(conv->stream);
    }
    cadre_free(conv);
}

size_t cadre_conv_scratch(const cadre_conv *conv)
{
    return conv->wide_count + conv->packed_count + conv->input_count +
           conv->x_count + conv->dy_count + conv->pad_count;
}

// The parts of a scratch.
typedef struct desk {
    float *wide;
    float *packed;
    float *input;
    float *x;
    float *dy;
    float *pad;
} desk;

static desk divide(const cadre_conv *conv, float *scratch)
{
    desk d = {.wide = scratch};
    d.packed = d.wide + conv->wide_count;
    d.input = d.packed + conv->packed_count;
    d.x = d.input + conv->input_count;
    d.dy = d.x + conv->x_count;
    d.pad = d.dy + conv->dy_count;
    return d;
}

// Where an output channel's own weights begin among the wide ones.
static size_t begin_of(const cadre_conv *conv, size_t output)
{
    return output * conv->wide +
           output / conv->group_outputs % conv->together * conv->narrow;
}

// Weights as a job packs them.
static cadre_status pack(const cadre_conv *conv, const cadre_dnnl_job *packer,
    const float *weight, desk d)
{
    const float *from = weight;
    if (conv->wide_count > 0) {
        memset(d.wide, 0, conv->wide_count * sizeof(*d.wide));
        from = d.wide;
    }
    for (size_t o = 0; o < conv->n_outputs && from != weight; o++) {
        const float *row = weight + o * conv->narrow;
        if (conv->bf16) {
            cadre_dnnl_round(
                conv->type, d.wide, begin_of(conv, o), row, conv->narrow);
        } else {
            memcpy(
                d.wide + begin_of(conv, o), row, conv->narrow * sizeof(*row));
        }
    }
    const void *const data[] = {from, d.packed};
    return cadre_dnnl_job_run(packer, conv->stream, data, d.pad);
}

static cadre_status unpack(cadre_conv *conv, desk d, float *dweight)
{
    float *to = conv->wide != conv->narrow ? d.wide : dweight;
    const void *const data[] = {d.packed, to};
    CADRE_TRY(cadre_dnnl_job_run(&conv->unpack, conv->stream, data, d.pad));
    for (size_t o = 0; o < conv->n_outputs && to != dweight; o++) {
        memcpy(dweight + o * conv->narrow, to + begin_of(conv, o),
            conv->narrow * sizeof(*to));
    }
    return CADRE_OK;
}

// Images, or their gradient, as the library gets them; room is for a copy.
static const void *met(
    const cadre_conv *conv, const void *images, size_t count, float *room)
{
    if (!conv->bf16 || conv->type == dnnl_bf16) {
        return images;
    }
    cadre_widen(CADRE_BF16, room, images, count);
    return room;
}

static cadre_status forward(cadre_conv *conv, const void *x,
    const float *weight, const float *bias, float *y, desk d)
{
    const void *const data[] = {
        met(conv, x, conv->n_x, d.x), d.packed, y, bias};
    CADRE_TRY(pack(conv, &conv->pack_forward, weight, d));
    return cadre_dnnl_job_run(&conv->forward, conv->stream, data, d.pad);
}

cadre_status cadre_conv_forward(cadre_conv *conv, const void *x,
    const float *weight, const float *bias, float *y, float *scratch)
{
    cadre_compute_begin();
    cadre_status status =
        forward(conv, x, weight, bias, y, divide(conv, scratch));
    cadre_compute_end();
    return status;
}

static cadre_status param_gradients(cadre_conv *conv, const void *x,
    const void *dy, float *dweight, float *dbias, desk d)
{
    const void *blocked = met(conv, x, conv->n_x, d.x);
    if (conv->input_count > 0) {
        const void *const packing[] = {blocked, d.input};
        CADRE_TRY(cadre_dnnl_job_run(
            &conv->pack_input, conv->stream, packing, d.pad));
        blocked = d.input;
    }
    // For bf16 images of one column the library (oneDNN 2.6.3) multiplies what
    // it finds in its scratchpad.
    if (conv->has_idle_weights) {
        memset(d.pad, 0, conv->pad_count * sizeof(*d.pad));
    }
    const void *const data[] = {
        blocked, met(conv, dy, conv->n_dy, d.dy), d.packed, dbias};
    CADRE_TRY(
        cadre_dnnl_job_run(&conv->weight_gradient, conv->stream, data, d.pad));
    return unpack(conv, d, dweight);
}

cadre_status cadre_conv_param_gradients(cadre_conv *conv, const void *x,
    const void *dy, float *dweight, float *dbias, float *scratch)
{
    cadre_compute_begin();
    cadre_status status =
        param_gradients(conv, x, dy, dweight, dbias, divide(conv, scratch));
    cadre_compute_end();
    return status;
}

static cadre_status input_gradient(
    cadre_conv *conv, const float *weight, const void *dy, float *dx, desk d)
{
    const void *const data[] = {d.packed, met(conv, dy, conv->n_dy, d.dy), dx};
    CADRE_TRY(pack(conv, &conv->pack_backward, weight, d));
    return cadre_dnnl_job_run(&conv->input_gradient, conv->stream, data, d.pad);
}

cadre_status cadre_conv_input_gradient(cadre_conv *conv, const float *weight,
    const void *dy, float *dx, float *scratch)
{
    cadre_compute_begin();
    cadre_status status =
        input_gradient(conv, weight, dy, dx, divide(conv, scratch));
    cadre_compute_end();
    return status;
}
