// SPDX-License-Identifier: Apache-2.0

#include "transport/frame.h"

#include "base/bytes.h"
#include "base/fail.h"
#include "base/hash.h"
#include <inttypes.h>
#include <stdio.h>

// Where the fields lie.  The check covers all before it.
enum {
    AT_MAGIC = 0,
    AT_VERSION = 4,
    AT_GENERATION = 8,
    AT_OPERATION = 16,
    AT_DTYPE = 17,
    AT_REDUCE_OP = 18,
    AT_FLAGS = 19,
    AT_ROOT = 20,
    AT_SEQUENCE = 24,
    AT_COUNT = 32,
    AT_DETAIL = 40,
    AT_NBYTES = 48,
    AT_SENDER = 56,
    AT_CHECK = 60,
};

enum { FLAG_CHECKED = 1, FLAG_NAMED = 2 };

static const uint32_t frame_magic = 0x52464443; // "CDFR"
static const uint32_t frame_version = 1;

static uint32_t header_check(const uint8_t *header)
{
    return (uint32_t)cadre_hash(header, AT_CHECK, 0);
}

void cadre_frame_encode(
    const cadre_frame *frame, uint8_t header[CADRE_FRAME_BYTES])
{
    const cadre_call *call = &frame->call;
    cadre_store_u32(header + AT_MAGIC, frame_magic);
    cadre_store_u32(header + AT_VERSION, frame_version);
    cadre_store_u64(header + AT_GENERATION, frame->generation);
    header[AT_OPERATION] = (uint8_t)call->operation;
    header[AT_DTYPE] = (uint8_t)call->dtype;
    header[AT_REDUCE_OP] = (uint8_t)call->reduce_op;
    header[AT_FLAGS] = (uint8_t)((frame->checked ? FLAG_CHECKED : 0) |
                                 (frame->named ? FLAG_NAMED : 0));
    cadre_store_u32(header + AT_ROOT, (uint32_t)call->root);
    cadre_store_u64(header + AT_SEQUENCE, call->sequence);
    cadre_store_u64(header + AT_COUNT, call->count);
    cadre_store_u64(header + AT_DETAIL, call->detail);
    cadre_store_u64(header + AT_NBYTES, frame->nbytes);
    cadre_store_u32(header + AT_SENDER, (uint32_t)frame->sender);
    cadre_store_u32(header + AT_CHECK, header_check(header));
}

cadre_status cadre_frame_decode(
    const uint8_t header[CADRE_FRAME_BYTES], cadre_frame *out)
{
    uint32_t magic = cadre_load_u32(header + AT_MAGIC);
    uint32_t version = cadre_load_u32(header + AT_VERSION);
    if (magic != frame_magic) {
        return cadre_fail(CADRE_ERR_CORRUPT,
            "what came is no frame: it begins with 0x%08" PRIx32, magic);
    }
    if (version != frame_version) {
        return cadre_fail(CADRE_ERR_CORRUPT,
            "frame of version %" PRIu32
            ", this program speaks version %" PRIu32,
            version, frame_version);
    }
    if (cadre_load_u32(header + AT_CHECK) != header_check(header)) {
        return cadre_fail(CADRE_ERR_CORRUPT, "frame header is damaged");
    }
    if (header[AT_FLAGS] > (FLAG_CHECKED | FLAG_NAMED)) {
        return cadre_fail(CADRE_ERR_CORRUPT, "frame with unknown flags 0x%02x",
            (unsigned)header[AT_FLAGS]);
    }

    out->generation = cadre_load_u64(header + AT_GENERATION);
    out->call = (cadre_call){
        .operation = (cadre_operation)header[AT_OPERATION],
        .dtype = (cadre_dtype)header[AT_DTYPE],
        .reduce_op = (cadre_reduce_op)header[AT_REDUCE_OP],
        .root = (int32_t)cadre_load_u32(header + AT_ROOT),
        .sequence = cadre_load_u64(header + AT_SEQUENCE),
        .count = cadre_load_u64(header + AT_COUNT),
        .detail = cadre_load_u64(header + AT_DETAIL),
    };
    out->nbytes = cadre_load_u64(header + AT_NBYTES);
    out->checked = (header[AT_FLAGS] & FLAG_CHECKED) != 0;
    out->named = (header[AT_FLAGS] & FLAG_NAMED) != 0;
    out->sender = (int)cadre_load_u32(header + AT_SENDER);
    return CADRE_OK;
}

