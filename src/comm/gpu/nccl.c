/* nccl.c - transport: operations on a GPU's memory, by NCCL.
 *
 * No operation averages or scales.  NCCL never sums 16-bit elements, because it would round after
 * every addition: instead the members exchange the terms, piece by piece, through the staging, and
 * each adds up its part in rank order in fp32.  An all-reduce of one piece, between 3 members:
 *
 *   data of each member     [part 0 | part 1 | part 2]
 *   SWAP_OUT                member m gets part m of all members, in half 0 of the staging
 *   sum, round              member m adds them up in half 1 and writes the sum to its part m
 *   SWAP_BACK               member m sends part m to all others
 *
 * A maximum rounds nothing, so NCCL computes it in every format.
 *
 * Sends and receives are held until an operation follows that is no message, or depends on one of
 * them, and are given to NCCL as one group: two members that send to one another must both also
 * receive.  In a step of a program each message is a group of its own, because end_instr()
 * (execute_async.c) calls comm_wait() after each transfer.
 */
#include "base/round.h"
#include "comm/gpu/nccl_call.h"

enum { GRAIN = 8 }; /* elements; parts begin in the staging at multiples of it, for wide accesses */

static size_t bytes_of(const struct operation *op)
{
    return (size_t)op->elems * dtype_bytes(op->dtype);
}

/* --- messages --- */

/* Give NCCL a message to a member and a message from it; one of 0 bytes is left out. */
static ncclResult_t give_exchange(const struct channel *c, int member, const char *from,
                                  int64_t from_bytes, char *into, int64_t into_bytes)
{
    ncclResult_t code = ncclSuccess;
    if (from_bytes > 0)
        code = ncclSend(from, (size_t)from_bytes, ncclInt8, member, comm_of(c), nccl_stream(c));
    if (into_bytes > 0 && code == ncclSuccess)
        code = ncclRecv(into, (size_t)into_bytes, ncclInt8, member, comm_of(c), nccl_stream(c));
    return code;
}

static ncclResult_t give_message(const struct operation *op)
{
    const struct channel *c = op->group->channel[op->queue];
    int64_t bytes = (int64_t)bytes_of(op);
    if (op->kind->call == CALL_SEND)
        return give_exchange(c, op->peer, op->send, bytes, NULL, 0);
    return give_exchange(c, op->peer, NULL, 0, op->recv, bytes);
}

/* End a group of calls, the last of which returned code.  Returns the first failure. */
static ncclResult_t group_end(ncclResult_t code)
{
    ncclResult_t ended = ncclGroupEnd();
    return code == ncclSuccess ? ended : code;
}

/* Give NCCL the messages that are held, as one group, and finish their operations. */
static void flush_messages(struct link *l)
{
    struct error err = {0};
    int count = l->messages_held;
    if (!count)
        return;
    struct channel *c = l->held[0]->group->channel[l->held[0]->queue];
    l->messages_held = 0;
    ncclResult_t code = ncclGroupStart();
    for (int i = 0; i < count && code == ncclSuccess; i++)
        code = give_message(l->held[i]);
    nccl_wait_for_call(c, "messages", group_end(code), &err);
    for (int i = 0; i < count; i++) {
        if (err.text[0])
            l->held[i]->err = err;
        operation_finish(l->held[i]);
    }
}

static void flush_group(struct group *g)
{
    flush_messages(g->link);
}

/* Return op's channel, after NCCL was given the messages held before op, unless op is a message
 * itself.  Returns NULL with op->err set where the link was abandoned or there is no channel. */
static struct channel *channel_of(struct operation *op)
{
    const struct group *g = op->group;
    struct channel *c = g->channel[op->queue];
    if (link_check(g->link, &op->err))
        return NULL;
    if (!c)
        error_set(&op->err, "%s in group %s: no communicator for the %s stream", op->kind->name,
                  g->name, comm_stream_name((enum comm_stream)op->queue));
    if (!op->kind->message)
        flush_messages(g->link);
    return c;
}

/* Hold a send or receive, to be given together with the messages that follow.  Those held are given
 * first where op is of another channel, needs one of them to be done, or finds no place. */
static int message(struct operation *op)
{
    struct link *l = op->group->link;
    int joins = l->messages_held < GROUP_MESSAGES;
    if (!channel_of(op))
        return FAILED;
    for (int i = 0; i < l->messages_held; i++)
        joins = joins && l->held[i]->group == op->group && l->held[i]->queue == op->queue &&
                transport_independent(l->held[i], op);
    if (!joins)
        flush_messages(l);
    l->held[l->messages_held++] = op;
    return HELD;
}

