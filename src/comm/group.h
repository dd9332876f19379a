/* group.h - asynchronous collectives and messages among some ranks.
 *
 * In a group of one rank the same functions copy.
 * Every function that starts an operation returns at once; the operation runs on the
 * communication thread.  A stream is a queue: its operations run one after another in the
 * order they were started; the streams advance independently of one another.  All members
 * of a group start the same collectives on the same stream in the same order.
 * Messages (send, receive) that follow one another on a stream and touch different memory
 * travel side by side, at most GROUP_MESSAGES at a time, so that two ranks may both send first: at
 * most half as many messages each, before they start to receive.  In host memory messages complete
 * in order; on GPUs those that travel together complete when the last one has.
 *
 * Sums are taken in rank order (member 0 first), in fp32 for fp32, bf16 and fp16, so they
 * depend on the size of the group and on nothing else.  A maximum is the same in any order; where a
 * member has a NaN it is NaN (but see below for GPUs).  Counts may exceed 2^31 bytes.
 */
#ifndef TRIREME_COMM_GROUP_H
#define TRIREME_COMM_GROUP_H

#include <stdint.h>

#include "base/dtype.h"
#include "comm/world.h"

/* Messages have several streams, so that messages to one neighbour do not wait behind those from
 * another.  Collectives run on COMM_GATHER, COMM_REDUCE and COMM_POINT only. */
enum comm_stream {
    COMM_GATHER,
    COMM_REDUCE,
    COMM_POINT,
    COMM_POINT_1,
    COMM_POINT_2,
    COMM_POINT_3,
    COMM_POINT_4,
    COMM_POINT_5,
    COMM_POINT_6,
    COMM_POINT_7,
    COMM_STREAMS
};

/* Streams that collectives may run on, from 0; streams for messages, from COMM_POINT on. */
enum { COMM_COLLECTIVES = COMM_POINT + 1, COMM_POINTS = COMM_STREAMS - COMM_POINT };
enum { GROUP_MESSAGES = 16 }; /* messages that travel together, at most */

/* What an all-reduce makes of the members' values. */
enum group_reduction { GROUP_SUM, GROUP_MAX };

struct group;
struct operation;

/* One operation, started by a function below and ended by comm_wait(); the caller's.  Starting an
 * operation sets every field: handle need not be initialised before. */
struct comm_op {
    int64_t submit_ns, start_ns, end_ns; /* times of clock_ns(); valid after comm_wait() */
    int64_t sent_bytes;                  /* payload this rank sent to others; after comm_wait() */
    struct operation *operation;         /* private: the group's, NULL after comm_wait() */
};

/* Make a group of `size` ranks of world, this rank among them, whose members are numbered as in
 * ranks[] (copied; NULL: ranks 0 to size - 1).  Not collective, but every rank of world has to make
 * the same number of groups in the same order, because that order gives the tags; a group that
 * could not be made counts.  The caller agrees (world_agree) before the first operation.  name is
 * copied, and appears in errors and traces.  Returns 0 and a group for group_destroy(), or -1 with
 * err set.
 */
int group_create(struct group **group, struct world *world, const int *ranks, int size,
                 const char *name, struct error *err);

/* Make a group of this rank alone.  Not collective; world may be NULL.  Returns a group for
 * group_destroy(); does not fail. */
struct group *group_self(struct world *world, const char *name);

/* Free a group without operations in flight; NULL allowed.  Not collective. */
void group_destroy(struct group *group);

int group_rank(const struct group *group); /* this rank's number among the members */
int group_size(const struct group *group);
const char *group_name(const struct group *group); /* the group's */

/* ---- groups whose memory is a GPU's ----
 *
 * After mesh_attach() (mesh.h) the functions below enqueue on the device's stream of the same name
 * (COMM_GATHER: DEVICE_GATHER, and so on), and their memory is the device's.  An operation is then
 * complete for comm_wait() and comm_test() when it is enqueued; a caller that needs its result
 * waits for an event of that stream.  start_ns and end_ns have no meaning.  Only one thread may
 * call.
 *
 * What differs from host memory:
 *  - Messages that follow one another and touch different memory are held, and enqueued together
 *    when one of them is given to comm_wait() or comm_test(), or another operation is started.  So
 *    that no two ranks wait for each other, start all messages first, and then wait for all.  The
 *    steps of a program wait after each message, so that there none travels with another.
 *  - Sums of fp32 and fp64 are the library's: in an order of its own, the same in every run.  Sums
 *    of bf16 and fp16 terms are taken in rank order, in fp32.
 *  - Where terms are summed in rank order, the old value of recv (accumulate) is the first term.
 *  - A maximum by NCCL is its ncclMax: of a NaN and another member's number it is the number.
 *  - Reduce-scatter of fp32 with accumulate leaves the sum in the member's own part of send.
 *  - Only the operations that programs use are offered: those of mesh.h's communicators. */