static const char *operation_name(cadre_operation operation)
{
    switch (operation) {
    case CADRE_OP_ALLREDUCE:
        return "allreduce";
    case CADRE_OP_REDUCE_SCATTER:
        return "reduce_scatter";
    case CADRE_OP_ALLGATHER:
        return "allgather";
    case CADRE_OP_BROADCAST:
        return "broadcast";
    case CADRE_OP_BARRIER:
        return "barrier";
    case CADRE_OP_FOLD:
        return "fold";
    case CADRE_OP_GATHER:
        return "gather";
    case CADRE_OP_CONTROL:
        return "control";
    }
    return "unknown operation";
}

void cadre_call_text(const cadre_call *call, char text[CADRE_CALL_TEXT_BYTES])
{
    char of[40] = "";
    char how[40] = "";
    const char *op = cadre_reduce_op_name(call->reduce_op);
    if (call->operation != CADRE_OP_BARRIER) {
        snprintf(of, sizeof(of), " of %" PRIu64 " %s", call->count,
            cadre_dtype_name(call->dtype));
    }
    switch (call->operation) {
    case CADRE_OP_ALLREDUCE:
        snprintf(how, sizeof(how), " (%s)", op);
        break;
    case CADRE_OP_REDUCE_SCATTER:
        snprintf(
            how, sizeof(how), " (%s, parts %016" PRIx64 ")", op, call->detail);
        break;
    case CADRE_OP_ALLGATHER:
        snprintf(how, sizeof(how), " (parts %016" PRIx64 ")", call->detail);
        break;
    case CADRE_OP_BROADCAST:
        snprintf(how, sizeof(how), " from root %" PRId32, call->root);
        break;
    case CADRE_OP_FOLD:
    case CADRE_OP_GATHER:
    case CADRE_OP_CONTROL:
        if (call->detail != 0) {
            snprintf(
                how, sizeof(how), " (layout %016" PRIx64 ")", call->detail);
        }
        break;
    case CADRE_OP_BARRIER:
        break;
    }
    snprintf(text, CADRE_CALL_TEXT_BYTES, "%s #%" PRIu64 "%s%s",
        operation_name(call->operation), call->sequence, of, how);
}

static bool same_call(const cadre_call *a, const cadre_call *b)
{
    return a->operation == b->operation && a->dtype == b->dtype &&
           a->reduce_op == b->reduce_op && a->root == b->root &&
           a->sequence == b->sequence && a->count == b->count &&
           a->detail == b->detail;
}

static cadre_status fail_calls(
    const cadre_call *a, int rank_of_a, const cadre_call *b, int rank_of_b)
{
    if (rank_of_b < rank_of_a) {
        return fail_calls(b, rank_of_b, a, rank_of_a);
    }
    char text_of_a[CADRE_CALL_TEXT_BYTES];
    char text_of_b[CADRE_CALL_TEXT_BYTES];
    cadre_call_text(a, text_of_a);
    cadre_call_text(b, text_of_b);
    return cadre_fail(CADRE_ERR_DESYNC,
        "ranks disagree: rank %d called %s, rank %d called %s", rank_of_a,
        text_of_a, rank_of_b, text_of_b);
}

cadre_status cadre_frame_compare(const cadre_frame *theirs, int rank,
    const cadre_call *expected, size_t expected_bytes)
{
    if (!same_call(&theirs->call, expected)) {
        return fail_calls(&theirs->call, theirs->sender, expected, rank);
    }
    if (theirs->nbytes != expected_bytes) {
        char text[CADRE_CALL_TEXT_BYTES];
        cadre_call_text(expected, text);
        return cadre_fail(CADRE_ERR_DESYNC,
            "ranks disagree: in %s rank %d sends %" PRIu64
            " bytes where rank %d expects %zu",
            text, theirs->sender, theirs->nbytes, rank, expected_bytes);
    }
    return CADRE_OK;
}
