// SPDX-License-Identifier: Apache-2.0

#include "nn/compute_conv_shapes.h"

#include "base/fail.h"
#include "nn/compute_dnnl.h"

int64_t cadre_compute_block(void)
{
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core) {
        return 16;
    }
    return (isa & dnnl_cpu_isa_sse41) == dnnl_cpu_isa_sse41 ? 8 : 1;
}

int64_t cadre_conv_input_block(cadre_shape in, int64_t groups)
{
    enum { FEW_CHANNELS = 3 }; // one, or red, green and blue
    bool few = in.channels <= FEW_CHANNELS && groups <= 1;
    return few ? 1 : cadre_compute_block();
}

int64_t cadre_conv_groups(const cadre_conv_options *options)
{
    const int64_t block = options->out.block;
    const int64_t groups = options->groups;
    const int64_t in = options->in.channels / groups;
    const int64_t out = options->out.channels / groups;
    // Single channels are fast as they are where windows are small and overlap.
    bool by_channel = in == 1 && out == 1 && options->kernel <= 3 &&
                      options->padding <= options->kernel / 2 &&
                      options->stride <= options->kernel;
    int64_t together = 1;
    while (block > 1 && !by_channel && together < groups &&
           (groups % together != 0 || together * in % block != 0 ||
               together * out % block != 0)) {
        together++;
    }
    return groups / together;
}

int64_t cadre_conv_filled(const cadre_conv_options *options)
{
    const cadre_shape in = options->in;
    return cadre_conv_groups(options) > 1 ? in.channels
                                          : cadre_shape_blocks(in) * in.block;
}

// Plain images of one pixel are rows, which have a stride of their own.
static dnnl_status_t describe_image(dnnl_memory_desc_t *md,
    dnnl_data_type_t type, int64_t n, int64_t channels, cadre_shape s,
    int64_t stride)
{
    const int64_t block = s.block;
    const dnnl_dims_t dims = {n, channels, s.height, s.width};
    if (s.height * s.width * block == 1) {
        const dnnl_dims_t strides = {stride, 1, 1, 1};
        return dnnl_memory_desc_init_by_strides(md, 4, dims, type, strides);
    }
    dnnl_format_tag_t tag = block == 16  ? dnnl_nChw16c
                            : block == 8 ? dnnl_nChw8c
                                         : dnnl_nchw;
    return dnnl_memory_desc_init_by_tag(md, 4, dims, type, tag);
}

// One group is none to the library: plain weights have faster code.
static dnnl_status_t describe_weight(dnnl_memory_desc_t *md,
    dnnl_data_type_t type, const cadre_conv_options *o, bool packable)
{
    const int64_t groups = cadre_conv_groups(o);
    const int64_t in = cadre_conv_filled(o) / groups;
    const dnnl_dims_t plain = {o->out.channels, in, o->kernel, o->kernel};
    const dnnl_dims_t grouped = {
        groups, o->out.channels / groups, in, o->kernel, o->kernel};
    bool one = groups == 1;
    dnnl_format_tag_t tag = packable ? dnnl_format_tag_any
                            : one    ? dnnl_oihw
                                     : dnnl_goihw;
    return dnnl_memory_desc_init_by_tag(
        md, one ? 4 : 5, one ? plain : grouped, type, tag);
}

// Padding below and right: what makes the last window fit, perhaps less than
// nothing.
static int64_t padding_after(
    const cadre_conv_options *o, int64_t in, int64_t out)
{
    int64_t reach = (o->kernel - 1) * o->dilation + 1;
    return (out - 1) * o->stride + reach - in - o->padding;
}

cadre_status cadre_conv_describe(const cadre_conv_options *options,
    dnnl_data_type_t type, cadre_conv_shapes *out)
{
    const cadre_conv_options *o = options;
    cadre_conv_shapes *d = out;
    const dnnl_dims_t bias = {o->out.channels};
    for (int i = 0; i < 2; i++) {
        d->strides[i] = o->stride;
        d->dilates[i] = o->dilation - 1;
        d->before[i] = o->padding;
    }
    d->after[0] = padding_after(o, o->in.height, o->out.height);
    d->after[1] = padding_after(o, o->in.width, o->out.width);

    const int64_t n = o->n_samples;
    const int64_t in = cadre_conv_filled(o);
    const int64_t outputs = o->out.channels;
    const int64_t x_stride = o->x_stride;
    const int64_t dx_stride = cadre_shape_stride(o->in);
    const int64_t y_stride = cadre_shape_stride(o->out);
    cadre_shape blocked = o->in;
    blocked.block = o->out.block;
    const dnnl_status_t results[] = {
        describe_image(&d->x, type, n, in, o->in, x_stride),
        describe_image(&d->x_blocked, type, n, in, blocked, x_stride),
        describe_image(&d->dy, type, n, outputs, o->out, y_stride),
        describe_weight(&d->weight, type, o, false),
        describe_weight(&d->packable, type, o, true),
        describe_image(&d->y, dnnl_f32, n, outputs, o->out, y_stride),
        describe_image(&d->dx, dnnl_f32, n, in, o->in, dx_stride),
        describe_weight(&d->dweight, dnnl_f32, o, false),
        describe_weight(&d->dpackable, dnnl_f32, o, true),
        o->bias
            ? dnnl_memory_desc_init_by_tag(&d->bias, 1, bias, dnnl_f32, dnnl_a)
            : dnnl_success,
    };
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        CADRE_TRY(cadre_dnnl_check(results[i], "describe a convolution"));
    }
    return CADRE_OK;
}
