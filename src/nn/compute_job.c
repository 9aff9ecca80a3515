// SPDX-License-Identifier: Apache-2.0

#include "nn/compute_job.h"

#include "base/fail.h"
#include <string.h>

cadre_status cadre_dnnl_job_attributes(dnnl_primitive_attr_t *out)
{
    static const char what[] = "make attributes";
    CADRE_TRY(cadre_dnnl_check(dnnl_primitive_attr_create(out), what));
    return cadre_dnnl_check(dnnl_primitive_attr_set_scratchpad_mode(
                                *out, dnnl_scratchpad_mode_user),
        what);
}

cadre_status cadre_dnnl_job_make(const_dnnl_primitive_desc_t pd,
    const int *args, int n_args, cadre_dnnl_job *job, size_t *pad_count)
{
    static const char what[] = "make a primitive";
    for (int i = 0; i <= n_args; i++) {
        int arg = i < n_args ? args[i] : DNNL_ARG_SCRATCHPAD;
        const dnnl_memory_desc_t *md =
            dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
        dnnl_memory_t memory;
        CADRE_TRY(cadre_dnnl_check(dnnl_memory_create(&memory, md,
                                       cadre_dnnl_engine(), DNNL_MEMORY_NONE),
            what));
        job->args[job->n_args++] = (dnnl_exec_arg_t){arg, memory};
        if (i == n_args && cadre_dnnl_floats(md) > *pad_count) {
            *pad_count = cadre_dnnl_floats(md);
        }
    }
    return cadre_dnnl_check(dnnl_primitive_create(&job->primitive, pd), what);
}

void cadre_dnnl_job_drop(cadre_dnnl_job *job)
{
    for (int i = 0; i < job->n_args; i++) {
        dnnl_memory_destroy(job->args[i].memory);
    }
    if (job->primitive != NULL) {
        dnnl_primitive_destroy(job->primitive);
    }
}

// The library takes no const data, but writes to outputs only.
static void *unconst(const void *data)
{
    void *same;
    memcpy(&same, &data, sizeof(same));
    return same;
}

cadre_status cadre_dnnl_job_run(const cadre_dnnl_job *job, dnnl_stream_t stream,
    const void *const *data, float *pad)
{
    static const char what[] = "run a primitive";
    for (int i = 0; i < job->n_args; i++) {
        void *handle = i + 1 < job->n_args ? unconst(data[i]) : pad;
        CADRE_TRY(cadre_dnnl_check(
            dnnl_memory_set_data_handle(job->args[i].memory, handle), what));
    }
    return cadre_dnnl_check(
        dnnl_primitive_execute(job->primitive, stream, job->n_args, job->args),
        what);
}

size_t cadre_dnnl_floats(const dnnl_memory_desc_t *md)
{
    enum { LINE = 64 }; // bytes
    size_t lines = (dnnl_memory_desc_get_size(md) + LINE - 1) / LINE;
    return lines * (LINE / sizeof(float));
}
