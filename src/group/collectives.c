// SPDX-License-Identifier: Apache-2.0
//
// The collectives of <cadre/group.h>: arguments are checked here, and each
// becomes a work.

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "collective/schedule.h"
#include "group/work.h"
#include "kernel/reduce.h"
#include <string.h>

static cadre_status check_types(
    cadre_group *group, cadre_dtype dtype, cadre_reduce_op op)
{
    if (group == NULL) {
        return cadre_fail(CADRE_ERR_INVALID_ARG, "the group is NULL");
    }
    if (cadre_dtype_bytes(dtype) == 0) {
        return cadre_fail(
            CADRE_ERR_INVALID_ARG, "%d is no element type", (int)dtype);
    }
    if (!cadre_reduce_is_defined(CADRE_F32, op)) { // f32 has them all
        return cadre_fail(
            CADRE_ERR_INVALID_ARG, "%d is no reduce operation", (int)op);
    }
    if (!cadre_reduce_is_defined(dtype, op)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "a %s of %s is not defined: reduce to the sum and divide it as you "
            "see fit",
            cadre_reduce_op_name(op), cadre_dtype_name(dtype));
    }
    return CADRE_OK;
}

static cadre_status check_buffer(
    const char *name, const void *buffer, size_t count, cadre_dtype dtype)
{
    if (count > PTRDIFF_MAX / cadre_dtype_bytes(dtype)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "%zu elements are more than memory can hold", count);
    }
    if (buffer == NULL && count > 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "%s is NULL, %zu elements are to be there", name, count);
    }
    return CADRE_OK;
}

// Both lie somewhere in memory; in place they begin together.
static cadre_status check_apart(const void *in_place, const void *send,
    size_t send_count, const void *recv, size_t recv_count, cadre_dtype dtype)
{
    uintptr_t s = (uintptr_t)send;
    uintptr_t r = (uintptr_t)recv;
    size_t element_bytes = cadre_dtype_bytes(dtype);
    bool apart = send_count == 0 || recv_count == 0 ||
                 s + send_count * element_bytes <= r ||
                 r + recv_count * element_bytes <= s;
    if (!apart && send != in_place) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "send and recv overlap without being in place");
    }
    return CADRE_OK;
}

// Turns counts into offsets; their hash goes into every frame.
static cadre_status lay_out_parts(const cadre_group *group,
    const size_t counts[], cadre_dtype dtype, size_t offsets[],
    uint64_t *detail)
{
    if (counts == NULL) {
        return cadre_fail(CADRE_ERR_INVALID_ARG, "counts is NULL");
    }
    size_t limit = PTRDIFF_MAX / cadre_dtype_bytes(dtype);
    uint64_t hash = 0;
    offsets[0] = 0;
    for (int r = 0; r < group->world_size; r++) {
        if (counts[r] > limit - offsets[r]) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "the parts are more than memory can hold");
        }
        offsets[r + 1] = offsets[r] + counts[r];
        uint8_t bytes[8];
        cadre_store_u64(bytes, counts[r]);
        hash = cadre_hash(bytes, sizeof(bytes), hash);
    }
    *detail = hash;
    return CADRE_OK;
}

static cadre_status post(cadre_work *work, cadre_call call, const void *send,
    void *recv, cadre_work **out)
{
    work->way = CADRE_WAY_DIRECT;
    work->direct.call = call;
    work->direct.send = send;
    work->direct.recv = recv;
    return cadre_work_post(work, out);
}

cadre_status cadre_allreduce(cadre_group *group, const void *send, void *recv,
    size_t count, cadre_dtype dtype, cadre_reduce_op op, cadre_work **out)
{
    CADRE_TRY(check_types(group, dtype, op));
    CADRE_TRY(check_buffer("send", send, count, dtype));
    CADRE_TRY(check_buffer("recv", recv, count, dtype));
    CADRE_TRY(check_apart(recv, send, count, recv, count, dtype));
    cadre_work *work = NULL;
    CADRE_TRY(cadre_work_find(group, &work));
    cadre_split_evenly(count, group->world_size, work->direct.offsets);
    cadre_call call = {
        .operation = CADRE_OP_ALLREDUCE,
        .dtype = dtype,
        .reduce_op = op,
        .root = -1,
        .count = count,
    };
    return post(work, call, send, recv, out);
}

