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
// plain.  Such weights are widened before they are packed.  In groups that is
// not possible; those whose channels do not fill blocks are slow.
//
// Memory:  the library's objects at creation; all data is the caller's.
// Threads: as the header says.

#include "nn/compute_conv.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "nn/compute_dnnl.h"
#include <string.h>

enum { MOST_ARGS = 5 };

// A primitive with the memory objects of its arguments, which get their data
// when it runs.  The last argument is the library's scratchpad.
typedef struct job {
    dnnl_primitive_t primitive;
    int n_args;
    dnnl_exec_arg_t args[MOST_ARGS];
} job;

struct cadre_conv {
    dnnl_stream_t stream;
    job pack_forward; // weights for forward
    job forward;
    job pack_backward; // weights for the input's gradient
    job input_gradient;
    job pack_input; // into blocks, for the weights' gradient
    job weight_gradient;
    job unpack; // the weights' gradient

    // An output channel's weights, in floats: the caller's, and with the
    // channels that fill a block.
    size_t narrow;
    size_t wide;
    size_t n_outputs;

    // The scratch, in floats: widened weights (0 if they are wide), packed
    // weights, a packed input (0 if it comes so), the library's scratchpad;
    // each for the job that wants most.
    size_t wide_count;
    size_t packed_count;
    size_t input_count;
    size_t pad_count;
};

// What the primitives are made from.
typedef struct description {
    dnnl_memory_desc_t x;
    dnnl_memory_desc_t x_blocked;
    dnnl_memory_desc_t y;
    dnnl_memory_desc_t weight;   // as the caller has it
    dnnl_memory_desc_t packable; // as the library likes it
    dnnl_memory_desc_t bias;     // of no dimensions if there is none
    dnnl_dims_t strides;
    dnnl_dims_t dilates; // elements between those of a window
    dnnl_dims_t before;  // padding above and left
    dnnl_dims_t after;   // and below and right
} description;

int64_t cadre_compute_block(void)
{
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core) {
        return 16;
    }
    return (isa & dnnl_cpu_isa_sse41) == dnnl_cpu_isa_sse41 ? 8 : 1;
}

int64_t cadre_conv_input_block(cadre_shape in)
{
    enum { FEW_CHANNELS = 3 }; // one, or red, green and blue
    return in.channels <= FEW_CHANNELS ? 1 : cadre_compute_block();
}

// Input channels, those included that fill the last block.
static int64_t filled(const cadre_conv_options *o)
{
    return o->groups > 1 ? o->in.channels
                         : cadre_shape_blocks(o->in) * o->in.block;
}

static dnnl_status_t describe_image(dnnl_memory_desc_t *md, int64_t n,
    int64_t channels, cadre_shape s, int64_t block)
{
    const dnnl_dims_t dims = {n, channels, s.height, s.width};
    dnnl_format_tag_t tag = block == 16  ? dnnl_nChw16c
                            : block == 8 ? dnnl_nChw8c
                                         : dnnl_nchw;
    return dnnl_memory_desc_init_by_tag(md, 4, dims, dnnl_f32, tag);
}

// One group is none to the library: plain weights have faster code.
static dnnl_status_t describe_weight(
    dnnl_memory_desc_t *md, const cadre_conv_options *o, bool packable)
{
    int64_t in = filled(o) / o->groups;
    const dnnl_dims_t plain = {o->out.channels, in, o->kernel, o->kernel};
    const dnnl_dims_t grouped = {
        o->groups, o->out.channels / o->groups, in, o->kernel, o->kernel};
    bool one = o->groups == 1;
    dnnl_format_tag_t tag = packable ? dnnl_format_tag_any
                            : one    ? dnnl_oihw
                                     : dnnl_goihw;
    return dnnl_memory_desc_init_by_tag(
        md, one ? 4 : 5, one ? plain : grouped, dnnl_f32, tag);
}

// Padding below and right: what makes the last window fit, perhaps less than
// nothing.
static int64_t padding_after(
    const cadre_conv_options *o, int64_t in, int64_t out)
{
    int64_t reach = (o->kernel - 1) * o->dilation + 1;
    return (out - 1) * o->stride + reach - in - o->padding;
}

