/* gpu_self.c - transport for groups of one rank on a GPU: every transfer is a copy on its stream.
 */
#include "comm/gpu/channel.h"

static int copy_one(struct operation *op)
{
    int64_t bytes = op->elems * (int64_t)dtype_bytes(op->dtype);
    if (op->recv == op->send)
        return GIVEN;
    return channel_copy(op, op->recv, op->send, bytes, "copy instead of a transfer");
}

static int reduce_scatter(struct operation *op)
{
    if (op->result != DTYPE_F32)
        return copy_one(op);
    if (op->accumulate || op->recv != op->send)
        device_sum_parts(op_device(op), op_stream(op), (float *)op->recv, op->dtype, op->send, 1,
                         op->elems, op->elems, op->accumulate);
    return GIVEN;
}

static int all_to_all(struct operation *op)
{
    int64_t size = (int64_t)dtype_bytes(op->dtype);
    return channel_copy(op, op->recv + op->part->recv_from * size,
                        op->send + op->part->send_from * size, op->part->send_elems * size,
                        "copy instead of an all-to-all");
}

static int nothing(struct operation *op)
{
    return GIVEN;
}

const struct transport transport_gpu_self = {
    .name = "copies",
    .enqueue = {[CALL_ALL_GATHER] = copy_one,
                [CALL_REDUCE_SCATTER] = reduce_scatter,
                [CALL_ALL_REDUCE] = nothing,
                [CALL_ALL_TO_ALL] = all_to_all},
};
