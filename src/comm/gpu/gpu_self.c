/* gpu_self.c - transport: a group of one on a GPU, served by copies on its streams. */
#include "comm/gpu/channel.h"

static int all_gather(struct operation *op)
{
    size_t bytes = (size_t)op->elems * dtype_bytes(op->dtype);
    if (op->recv == op->send ||
        !device_copy_async(op_device(op), op_stream(op), op->recv, op->send, bytes, &op->err))
        return GIVEN;
    error_prefix(&op->err, "copy instead of an all-gather");
    return FAILED;
}

static int reduce_scatter(struct operation *op)
{
    if (op->accumulate || op->recv != op->send)
        device_sum_parts(op_device(op), op_stream(op), (float *)op->recv, op->dtype, op->send, 1,
                         op->elems, op->elems, op->accumulate);
    return GIVEN;
}

static int nothing(struct operation *op)
{
    return GIVEN;
}

const struct transport transport_gpu_self = {
    .name = "copies",
    .enqueue = {[CALL_ALL_GATHER] = all_gather,
                [CALL_REDUCE_SCATTER] = reduce_scatter,
                [CALL_ALL_REDUCE] = nothing,
                [CALL_BROADCAST] = nothing},
};