static cadre_status describe(const cadre_conv_options *o, description *d)
{
    const dnnl_dims_t bias = {o->out.channels};
    for (int i = 0; i < 2; i++) {
        d->strides[i] = o->stride;
        d->dilates[i] = o->dilation - 1;
        d->before[i] = o->padding;
    }
    d->after[0] = padding_after(o, o->in.height, o->out.height);
    d->after[1] = padding_after(o, o->in.width, o->out.width);

    int64_t n = o->n_samples;
    const dnnl_status_t results[] = {
        describe_image(&d->x, n, filled(o), o->in, o->in.block),
        describe_image(&d->x_blocked, n, filled(o), o->in, o->out.block),
        describe_image(&d->y, n, o->out.channels, o->out, o->out.block),
        describe_weight(&d->weight, o, false),
        describe_weight(&d->packable, o, true),
        o->bias
            ? dnnl_memory_desc_init_by_tag(&d->bias, 1, bias, dnnl_f32, dnnl_a)
            : dnnl_success,
    };
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        CADRE_TRY(cadre_dnnl_check(results[i], "describe a convolution"));
    }
    return CADRE_OK;
}

static size_t whole_lines(size_t count)
{
    enum { LINE = 16 }; // floats
    return (count + LINE - 1) / LINE * LINE;
}