cadre_status cadre_reduce_scatter(cadre_group *group, const void *send,
    void *recv, const size_t counts[], cadre_dtype dtype, cadre_reduce_op op,
    cadre_work **out)
{
    CADRE_TRY(check_types(group, dtype, op));
    cadre_work *work = NULL;
    CADRE_TRY(cadre_work_find(group, &work));
    cadre_call call = {
        .operation = CADRE_OP_REDUCE_SCATTER,
        .dtype = dtype,
        .reduce_op = op,
        .root = -1,
    };
    CADRE_TRY(lay_out_parts(
        group, counts, dtype, work->direct.offsets, &call.detail));
    size_t total = work->direct.offsets[group->world_size];
    size_t own = counts[group->rank];
    CADRE_TRY(check_buffer("send", send, total, dtype));
    CADRE_TRY(check_buffer("recv", recv, own, dtype));
    CADRE_TRY(check_apart(recv, send, total, recv, own, dtype));
    call.count = total;
    return post(work, call, send, recv, out);
}

cadre_status cadre_allgather(cadre_group *group, const void *send, void *recv,
    const size_t counts[], cadre_dtype dtype, cadre_work **out)
{
    CADRE_TRY(check_types(group, dtype, CADRE_SUM));
    cadre_work *work = NULL;
    CADRE_TRY(cadre_work_find(group, &work));
    cadre_call call = {
        .operation = CADRE_OP_ALLGATHER,
        .dtype = dtype,
        .root = -1,
    };
    CADRE_TRY(lay_out_parts(
        group, counts, dtype, work->direct.offsets, &call.detail));
    size_t total = work->direct.offsets[group->world_size];
    size_t own = counts[group->rank];
    CADRE_TRY(check_buffer("send", send, own, dtype));
    CADRE_TRY(check_buffer("recv", recv, total, dtype));
    const void *in_place =
        recv == NULL ? NULL
                     : (const char *)recv + work->direct.offsets[group->rank] *
                                                cadre_dtype_bytes(dtype);
    CADRE_TRY(check_apart(in_place, send, own, recv, total, dtype));
    call.count = total;
    return post(work, call, send, recv, out);
}

cadre_status cadre_broadcast(cadre_group *group, void *buffer, size_t count,
    cadre_dtype dtype, int root, cadre_work **out)
{
    CADRE_TRY(check_types(group, dtype, CADRE_SUM));
    if (root < 0 || root >= group->world_size) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "root is %d, the group has %d ranks", root, group->world_size);
    }
    CADRE_TRY(check_buffer("buffer", buffer, count, dtype));
    cadre_work *work = NULL;
    CADRE_TRY(cadre_work_find(group, &work));
    cadre_split_evenly(count, group->world_size, work->direct.offsets);
    cadre_call call = {
        .operation = CADRE_OP_BROADCAST,
        .dtype = dtype,
        .root = root,
        .count = count,
    };
    return post(work, call, buffer, buffer, out);
}

cadre_status cadre_barrier(cadre_group *group, cadre_work **out)
{
    CADRE_TRY(check_types(group, CADRE_U8, CADRE_SUM));
    cadre_work *work = NULL;
    CADRE_TRY(cadre_work_find(group, &work));
    cadre_split_evenly(0, group->world_size, work->direct.offsets);
    cadre_call call = {
        .operation = CADRE_OP_BARRIER,
        .dtype = CADRE_U8,
        .root = -1,
    };
    return post(work, call, NULL, NULL, out);
}

cadre_status cadre_gather_words(
    cadre_group *group, const void *mine, size_t n_words, void *all)
{
    size_t n = (size_t)group->world_size;
    size_t *counts = cadre_alloc_array(n, sizeof(*counts));
    if (counts == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    for (size_t r = 0; r < n; r++) {
        counts[r] = n_words;
    }
    cadre_status status =
        cadre_allgather(group, mine, all, counts, CADRE_I64, NULL);
    cadre_free(counts);
    return status;
}
