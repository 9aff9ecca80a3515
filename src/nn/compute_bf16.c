// SPDX-License-Identifier: Apache-2.0
//
// oneDNN's matmul multiplies the factors, or copies that are widened to f32.  All
// but their type is the same.

#include "nn/compute_bf16.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "kernel/narrow.h"
#include "nn/compute.h"
#include "nn/compute_job.h"
#include "nn/net.h"
#include <stdatomic.h>

// A factor without its data, and the floats of its widened copy: 0 if it needs
// none.
typedef struct factor {
    cadre_narrow_view as;
    size_t wide_count;
} factor;

struct cadre_bf16_product {
    dnnl_data_type_t type; // of what the library multiplies
    factor a;
    factor b;
    dnnl_stream_t stream;
    cadre_dnnl_job job;
    cadre_matrix wide; // what is rounded behind the library, without its data
    size_t wide_count; // floats of that: 0 if there is none
    size_t pad_count;  // floats that the library wants
};

// What it comes to.
typedef struct outcome {
    int64_t rows;
    int64_t columns;
    int64_t stride;
    bool adds;
    bool has_bias;
    bool rounded;
} outcome;

static atomic_bool assumed;

static bool library_has(dnnl_cpu_isa_t isa)
{
    return (dnnl_get_effective_cpu_isa() & isa) == isa;
}

bool cadre_compute_has_bf16(void)
{
    return atomic_load_explicit(&assumed, memory_order_relaxed) ||
           library_has(dnnl_cpu_isa_avx512_core_bf16);
}

void cadre_compute_assume_bf16(bool yes)
{
    atomic_store_explicit(&assumed, yes, memory_order_relaxed);
}

// The library takes bf16 from AVX-512 on, and does without its instructions
// where there are none.
dnnl_data_type_t cadre_dnnl_bf16(void)
{
    return library_has(dnnl_cpu_isa_avx512_core) ? dnnl_bf16 : dnnl_f32;
}

void cadre_dnnl_round(dnnl_data_type_t type, void *to, size_t first,
    const float *from, size_t count)
{
    if (type == dnnl_bf16) {
        cadre_narrow(CADRE_BF16, (uint16_t *)to + first, from, count);
        return;
    }
    enum { CHUNK = 256 };
    uint16_t narrow[CHUNK];
    for (size_t i = 0; i < count; i += CHUNK) {
        size_t n = count - i < CHUNK ? count - i : CHUNK;
        cadre_narrow(CADRE_BF16, narrow, from + i, n);
        cadre_widen(CADRE_BF16, (float *)to + first + i, narrow, n);
    }
}

// Describes a factor, which is transposed in the description alone.
static dnnl_status_t describe(dnnl_data_type_t type, cadre_bf16_factor f,
    factor *out, dnnl_memory_desc_t *md)
{
    const cadre_narrow_view m = f.matrix;
    const dnnl_dims_t dims = {m.rows, m.columns};
    const dnnl_dims_t turned_dims = {m.columns, m.rows};
    const dnnl_dims_t strides = {m.stride, 1};
    const dnnl_dims_t turned_strides = {1, m.stride};
    dnnl_status_t result =
        dnnl_memory_desc_init_by_strides(md, 2, dims, type, strides);
    out->as = m;
    out->wide_count = type == dnnl_bf16 ? 0 : cadre_dnnl_floats(md);
    return result == dnnl_success && f.transposed
               ? dnnl_memory_desc_init_by_strides(
                     md, 2, turned_dims, type, turned_strides)
               : result;
}

static cadre_status add_to_result(dnnl_primitive_attr_t attr)
{
    static const char what[] = "make attributes";
    dnnl_post_ops_t after = NULL;
    CADRE_TRY(cadre_dnnl_check(dnnl_post_ops_create(&after), what));
    dnnl_status_t result = dnnl_post_ops_append_sum(after, 1.0f);
    if (result == dnnl_success) {
        result = dnnl_primitive_attr_set_post_ops(attr, after);
    }
    dnnl_post_ops_destroy(after);
    return cadre_dnnl_check(result, what);
}

static cadre_status make_job(
    cadre_bf16_product *p, const dnnl_matmul_desc_t *d, const outcome *c)
{
    CADRE_TRY(
        cadre_dnnl_check(dnnl_stream_create(&p->stream, cadre_dnnl_engine(),
                             dnnl_stream_default_flags),
            "open a stream"));
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    cadre_status status = cadre_dnnl_job_attributes(&attr);
    if (status == CADRE_OK && c->adds) {
        status = add_to_result(attr);
    }
    if (status == CADRE_OK) {
        status = cadre_dnnl_check(
            dnnl_primitive_desc_create(&pd, d, attr, cadre_dnnl_engine(), NULL),
            "plan a product");
    }
    if (status == CADRE_OK) {
        static const int args[] = {
            DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS};
        status = cadre_dnnl_job_make(
            pd, args, c->has_bias ? 4 : 3, &p->job, &p->pad_count);
    }
    if (pd != NULL) {
        dnnl_primitive_desc_destroy(pd);
    }
    if (attr != NULL) {
        dnnl_primitive_attr_destroy(attr);
    }
    return status;
}

