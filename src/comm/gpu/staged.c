/* staged.c - transport: sums and maxima over replicas by MPI, for memory of a GPU.
 *
 * A sum goes in pieces through two slots of pinned host memory; MPI sees host memory only.  For
 * each piece k the reduce stream is given four entries:
 *
 *     copy piece k into slot k % 2
 *     host call: start the sum of piece k by MPI          start_piece()
 *     host call: wait for the sum of piece k - 1          end_piece()
 *     copy the sum of piece k - 1 back to the GPU
 *
 * So the sum of one piece overlaps the copies of its neighbours.  The thread that enqueues waits
 * only where it is many pieces ahead (pieces.c), and so never SUMS_AHEAD sums.
 *
 * Host calls make no CUDA call.  CUDA may run the host calls of all streams on one thread, so a
 * host call that waits holds up those that became ready after it on this rank.  That cannot
 * deadlock: all these waits are on the reduce stream, in program order, which is the same on all
 * members.  Take the earliest piece for which any rank waits: all that its sum still needs, on any
 * rank, comes before that wait in program order, and no earlier wait exists that could hold it up.
 */
#include <stdlib.h>
#include <time.h>

#include "base/array.h"
#include "base/round.h"
#include "comm/gpu/channel.h"

enum { SLOTS = 2, SUMS_AHEAD = 256 };

/* A sum that was enqueued on the stream. */
struct staged_sum {
    struct group *group;
    int64_t elems;
    enum dtype dtype;
    enum group_reduction reduction;
};

struct staged {
    struct link *link;
    char *slot[SLOTS];
    struct staged_sum sum[SUMS_AHEAD]; /* ring of the sums enqueued and not done */
    unsigned given;                    /* sums enqueued since the start; of the enqueuing thread */
    unsigned taken;                    /* sums done since the start; host calls add; atomic */
    int64_t started, ended;            /* pieces of the sum under way; of host calls alone */
    struct comm_op op[SLOTS];          /* the sum by MPI of the piece in each slot */
    int broken;                        /* 1: staged_abandon() was called; atomic */
};

static size_t slot_bytes(const struct staged *s)
{
    return s->link->host_staging_bytes / SLOTS;
}

/* Return the elements of a piece: what fills a slot. */
static int64_t piece_of(const struct staged *s, enum dtype dtype)
{
    return (int64_t)(slot_bytes(s) / dtype_bytes(dtype));
}

static int is_broken(struct staged *s)
{
    return __atomic_load_n(&s->broken, __ATOMIC_ACQUIRE);
}

static void nap(void)
{
    const struct timespec time = {.tv_nsec = 20000};
    nanosleep(&time, NULL);
}

int staged_open(struct staged **staged, struct link *link, struct error *err)
{
    struct staged *s = array_make(1, sizeof *s);
    *staged = s;
    s->link = link;
    s->slot[0] =
        device_host_alloc(link->device, link->mem, POOL_HOST, link->host_staging_bytes, err);
    if (!s->slot[0])
        return error_prefix(err, "sums by MPI");
    s->slot[1] = s->slot[0] + slot_bytes(s);
    return 0;
}

void staged_close(struct staged *s)
{
    if (!s || is_broken(s))
        return; /* broken: a transfer may still use this memory */
    if (s->slot[0])
        device_host_free(s->link->device, s->link->mem, POOL_HOST, s->link->host_staging_bytes,
                         s->slot[0]);
    free(s);
}

void staged_abandon(struct staged *s)
{
    __atomic_store_n(&s->broken, 1, __ATOMIC_RELEASE);
}

static const struct staged_sum *sum_under_way(const struct staged *s)
{
    return &s->sum[__atomic_load_n(&s->taken, __ATOMIC_RELAXED) % SUMS_AHEAD];
}

/* Host call: start the sum by MPI of the next piece, which is in its slot by now. */
static void start_piece(void *arg)
{
    struct staged *s = arg;
    const struct staged_sum *sum = sum_under_way(s);
    int64_t piece = piece_of(s, sum->dtype), left = sum->elems - s->started * piece;
    int slot = (int)(s->started++ % SLOTS);
    if (!is_broken(s))
        group_all_reduce_host(sum->group, COMM_REDUCE, &s->op[slot], s->slot[slot],
                              min_i64(left, piece), sum->dtype, sum->reduction);
}

/* Host call: wait for the sum of the oldest piece that was started. */
static void end_piece(void *arg)
{
    struct staged *s = arg;
    const struct staged_sum *sum = sum_under_way(s);
    struct comm_op *op = &s->op[s->ended % SLOTS];
    struct error err = {0};
    while (!is_broken(s) && !comm_test(op))
        nap();
    if (!is_broken(s) && comm_wait(op, &err)) {
        link_note(s->link, &err);
        staged_abandon(s);
    }
    if (++s->ended * piece_of(s, sum->dtype) < sum->elems)
        return;
    s->started = s->ended = 0;
    __atomic_add_fetch(&s->taken, 1, __ATOMIC_RELEASE);
}

enum way { TO_HOST, TO_DEVICE };

/* Enqueue the copy of piece `index` between op->recv and its slot. */
static int copy_piece(struct operation *op, int64_t index, enum way way)
{
    const struct staged *s = op->group->link->staged;
    int64_t piece = piece_of(s, op->dtype), first = index * piece;
    int64_t n = min_i64(op->elems - first, piece), size = (int64_t)dtype_bytes(op->dtype);
    char *there = op->recv + first * size, *here = s->slot[index % SLOTS];
    char *to = way == TO_HOST ? here : there, *from = way == TO_HOST ? there : here;
    return channel_copy(op, to, from, n * size, "copy of a sum by MPI");
}

static int call_host(struct operation *op, void (*call)(void *))
{
    if (!device_call(op_device(op), op_stream(op), call, op->group->link->staged, &op->err))
        return 0;
    return error_prefix(&op->err, "host call of a sum by MPI");
}

static int all_reduce(struct operation *op)
{
    struct staged *s = op->group->link->staged;
    int64_t piece = piece_of(s, op->dtype), pieces = ceil_div(op->elems, piece);
    if (op->queue != COMM_REDUCE)
        return error_set(&op->err, "all-reduce in group %s: by MPI on the reduce stream only",
                         op->group->name);
    if (is_broken(s) && link_failed(s->link, &op->err))
        return FAILED;
    s->sum[s->given++ % SUMS_AHEAD] =
        (struct staged_sum){op->group, op->elems, op->dtype, op->reduction};
    for (int64_t k = 0; k <= pieces; k++) {
        if (k < pieces &&
            (channel_begin_piece(op) || copy_piece(op, k, TO_HOST) || call_host(op, start_piece)))
            return FAILED;
        if (k > 0 && (call_host(op, end_piece) || copy_piece(op, k - 1, TO_DEVICE)))
            return FAILED;
    }
    return GIVEN;
}

const struct transport transport_staged = {.name = "comm.inter_node=mpi",
                                           .enqueue = {[CALL_ALL_REDUCE] = all_reduce}};