ncclResult_t nccl_swap(struct channel *c, const struct nccl_swap *x, enum nccl_swap_way way)
{
    int me = c->group->rank;
    ncclResult_t code = ncclGroupStart();
    for (int m = 0; m < c->group->size && code == ncclSuccess; m++) {
        int64_t theirs = min_i64(x->total - m * x->part, x->part);
        int64_t mine = min_i64(x->total - me * x->part, x->part);
        int64_t out = way == SWAP_OUT ? theirs : mine, in = way == SWAP_OUT ? mine : theirs;
        const char *from = x->from + (way == SWAP_OUT ? m * x->from_step : 0);
        if (m != me)
            code = give_exchange(c, m, from, out, x->into + m * x->into_step, in);
    }
    return group_end(code);
}

static int swap(struct operation *op, struct channel *c, const struct nccl_swap *x,
                enum nccl_swap_way way)
{
    return nccl_wait_for_call(c, op->kind->name, nccl_swap(c, x, way), &op->err);
}

/* --- collectives --- */

static int all_gather(struct operation *op)
{
    struct channel *c = channel_of(op);
    if (!c)
        return FAILED;
    return nccl_wait_for_call(
        c, "all-gather",
        ncclAllGather(op->send, op->recv, bytes_of(op), ncclInt8, comm_of(c), nccl_stream(c)),
        &op->err);
}

/* Copy the part of an all-to-all that this rank sends to itself. */
static int copy_own_part(struct operation *op)
{
    const struct comm_part *own = &op->part[op->group->rank];
    int64_t size = (int64_t)dtype_bytes(op->dtype);
    if (!own->send_elems)
        return 0;
    return channel_copy(op, op->recv + own->recv_from * size, op->send + own->send_from * size,
                        own->send_elems * size, "copy in an all-to-all");
}

static ncclResult_t give_parts(const struct operation *op, const struct channel *c)
{
    int64_t size = (int64_t)dtype_bytes(op->dtype);
    ncclResult_t code = ncclGroupStart();
    for (int m = 0; m < op->group->size && code == ncclSuccess; m++) {
        const struct comm_part *part = &op->part[m];
        if (m != op->group->rank)
            code = give_exchange(c, m, op->send + part->send_from * size, part->send_elems * size,
                                 op->recv + part->recv_from * size, part->recv_elems * size);
    }
    return group_end(code);
}

static int all_to_all(struct operation *op)
{
    struct channel *c = channel_of(op);
    if (!c || copy_own_part(op))
        return FAILED;
    return nccl_wait_for_call(c, "all-to-all", give_parts(op, c), &op->err);
}

/* Return how many 16-bit elements a member's part of a piece may have, so that the parts of all
 * `size` members fit in one half of the staging. */
static int64_t part_elems(const struct link *l, int size)
{
    return (int64_t)(l->device_staging_bytes / 2 / sizeof(uint16_t)) / size / GRAIN * GRAIN;
}

/* Fail unless op may use the staging, which belongs to the reduce stream, and a part has elements.
 */
static int may_stage(struct operation *op, int64_t part)
{
    if (op->queue != COMM_REDUCE)
        return error_set(&op->err, "%s of %s in group %s: on the reduce stream only",
                         op->kind->name, dtype_name(op->dtype), op->group->name);
    return part > 0 ? 0
                    : error_set(&op->err, "%s in group %s of %d: pieces are too small",
                                op->kind->name, op->group->name, op->group->size);
}

/* Set x to send, of every member's shard in op->send, the elements from first on, and copy those of
 * this member's own shard into `terms`, where the terms of the others will arrive. */
static int lay_terms(struct operation *op, struct nccl_swap *x, char *terms, int64_t first)
{
    int me = op->group->rank;
    const char *from = op->send + (size_t)first * dtype_bytes(op->dtype);
    int64_t shard_bytes = op->elems * (int64_t)dtype_bytes(op->dtype);
    x->from = from;
    x->from_step = shard_bytes;
    return channel_copy(op, terms + me * x->into_step, from + me * shard_bytes, x->part,
                        "copy in a sum");
}

/* Add up the terms of n elements in rank order and store the sums in recv, from element first on;
 * sums that are rounded to 16 bits are first kept in half 1 of the staging. */
static void sum_terms(struct operation *op, const char *terms, int64_t stride, int64_t first,
                      int64_t n)
{
    int rounds = op->result != DTYPE_F32;
    float *sum = rounds ? (float *)link_staging(op->group->link, 1) : (float *)op->recv + first;
    device_sum_parts(op_device(op), op_stream(op), sum, op->dtype, terms, op->group->size, stride,
                     n, op->accumulate);
    if (rounds)
        device_cast(op_device(op), op_stream(op), op->result,
                    op->recv + first * (int64_t)dtype_bytes(op->result), DTYPE_F32, sum, n);
}