static cadre_status make_product(cadre_bf16_product *p, cadre_bf16_factor a,
    cadre_bf16_factor b, const outcome *c)
{
    dnnl_memory_desc_t a_md;
    dnnl_memory_desc_t b_md;
    dnnl_memory_desc_t c_md;
    dnnl_memory_desc_t bias_md;
    const dnnl_dims_t dims = {c->rows, c->columns};
    const dnnl_dims_t strides = {c->stride, 1};
    const dnnl_dims_t bias_dims = {1, c->columns};
    const dnnl_dims_t bias_strides = {c->columns, 1};
    const dnnl_data_type_t type = c->rounded ? p->type : dnnl_f32;
    const dnnl_status_t results[] = {
        describe(p->type, a, &p->a, &a_md),
        describe(p->type, b, &p->b, &b_md),
        dnnl_memory_desc_init_by_strides(&c_md, 2, dims, type, strides),
        dnnl_memory_desc_init_by_strides(
            &bias_md, 2, bias_dims, dnnl_f32, bias_strides),
    };
    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
        CADRE_TRY(cadre_dnnl_check(results[i], "describe a matrix"));
    }
    if (c->rounded && type == dnnl_f32) {
        p->wide = (cadre_matrix){NULL, c->rows, c->columns, c->stride};
        p->wide_count = cadre_dnnl_floats(&c_md);
    }
    dnnl_matmul_desc_t d;
    CADRE_TRY(cadre_dnnl_check(dnnl_matmul_desc_init(&d, &a_md, &b_md,
                                   c->has_bias ? &bias_md : NULL, &c_md),
        "describe a product"));
    return make_job(p, &d, c);
}

static cadre_status create(cadre_bf16_factor a, cadre_bf16_factor b,
    const outcome *c, cadre_bf16_product **out)
{
    cadre_bf16_product *p = cadre_alloc(sizeof(*p));
    if (p == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    p->type = cadre_dnnl_bf16();
    cadre_compute_begin();
    cadre_status status = make_product(p, a, b, c);
    cadre_compute_end();
    if (status != CADRE_OK) {
        cadre_bf16_product_destroy(p);
        return status;
    }
    *out = p;
    return CADRE_OK;
}

cadre_status cadre_bf16_product_create(cadre_bf16_factor a, cadre_bf16_factor b,
    cadre_matrix c, bool adds, cadre_bf16_product **out)
{
    const outcome to = {
        .rows = c.rows, .columns = c.columns, .stride = c.stride, .adds = adds};
    return create(a, b, &to, out);
}

cadre_status cadre_bf16_product_create_rounded(cadre_bf16_factor a,
    cadre_bf16_factor b, bool has_bias, cadre_narrow_matrix c,
    cadre_bf16_product **out)
{
    const outcome to = {.rows = c.rows,
        .columns = c.columns,
        .stride = c.stride,
        .has_bias = has_bias,
        .rounded = true};
    return create(a, b, &to, out);
}

void cadre_bf16_product_destroy(cadre_bf16_product *product)
{
    if (product == NULL) {
        return;
    }
    cadre_dnnl_job_drop(&product->job);
    if (product->stream != NULL) {
        dnnl_stream_destroy(product->stream);
    }
    cadre_free(product);
}

size_t cadre_bf16_product_scratch(const cadre_bf16_product *product)
{
    return product->a.wide_count + product->b.wide_count + product->wide_count +
           product->pad_count;
}

// The factor as the library gets it; room is for a copy.
static const void *met(const factor *f, const uint16_t *data, float *room)
{
    if (f->wide_count == 0) {
        return data;
    }
    cadre_narrow_view from = f->as;
    from.data = data;
    cadre_matrix_widen(
        from, (cadre_matrix){room, from.rows, from.columns, from.stride});
    return room;
}

static cadre_status compute(cadre_bf16_product *p, const uint16_t *a,
    const uint16_t *b, const float *bias, void *c, float *scratch)
{
    float *b_room = scratch + p->a.wide_count;
    float *pad = b_room + p->b.wide_count;
    const void *data[] = {
        met(&p->a, a, scratch), met(&p->b, b, b_room), c, bias};
    cadre_compute_begin();
    cadre_status status = cadre_dnnl_job_run(&p->job, p->stream, data, pad);
    cadre_compute_end();
    return status;
}

cadre_status cadre_bf16_product_compute(cadre_bf16_product *product,
    const uint16_t *a, const uint16_t *b, float *c, float *scratch)
{
    return compute(product, a, b, NULL, c, scratch);
}

cadre_status cadre_bf16_product_compute_rounded(cadre_bf16_product *product,
    const uint16_t *a, const uint16_t *b, const float *bias, uint16_t *c,
    float *scratch)
{
    cadre_matrix wide = product->wide;
    if (product->wide_count == 0) {
        return compute(product, a, b, bias, c, scratch);
    }
    wide.data = scratch;
    CADRE_TRY(
        compute(product, a, b, bias, wide.data, scratch + product->wide_count));
    cadre_matrix_narrow(cadre_matrix_read(wide),
        (cadre_narrow_matrix){c, wide.rows, wide.columns, wide.stride});
    return CADRE_OK;
}