/* Bytes of POOL_COMM a group of this size allocates when it is made; a pure function,
 * so that a plan needs no ranks. */
size_t group_staging_bytes(int size);

/* ---- starting operations ----
 *
 * Each starts an operation, which handle stands for until comm_wait() ends it and reports its
 * failure.  Until then the memory of send, recv and data has to stay, and the caller must not
 * change send. */

/* Set recv[size * elems] to every member's send[elems], in member order.
 * send == recv + rank * elems allowed (in place). */
void group_all_gather(struct group *g, enum comm_stream stream, struct comm_op *handle, void *recv,
                      const void *send, int64_t elems, enum dtype dtype);

/* Set recv[elems] to (accumulate ? recv : 0) + the sum over members m of m's
 * send[rank * elems ...][elems].
 * send [size * elems] is fp32, bf16 or fp16 and is not changed (but see above for GPUs).  result,
 * the format of recv, is fp32 or that of send, in which the sum, taken in fp32, is rounded once.
 * Accumulate is for fp32: the old value of recv is added last, to the finished sum.
 * send + rank * elems == recv allowed when both are fp32 and accumulate is 0. */
void group_reduce_scatter(struct group *g, enum comm_stream stream, struct comm_op *handle,
                          void *recv, enum dtype result, const void *send, int64_t elems,
                          enum dtype dtype, int accumulate);

/* Replace data[elems] by the sum or maximum over the members' data, the same bits on all; of fp32,
 * fp64, or bf16 and fp16, which are summed in fp32 and rounded once. */
void group_all_reduce(struct group *g, enum comm_stream stream, struct comm_op *handle, void *data,
                      int64_t elems, enum dtype dtype, enum group_reduction reduction);

/* Returns the bytes that member `rank` of a group of this size sends to others in an all-reduce;
 * pure.  The last members may have fewer elements to sum than the first ones, and so send fewer. */
int64_t group_all_reduce_sent(int size, int rank, int64_t elems, enum dtype dtype);

/* The parts that this member sends to another one in an all-to-all and receives from it, in
 * elements. */
struct comm_part {
    int64_t send_from, send_elems; /* send[send_from ...][send_elems] is sent */
    int64_t recv_from, recv_elems; /* recv[recv_from ...][recv_elems] is received */
};

/* Returns the elements that member `rank` of a group of this size sends to others in an all-to-all;
 * pure. */
int64_t group_all_to_all_sent(int size, int rank, const struct comm_part *part);

/* Let every member send a part of send to every member, itself included, and receive a part of recv
 * from it; part[m] says which parts for member m.  part[size] must stay until comm_wait().  What
 * member a sends to member b has as many elements as b receives from a.  Parts of recv do not
 * overlap one another, nor send. */
void group_all_to_all(struct group *g, enum comm_stream stream, struct comm_op *handle, void *recv,
                      const void *send, const struct comm_part *part, enum dtype dtype);

/* Send a message to another member, peer, or receive one from it.  The sends of one member to
 * another match the other's receives in order. */
void group_send(struct group *g, enum comm_stream stream, struct comm_op *handle, const void *data,
                int64_t elems, enum dtype dtype, int peer);
void group_recv(struct group *g, enum comm_stream stream, struct comm_op *handle, void *data,
                int64_t elems, enum dtype dtype, int peer);

/* Wait until an operation is complete, and end it; one that has ended is allowed.  Returns 0, or -1
 * with err naming group and operation. */
int comm_wait(struct comm_op *handle, struct error *err);

/* Returns 1 when an operation is complete (comm_wait() will not block), else 0. */
int comm_test(struct comm_op *handle);

#endif
