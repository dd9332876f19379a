/* operation.c - see operation.h and group.h: starting operations, and waiting for them.
 *
 * operation_make() takes a record from the group, operation_start() hands it on:
 *   memory of the host   the communication thread carries it out (thread.c); in a group of one with
 *                        nothing before it in its queue it is done at once, here;
 *   memory of a GPU      the transport enqueues it on a stream of the device, at once or, if it is
 *                        a message, together with the messages that follow.
 * comm_wait() copies times, bytes and failure to the caller, and gives the record back to the
 * group.
 */
#include "base/array.h"
#include "base/clock.h"
#include "base/round.h"
#include "comm/node_memory.h"
#include "comm/transport.h"

struct operation *operation_make(struct group *g, struct comm_op *handle, const void *send,
                                 void *recv, int64_t elems, enum dtype dtype)
{
    pthread_mutex_lock(&g->lock);
    struct operation *op = g->unused;
    if (op) {
        g->unused = op->next;
    } else {
        op = array_make(1, sizeof *op);
        op->older = g->newest;
        g->newest = op;
    }
    pthread_mutex_unlock(&g->lock);
    *op = (struct operation){
        .group = g, .send = send, .recv = recv, .elems = elems, .dtype = dtype, .older = op->older};
    *handle = (struct comm_op){.submit_ns = clock_ns(), .operation = op};
    return op;
}

/* Give the record back to the group, for another operation. */
static void give_back_record(struct operation *op)
{
    struct group *g = op->group;
    pthread_mutex_lock(&g->lock);
    op->next = g->unused;
    g->unused = op;
    pthread_mutex_unlock(&g->lock);
}

void operation_finish(struct operation *op)
{
    op->start_ns = op->end_ns = clock_ns();
    op->done = 1;
}

/* Returns the bytes that this member would send if mpi.c carried the operation out; used where a
 * library does. */
static int64_t sent_bytes(const struct operation *op)
{
    int64_t bytes = op->elems * (int64_t)dtype_bytes(op->dtype);
    int size = op->group->size, rank = op->group->rank;
    switch (op->kind->call) {
    case CALL_ALL_GATHER:
    case CALL_REDUCE_SCATTER: return (size - 1) * bytes;
    case CALL_ALL_REDUCE: return group_all_reduce_sent(size, rank, op->elems, op->dtype);
    case CALL_ALL_TO_ALL:
        return group_all_to_all_sent(size, rank, op->part) * (int64_t)dtype_bytes(op->dtype);
    case CALL_SEND: return bytes;
    default: return 0;
    }
}

/* Give an operation on a GPU's memory to the transport, which enqueues it on a stream. */
static void give_to_stream(struct operation *op)
{
    const struct transport *transport = op->group->transport;
    int (*enqueue)(struct operation * op) = transport->enqueue[op->kind->call];
    int outcome = GIVEN;
    if (!enqueue && !op->err.text[0])
        error_set(&op->err, "%s in group %s: not offered by %s on a GPU", op->kind->name,
                  op->group->name, transport->name);
    if (!op->err.text[0] && op->elems)
        outcome = enqueue(op);
    if (!op->err.text[0])
        op->sent_bytes = sent_bytes(op);
    if (outcome != HELD)
        operation_finish(op);
}

/* Set the members of op that follow from kind and queue, and check them; a mistake goes to op->err.
 */
static void bind(struct operation *op, int queue, const struct comm_kind *kind)
{
    struct group *g = op->group;
    op->kind = kind;
    op->queue = queue;
    op->request = kind->message ? op->own : g->area[queue].request;
    op->window = kind->message ? MESSAGE_TRANSFERS : g->window;
    if (op->elems < 0)
        error_set(&op->err, "%s in group %s: a negative count", kind->name, g->name);
    if (!kind->message && queue >= COMM_COLLECTIVES && queue < COMM_STREAMS)
        error_set(&op->err, "%s in group %s: on a stream for messages", kind->name, g->name);
}

/* Give an operation on host memory to the communication thread. */
static void start_on_host(struct operation *op, const struct transport *transport)
{
    const struct group *g = op->group;
    struct thread *thread = g->world ? g->world->thread : NULL;
    op->step = transport->step;
    if (!op->err.text[0] && g->size > 1)
        op->kind->plan(op);
    if (op->err.text[0]) {
        operation_finish(op);
    } else if (g->size == 1 && (!thread || thread_queue_idle(thread, op->queue))) {
        op->start_ns = clock_ns();
        op->step(op); /* nothing to wait for: copies are best done here */
        op->end_ns = clock_ns();
        op->done = 1;
    } else {
        thread_submit(thread, op);
    }
}

void operation_start(struct operation *op, int queue, const struct comm_kind *kind)
{
    const struct transport *transport = op->group->transport;
    bind(op, queue, kind);
    if (transport->step)
        start_on_host(op, transport);
    else
        give_to_stream(op);
}

/* Returns a kind in the form for members that read one another's memory, if all of them can use it
 * for as many bytes: all decide alike. */
static const struct comm_kind *kind_by_reading(const struct operation *op,
                                               const struct comm_kind *kind,
                                               const struct comm_kind *read)
{
    enum { LEAST_BYTES = 4 << 10 }; /* fewer are in a message as soon as a notice */
    int64_t bytes = op->elems * (int64_t)dtype_bytes(op->dtype);
    const struct group *g = op->group;
    return g->transport == &transport_mpi && node_memory_is_shared(g->world) && bytes > LEAST_BYTES
               ? read
               : kind;
}