static size_t floats_of(const dnnl_memory_desc_t *md)
{
    return whole_lines(dnnl_memory_desc_get_size(md) / sizeof(float));
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

// Makes a job of a primitive's description, with these arguments and a
// scratchpad.
static cadre_status make_job(cadre_conv *conv, const_dnnl_primitive_desc_t pd,
    const int *args, int n_args, job *j)
{
    static const char what[] = "make a primitive of a convolution";
    for (int i = 0; i <= n_args; i++) {
        int arg = i < n_args ? args[i] : DNNL_ARG_SCRATCHPAD;
        const dnnl_memory_desc_t *md =
            dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
        dnnl_memory_t memory;
        CADRE_TRY(cadre_dnnl_check(dnnl_memory_create(&memory, md,
                                       cadre_dnnl_engine(), DNNL_MEMORY_NONE),
            what));
        j->args[j->n_args++] = (dnnl_exec_arg_t){arg, memory};
        if (i == n_args) {
            conv->pad_count = larger(conv->pad_count, floats_of(md));
        }
    }
    return cadre_dnnl_check(dnnl_primitive_create(&j->primitive, pd), what);
}

static void drop_job(job *j)
{
    for (int i = 0; i < j->n_args; i++) {
        dnnl_memory_destroy(j->args[i].memory);
    }
    if (j->primitive != NULL) {
        dnnl_primitive_destroy(j->primitive);
    }
}

// The library takes no const data, but writes to outputs only.
static void *unconst(const float *data)
{
    void *same;
    memcpy(&same, &data, sizeof(same));
    return same;
}

// data: of each argument but the scratchpad.
static cadre_status run(
    const cadre_conv *conv, job *j, const float *const *data, float *pad)
{
    static const char what[] = "compute a convolution";
    for (int i = 0; i < j->n_args; i++) {
        void *handle = i + 1 < j->n_args ? unconst(data[i]) : pad;
        CADRE_TRY(cadre_dnnl_check(
            dnnl_memory_set_data_handle(j->args[i].memory, handle), what));
    }
    return cadre_dnnl_check(
        dnnl_primitive_execute(j->primitive, conv->stream, j->n_args, j->args),
        what);
}

// Makes a job that moves data from one format to the other.
static cadre_status make_reorder(cadre_conv *conv,
    const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
    const_dnnl_primitive_attr_t attr, job *j)
{
    dnnl_primitive_desc_t pd;
    CADRE_TRY(cadre_dnnl_check(
        dnnl_reorder_primitive_desc_create(
            &pd, from, cadre_dnnl_engine(), to, cadre_dnnl_engine(), attr),
        "reorder"));
    const int args[] = {DNNL_ARG_FROM, DNNL_ARG_TO};
    cadre_status status = make_job(conv, pd, args, 2, j);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

// The format that a primitive wants its packed weights in.
static const dnnl_memory_desc_t *packed(
    cadre_conv *conv, const_dnnl_primitive_desc_t pd, int arg)
{
    const dnnl_memory_desc_t *md =
        dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
    conv->packed_count = larger(conv->packed_count, floats_of(md));
    return md;
}

// Both attributes have the caller's memory as scratchpad; one has the ReLU.
typedef struct attributes {
    dnnl_primitive_attr_t plain;
    dnnl_primitive_attr_t relu;
} attributes;

static cadre_status make_forward(cadre_conv *conv, const description *d,
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
    CADRE_TRY(
        make_job(conv, *out, args, d->bias.ndims > 0 ? 4 : 3, &conv->forward));
    return make_reorder(conv, &d->weight, packed(conv, *out, DNNL_ARG_WEIGHTS),
        a->plain, &conv->pack_forward);
}

static cadre_status make_weight_gradient(cadre_conv *conv, const description *d,
    const attributes *a, const_dnnl_primitive_desc_t hint)
{
    dnnl_convolution_desc_t cd;
    CADRE_TRY(cadre_dnnl_check(
        dnnl_dilated_convolution_backward_weights_desc_init(&cd,
            dnnl_convolution_direct, &d->x_blocked, &d->packable, &d->bias,
            &d->y, d->strides, d->dilates, d->before, d->after),
        "describe a convolution's weight gradient"));
    dnnl_primitive_desc_t pd;
    CADRE_TRY(cadre_dnnl_check(dnnl_primitive_desc_create(&pd, &cd, a->plain,
                                   cadre_dnnl_engine(), hint),
        "plan a convolution's weight gradient"));

    const int args[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
        DNNL_ARG_DIFF_BIAS};
    cadre_status status = make_job(
        conv, pd, args, d->bias.ndims > 0 ? 4 : 3, &conv->weight_gradient);
    if (status == CADRE_OK) {
        status = make_reorder(conv, packed(conv, pd, DNNL_ARG_DIFF_WEIGHTS),
            &d->weight, a->plain, &conv->unpack);
    }
    if (status == CADRE_OK && !dnnl_memory_desc_equal(&d->x, &d->x_blocked)) {
        conv->input_count = floats_of(&d->x_blocked);
        status = make_reorder(
            conv, &d->x, &d->x_blocked, a->plain, &conv->pack_input);
    }
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static cadre_status make_input_gradient(cadre_conv *conv, const description *d,
    const attributes *a, const_dnnl_primitive_desc_t hint)
{
    dnnl_convolution_desc_t cd;
    CADRE_TRY(cadre_dnnl_check(
        dnnl_dilated_convolution_backward_data_desc_init(&cd,
            dnnl_convolution_direct, &d->x, &d->packable, &d->y, d->strides,
            d->dilates, d->before, d->after),
        "describe a convolution's input gradient"));
    dnnl_primitive_desc_t pd;
    CADRE_TRY(cadre_dnnl_check(dnnl_primitive_desc_create(&pd, &cd, a->plain,
                                   cadre_dnnl_engine(), hint),
        "plan a convolution's input gradient"));

    const int args[] = {DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC};
    cadre_status status = make_job(conv, pd, args, 3, &conv->input_gradient);
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
        CADRE_TRY(cadre_dnnl_check(dnnl_primitive_attr_create(both[i]), what));
        CADRE_TRY(cadre_dnnl_check(dnnl_primitive_attr_set_scratchpad_mode(
                                       *both[i], dnnl_scratchpad_mode_user),
            what));
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
    const description *d, const attributes *a)
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

cadre_status cadre_conv_create(
    const cadre_conv_options *options, cadre_conv **out)
{
    description d = {0};
    CADRE_TRY(describe(options, &d));
    cadre_conv *conv = cadre_alloc(sizeof(*conv));
    if (conv == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    size_t window = (size_t)(options->kernel * options->kernel);
    size_t groups = (size_t)options->groups;
    conv->narrow = (size_t)options->in.channels / groups * window;
    conv->wide = (size_t)filled(options) / groups * window;
    conv->n_outputs = (size_t)options->out.channels;
    conv->wide_count = conv->wide == conv->narrow
                           ? 0
                           : whole_lines(conv->n_outputs * conv->wide);

    cadre_dnnl_guard guard = cadre_dnnl_enter();
    attributes a = {0};
    cadre_status status = make_attributes(&a);
    if (status == CADRE_OK) {
        status = make_jobs(conv, options, &d, &a);
    }
    drop_attributes(&a);
    cadre_dnnl_leave(&guard);
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
    drop_job(&conv->pack_forward);
    drop_job(&conv->forward);
    drop_job(&conv->pack_backward);
    drop_job(&conv->input_gradient);
    drop_job(&conv->pack_input);
    drop_job(&conv->weight_gradient);
    drop_job(&conv->unpack);
    if (conv->stream != NULL) {
        dnnl_stream_destroy(conv->stream);
    }
    cadre_free(conv);
}

size_t cadre_conv_scratch(const cadre_conv *conv)
{
    return conv->wide_count + conv->packed_count + conv->input_count +
           conv->pad_count;
}

// The parts of a scratch.
typedef struct desk {
    float *wide;
    float *packed;
    float *input;
    float *pad;
} desk;

static desk divide(const cadre_conv *conv, float *scratch)
{
    desk d = {.wide = scratch};
    d.packed = d.wide + conv->wide_count;
    d.input = d.packed + conv->packed_count;
    d.pad = d.input + conv->input_count;
    return d;
}

// Weights as a job packs them.
static cadre_status pack(
    const cadre_conv *conv, job *packer, const float *weight, desk d)
{
    const float *from = weight;
    if (conv->wide_count > 0) {
        memset(d.wide, 0, conv->wide_count * sizeof(*d.wide));
        for (size_t o = 0; o < conv->n_outputs; o++) {
            memcpy(d.wide + o * conv->wide, weight + o * conv->narrow,
                conv->narrow * sizeof(*weight));
        }
        from = d.wide;
    }
    const float *const data[] = {from, d.packed};
    return run(conv, packer, data, d.pad);
}

static cadre_status unpack(cadre_conv *conv, desk d, float *dweight)
{
    float *to = conv->wide_count > 0 ? d.wide : dweight;
    const float *const data[] = {d.packed, to};
    CADRE_TRY(run(conv, &conv->unpack, data, d.pad));
    for (size_t o = 0; o < conv->n_outputs && to != dweight; o++) {
        memcpy(dweight + o * conv->narrow, to + o * conv->wide,
            conv->narrow * sizeof(*to));
    }
    return CADRE_OK;
}

static cadre_status forward(cadre_conv *conv, const float *x,
    const float *weight, const float *bias, float *y, desk d)
{
    const float *const data[] = {x, d.packed, y, bias};
    CADRE_TRY(pack(conv, &conv->pack_forward, weight, d));
    return run(conv, &conv->forward, data, d.pad);
}

cadre_status cadre_conv_forward(cadre_conv *conv, const float *x,
    const float *weight, const float *bias, float *y, float *scratch)
{
    cadre_dnnl_guard guard = cadre_dnnl_enter();
    cadre_status status =
        forward(conv, x, weight, bias, y, divide(conv, scratch));
    cadre_dnnl_leave(&guard);
    return status;
}

static cadre_status param_gradients(cadre_conv *conv, const float *x,
    const float *dy, float *dweight, float *dbias, desk d)
{
    const float *blocked = x;
    if (conv->input_count > 0) {
        const float *const packing[] = {x, d.input};
        CADRE_TRY(run(conv, &conv->pack_input, packing, d.pad));
        blocked = d.input;
    }
    const float *const data[] = {blocked, dy, d.packed, dbias};
    CADRE_TRY(run(conv, &conv->weight_gradient, data, d.pad));
    return unpack(conv, d, dweight);
}

cadre_status cadre_conv_param_gradients(cadre_conv *conv, const float *x,
    const float *dy, float *dweight, float *dbias, float *scratch)
{
    cadre_dnnl_guard guard = cadre_dnnl_enter();
    cadre_status status =
        param_gradients(conv, x, dy, dweight, dbias, divide(conv, scratch));
    cadre_dnnl_leave(&guard);
    return status;
}

static cadre_status input_gradient(
    cadre_conv *conv, const float *weight, const float *dy, float *dx, desk d)
{
    const float *const data[] = {d.packed, dy, dx};
    CADRE_TRY(pack(conv, &conv->pack_backward, weight, d));
    return run(conv, &conv->input_gradient, data, d.pad);
}

cadre_status cadre_conv_input_gradient(cadre_conv *conv, const float *weight,
    const float *dy, float *dx, float *scratch)
{
    cadre_dnnl_guard guard = cadre_dnnl_enter();
    cadre_status status =
        input_gradient(conv, weight, dy, dx, divide(conv, scratch));
    cadre_dnnl_leave(&guard);
    return status;
}
