// SPDX-License-Identifier: Apache-2.0
//
// oneDNN, and its products.  These go through dnnl_sgemm() rather than through primitives: it
// takes rows of any stride, has nothing to set up for each shape, and was the
// fastest.  Measured (oneDNN 2.6.3, AVX2, one thread, the products of a pass of
// 512 samples through the MLP 784-512-256-10, medians): 19.7 ms with padded
// rows, 21.3 with plain ones; matmul primitives 20.1 and 22.2, inner product
// 22.5, inner product with weights in the format it asks for 26.7.
//
// No signal is taken meanwhile: code that oneDNN makes for products on AVX2
// keeps data further below the stack pointer than the 128 bytes that the handler
// of a signal leaves alone.  A handler on the same stack overwrites it, and the
// product then writes where it must not (measured: the heap was corrupt within
// a second of SIGALRM every 100 us; never with handlers on a stack of their
// own).
//
// Threads: any.

#include "nn/compute_dnnl.h"

#include "base/check.h"
#include "base/fail.h"
#include "nn/compute.h"
#include "nn/net.h"
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

static int64_t rows_of(cadre_factor f)
{
    return f.transposed ? f.matrix.columns : f.matrix.rows;
}

static int64_t columns_of(cadre_factor f)
{
    return f.transposed ? f.matrix.rows : f.matrix.columns;
}

static char letter(cadre_factor f)
{
    return f.transposed ? 'T' : 'N';
}

// All but those that the thread itself causes, which cannot wait.
static void hold_signals(sigset_t *before)
{
    sigset_t held;
    sigfillset(&held);
    static const int own[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        sigdelset(&held, own[i]);
    }
    pthread_sigmask(SIG_BLOCK, &held, before);
}

// How things were before the calling thread began to compute, and how often it
// has, without an end.
typedef struct before {
    int depth;
    int threads;
    sigset_t signals;
} before;

static _Thread_local before held;

void cadre_compute_begin(void)
{
    if (held.depth++ > 0) {
        return;
    }
    hold_signals(&held.signals);
    // The setting is the calling thread's own, so others do not see the change.
    held.threads = omp_get_max_threads();
    omp_set_num_threads(1);
}

void cadre_compute_end(void)
{
    if (--held.depth > 0) {
        return;
    }
    omp_set_num_threads(held.threads);
    pthread_sigmask(SIG_SETMASK, &held.signals, NULL);
}

cadre_status cadre_dnnl_check(dnnl_status_t result, const char *what)
{
    if (result == dnnl_success) {
        return CADRE_OK;
    }
    return cadre_fail(
        result == dnnl_out_of_memory ? CADRE_ERR_NO_MEMORY : CADRE_ERR_INTERNAL,
        "oneDNN could not %s: its status %d", what, (int)result);
}

static dnnl_engine_t engine;

static void open_engine(void)
{
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) {
        engine = NULL;
    }
}

dnnl_engine_t cadre_dnnl_engine(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_engine);
    return engine;
}

static cadre_status multiply(
    cadre_factor a, cadre_factor b, float kept, cadre_matrix c)
{
    CADRE_ASSERT(rows_of(a) == c.rows && columns_of(b) == c.columns);
    CADRE_ASSERT(columns_of(a) == rows_of(b));

    cadre_compute_begin();
    dnnl_status_t result = dnnl_sgemm(letter(a), letter(b), c.rows, c.columns,
        columns_of(a), 1.0f, a.matrix.data, a.matrix.stride, b.matrix.data,
        b.matrix.stride, kept, c.data, c.stride);
    cadre_compute_end();
    return cadre_dnnl_check(result, "multiply two matrices");
}

cadre_status cadre_compute_product(
    cadre_factor a, cadre_factor b, cadre_matrix c)
{
    return multiply(a, b, 0.0f, c);
}

cadre_status cadre_compute_add_product(
    cadre_factor a, cadre_factor b, cadre_matrix c)
{
    return multiply(a, b, 1.0f, c);
}

static char version_text[32];

static void write_version(void)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(version_text, sizeof(version_text), "oneDNN %d.%d.%d", v->major,
        v->minor, v->patch);
}

const char *cadre_compute_version(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, write_version);
    return version_text;
}

const char *cadre_compute_isa(void)
{
    switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41:
        return "sse41";
    case dnnl_cpu_isa_avx:
        return "avx";
    case dnnl_cpu_isa_avx2:
        return "avx2";
    case dnnl_cpu_isa_avx2_vnni:
        return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core:
        return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
        return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
        return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
        return "avx512_core_amx";
    default:
        return "generic";
    }
}