void group_all_gather(struct group *g, enum comm_stream stream, struct comm_op *handle, void *recv,
                      const void *send, int64_t elems, enum dtype dtype)
{
    struct operation *op = operation_make(g, handle, send, recv, elems, dtype);
    operation_start(op, stream, kind_by_reading(op, &kind_all_gather, &kind_all_gather_read));
}

void group_reduce_scatter(struct group *g, enum comm_stream stream, struct comm_op *handle,
                          void *recv, enum dtype result, const void *send, int64_t elems,
                          enum dtype dtype, int accumulate)
{
    struct operation *op = operation_make(g, handle, send, recv, elems, dtype);
    op->result = result;
    op->accumulate = accumulate;
    if (!dtype_is_narrow_float(dtype))
        error_set(&op->err, "reduce-scatter in group %s: sums of %s are not offered", g->name,
                  dtype_name(dtype));
    else if (result != DTYPE_F32 && (result != dtype || accumulate))
        error_set(&op->err, "reduce-scatter in group %s: a sum of %s %s %s is not offered", g->name,
                  dtype_name(dtype), accumulate ? "added to" : "in", dtype_name(result));
    operation_start(op, stream,
                    kind_by_reading(op, &kind_reduce_scatter, &kind_reduce_scatter_read));
}

/* Returns the kind of an all-reduce, by its size. */
static const struct comm_kind *kind_of_sum(const struct operation *op)
{
    return group_sum_is_small(op->group->size, op->elems, op->dtype) ? &kind_all_reduce_small
                                                                     : &kind_all_reduce;
}

void group_all_reduce(struct group *g, enum comm_stream stream, struct comm_op *handle, void *data,
                      int64_t elems, enum dtype dtype, enum group_reduction reduction)
{
    struct operation *op = operation_make(g, handle, data, data, elems, dtype);
    op->reduction = reduction;
    if (!dtype_is_narrow_float(dtype) && dtype != DTYPE_F64)
        error_set(&op->err, "all-reduce in group %s: %s is not offered", g->name,
                  dtype_name(dtype));
    operation_start(op, stream, kind_of_sum(op));
}

void group_all_reduce_host(struct group *g, int queue, struct comm_op *handle, void *data,
                           int64_t elems, enum dtype dtype, enum group_reduction reduction)
{
    struct operation *op = operation_make(g, handle, data, data, elems, dtype);
    op->reduction = reduction;
    bind(op, queue, kind_of_sum(op));
    start_on_host(op, g->size > 1 ? &transport_mpi : &transport_self);
}

/* Check the parts of an all-to-all, and set op->elems to the longest.  Returns 0, or -1 with
 * op->err set. */
static int check_parts(struct operation *op)
{
    const struct group *g = op->group;
    const struct comm_part *own = &op->part[g->rank];
    for (int m = 0; m < g->size; m++) {
        const struct comm_part *part = &op->part[m];
        if (part->send_elems < 0 || part->recv_elems < 0 || part->send_from < 0 ||
            part->recv_from < 0)
            return error_set(&op->err, "all-to-all in group %s: a negative count", g->name);
        op->elems = max_i64(op->elems, max_i64(part->send_elems, part->recv_elems));
    }
    if (own->send_elems == own->recv_elems)
        return 0;
    return error_set(
        &op->err, "all-to-all in group %s: member %d sends itself another count than it receives",
        g->name, g->rank);
}

void group_all_to_all(struct group *g, enum comm_stream stream, struct comm_op *handle, void *recv,
                      const void *send, const struct comm_part *part, enum dtype dtype)
{
    struct operation *op = operation_make(g, handle, send, recv, 0, dtype);
    op->part = part;
    check_parts(op);
    operation_start(op, stream, &kind_all_to_all);
}

/* Start a send to peer, or a receive from it. */
static void start_message(struct operation *op, enum comm_stream stream,
                          const struct comm_kind *kind, int peer)
{
    const struct group *g = op->group;
    op->peer = peer;
    if (peer < 0 || peer >= g->size || peer == g->rank)
        error_set(&op->err, "message in group %s of %d: member %d cannot be the peer of %d",
                  g->name, g->size, peer, g->rank);
    operation_start(op, stream, kind);
}

void group_send(struct group *g, enum comm_stream stream, struct comm_op *handle, const void *data,
                int64_t elems, enum dtype dtype, int peer)
{
    struct operation *op = operation_make(g, handle, data, NULL, elems, dtype);
    start_message(op, stream, &kind_send, peer);
}

void group_recv(struct group *g, enum comm_stream stream, struct comm_op *handle, void *data,
                int64_t elems, enum dtype dtype, int peer)
{
    struct operation *op = operation_make(g, handle, NULL, data, elems, dtype);
    start_message(op, stream, &kind_recv, peer);
}

/* Enqueue the messages that the transport holds for others to join, as the caller waits for op. */
static void flush(const struct operation *op)
{
    const struct transport *transport = op->group->transport;
    if (!transport->step && transport->flush && !op->done)
        transport->flush(op->group);
}

int comm_test(struct comm_op *handle)
{
    const struct operation *op = handle->operation;
    if (op)
        flush(op);
    return !op || __atomic_load_n(&op->done, __ATOMIC_ACQUIRE);
}

int comm_wait(struct comm_op *handle, struct error *err)
{
    struct operation *op = handle->operation;
    if (!op)
        return 0;
    flush(op);
    if (!__atomic_load_n(&op->done, __ATOMIC_ACQUIRE))
        thread_wait(op->group->world->thread, op);
    handle->start_ns = op->start_ns;
    handle->end_ns = op->end_ns;
    handle->sent_bytes = op->sent_bytes;
    handle->operation = NULL;
    int rc = op->err.text[0] ? -1 : 0;
    if (rc && err)
        *err = op->err;
    give_back_record(op);
    return rc;
}
