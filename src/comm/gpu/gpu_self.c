/* gpu_self.c - transport: a group of one on a GPU, served by copies on its streams. */
#include "comm/gpu/channel.h"

static int all_gather(struct comm_op *op)
{
    size_t bytes = (size_t)op->elems * dtype_bytes(op->dtype);
    if (op->recv == op->send)
        return GIVEN;
    return cuda_checked(
               cudaMemcpyAsync(op->recv, op->send, bytes, cudaMemcpyDeviceToDevice, op_stream(op)),
               "copy instead of an all-gather", &op->err)
               ? FAILED
               : GIVEN;
}

static int reduce_scatter(struct comm_op *op)
{
    if (op->accumulate || op->recv != op->send)
        device_sum_parts(op->group->link->request.device, DEVICE_GATHER + op->lane, (float *)op->recv, op->dtype, op->send, 1, op->elems,
                       op->elems, op->accumulate);
    return GIVEN;
}

static int nothing(struct comm_op *op)
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