static int reduce_by_pieces(struct operation *op, struct channel *c)
{
    int size = op->group->size;
    int64_t part = part_elems(op->group->link, size);
    char *terms = link_staging(op->group->link, 0);
    if (may_stage(op, part))
        return FAILED;
    for (int64_t first = 0; first < op->elems; first += part) {
        int64_t n = min_i64(op->elems - first, part), stride = round_up(n, GRAIN);
        struct nccl_swap x = {.into = terms,
                              .into_step = stride * (int64_t)sizeof(uint16_t),
                              .part = n * (int64_t)sizeof(uint16_t),
                              .total = size * n * (int64_t)sizeof(uint16_t)};
        if (channel_begin_piece(op) || lay_terms(op, &x, terms, first) || swap(op, c, &x, SWAP_OUT))
            return FAILED;
        sum_terms(op, terms, stride, first, n);
    }
    return GIVEN;
}

/* Where op accumulates, NCCL writes its sum over this member's own shard in send, which is added to
 * recv afterwards: NCCL itself can only overwrite recv. */
static int reduce_scatter(struct operation *op)
{
    struct channel *c = channel_of(op);
    if (!c)
        return FAILED;
    if (op->dtype != DTYPE_F32)
        return reduce_by_pieces(op, c);
    float *own = (float *)op->send + op->group->rank * op->elems;
    float *into = op->accumulate ? own : (float *)op->recv;
    ncclResult_t code = ncclReduceScatter(op->send, into, (size_t)op->elems, ncclFloat32, ncclSum,
                                          comm_of(c), nccl_stream(c));
    if (nccl_wait_for_call(c, "reduce-scatter", code, &op->err))
        return FAILED;
    if (op->accumulate)
        device_sum_parts(op_device(op), op_stream(op), (float *)op->recv, DTYPE_F32, own, 1,
                         op->elems, op->elems, 1);
    return GIVEN;
}

/* All-reduce one piece: send each part to the member that adds it up, and the sums to all. */
static int sum_piece(struct operation *op, struct channel *c, uint16_t *data, int64_t elems)
{
    const struct group *g = op->group;
    int64_t part = ceil_div(elems, g->size * GRAIN) * GRAIN;
    int64_t part_bytes = part * (int64_t)sizeof *data;
    int64_t mine = min_i64(elems - g->rank * part, part);
    char *terms = link_staging(g->link, 0);
    float *sum = (float *)link_staging(g->link, 1);
    uint16_t *own = data + g->rank * part;
    struct nccl_swap x = {.from = (char *)data,
                          .from_step = part_bytes,
                          .into = terms,
                          .into_step = part_bytes,
                          .part = part_bytes,
                          .total = elems * (int64_t)sizeof *data};
    if (mine > 0 && channel_copy(op, terms + g->rank * part_bytes, own,
                                 mine * (int64_t)sizeof *data, "copy in a sum"))
        return FAILED;
    if (swap(op, c, &x, SWAP_OUT))
        return FAILED;
    if (mine > 0) {
        device_sum_parts(op_device(op), op_stream(op), sum, op->dtype, terms, g->size, part, mine,
                         0);
        device_cast(op_device(op), op_stream(op), op->dtype, own, DTYPE_F32, sum, mine);
    }
    x.from = (char *)own;
    x.into = (char *)data;
    return swap(op, c, &x, SWAP_BACK);
}

static int sum_by_pieces(struct operation *op, struct channel *c)
{
    int64_t piece = part_elems(op->group->link, op->group->size) * op->group->size;
    if (may_stage(op, piece))
        return FAILED;
    for (int64_t first = 0; first < op->elems; first += piece)
        if (channel_begin_piece(op) ||
            sum_piece(op, c, (uint16_t *)op->recv + first, min_i64(op->elems - first, piece)))
            return FAILED;
    return GIVEN;
}

static ncclDataType_t nccl_type(enum dtype dtype)
{
    return dtype == DTYPE_F64    ? ncclFloat64
           : dtype == DTYPE_BF16 ? ncclBfloat16
           : dtype == DTYPE_F16  ? ncclFloat16
                                 : ncclFloat32;
}

static int all_reduce(struct operation *op)
{
    struct channel *c = channel_of(op);
    if (!c)
        return FAILED;
    if (dtype_bytes(op->dtype) == 2 && op->reduction == GROUP_SUM)
        return sum_by_pieces(op, c);
    return nccl_wait_for_call(
        c, "all-reduce",
        ncclAllReduce(op->send, op->recv, (size_t)op->elems, nccl_type(op->dtype),
                      op->reduction == GROUP_MAX ? ncclMax : ncclSum, comm_of(c), nccl_stream(c)),
        &op->err);
}

const struct transport transport_nccl = {
    .name = "NCCL",
    .enqueue = {[CALL_ALL_GATHER] = all_gather,
                [CALL_REDUCE_SCATTER] = reduce_scatter,
                [CALL_ALL_REDUCE] = all_reduce,
                [CALL_ALL_TO_ALL] = all_to_all,
                [CALL_SEND] = message,
                [CALL_RECV] = message},
    .flush = flush_group,
};
